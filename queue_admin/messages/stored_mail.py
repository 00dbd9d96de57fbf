"""Reads the mail that is stored for on-demand domains.

A message with its recipients at a domain is a StoredMessage: a message that was stored in pieces has several, and so
has one that is stored for several domains. One may also be in the queue, for other recipients.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import groupby, islice
from typing import NamedTuple

from queue_admin.messages.detail import RECEIVED_MAX, received_uid
from queue_admin.messages.selectors import HEADER_MAX, Selectors, find_subject
from queue_admin.messages.survey import read_head
from queue_base.durable import read_file
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_wire.control.ondemand import is_domain_name
from queue_wire.files.cluster import (
    CLUSTER_MAX,
    SUFFIX,
    ClusterRecord,
    StoredRecipient,
    cluster_number,
    link_name,
    unpack_cluster,
    unpack_link_name,
)
from queue_wire.files.stored_order import (
    HOLD_DIRECTORY,
    ORDER_DIRECTORY,
    ORDER_MAX,
    WHOLE,
    ClusterEnd,
    StoredOrder,
    unpack_order,
)
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_long_id

COUNTED_MAX = 10_000  # Messages that are counted for a summary.
REASON_MAX = 4096
FAULTS_SHOWN = 3


class StoredMessage(NamedTuple):
    """A message that is stored for a domain, in one of its clusters; `path` is that of its file, below queue/.

    `held` is the reason for which it is on hold, None if it is not. `ordered` is the command of an order that takes it,
    empty if there is none: queue-ondemand has not carried it out yet.
    """

    domain: bytes
    path: str
    first: StoredRecipient
    recipients: tuple[bytes, ...]
    held: str | None
    ordered: str = ""

    @property
    def long_id(self) -> str:
        """The long id."""
        return self.first.long_id


class StoredDomain:
    """What is stored for one domain, and what was ordered about it. Reads only.

    What cannot be read is left out, and `faults` gets the reason, by path.
    """

    def __init__(self, home: Home, domain: bytes, faults: dict[str, str]) -> None:
        """Nothing is read before it is needed: of other domains nothing may be wanted.

        `ends` has how far each cluster was read.
        """
        self.ends: dict[int, ClusterEnd] = {}
        self.domain = domain
        self._faults = faults
        self._queue = home.queue
        self._place = f"ondemand/{os.fsdecode(domain)}"

    @cached_property
    def _held(self) -> frozenset[str]:
        return frozenset(self._names(HOLD_DIRECTORY))

    @cached_property
    def orders(self) -> list[StoredOrder]:
        """The orders that queue-ondemand has not carried out yet, the first one first."""
        found: list[StoredOrder] = []
        for name in sorted(self._names(ORDER_DIRECTORY)):
            data = self._read(f"{ORDER_DIRECTORY}/{name}", ORDER_MAX)
            try:
                found += [] if data is None else [unpack_order(data)]
            except FormatError:
                continue  # queue-ondemand reports it.
        return found

    @property
    def held(self) -> str | None:
        """The reason for which the whole domain is on hold, None if it is not."""
        return self._reason(WHOLE) if WHOLE in self._held else None

    def clusters(self) -> list[int]:
        """Return the numbers of the clusters, in the order of their delivery."""
        return sorted(number for name in self._names("") if (number := cluster_number(name)))

    def messages(self) -> Iterator[StoredMessage]:
        """Yield what is stored, in order. What is delivered meanwhile, or is being removed, is left out."""
        for number in self.clusters():
            yield from self._group(number, self._pending(number))

    def find(self, long_id: str) -> list[StoredMessage]:
        """Return what is stored of a message. Only the clusters that have it are read."""
        found: list[StoredMessage] = []
        for number in self.clusters():
            if os.path.lexists(f"{self._queue}/{self._place}/mess/{link_name(number, long_id)}"):
                records = [record for record in self._pending(number) if record.stored.long_id == long_id]
                found += self._group(number, records)
        return found

    def long_ids(self, message: int | None = None) -> Iterator[str]:
        """Yield the long ids of the files of messages, or of those with this number. One may come several times."""
        for name in self._names("mess"):
            link = unpack_link_name(name)
            if link is not None and message in (None, unpack_long_id(link[1])[0]):
                yield link[1]

    def _pending(self, number: int) -> list[ClusterRecord]:
        data = self._read(f"{number}{SUFFIX}", CLUSTER_MAX)
        if data is None:
            return []
        cluster = unpack_cluster(data)
        self.ends[number] = ClusterEnd(number, cluster.seed, cluster.end)
        return cluster.pending

    def _group(self, number: int, records: Iterable[ClusterRecord]) -> Iterator[StoredMessage]:
        """Yield the messages that records belong to; one of which an order takes some recipients comes twice."""
        for long_id, some in groupby(records, lambda record: record.stored.long_id):
            path = f"{self._place}/mess/{link_name(number, long_id)}"
            held = self._reason(long_id) if long_id in self._held else self.held
            by_order: dict[str, list[StoredRecipient]] = {}
            for each in some:
                by_order.setdefault(self._order_of(each, number), []).append(each.stored)
            for ordered, stored in sorted(by_order.items()):
                recipients = tuple(each.recipient for each in stored)
                yield StoredMessage(self.domain, path, stored[0], recipients, held, ordered)

    def _order_of(self, record: ClusterRecord, number: int) -> str:
        """Return the command of the first order that takes a record, empty if there is none."""
        stored, end = record.stored, self.ends[number]
        for order in self.orders:
            if order.takes(stored.long_id, stored.recipient, number, end.seed, record.offset):
                return order.command.decode()
        return ""

    def _reason(self, name: str) -> str:
        data = self._read(f"{HOLD_DIRECTORY}/{name}", REASON_MAX)
        return "" if data is None else data.split(b"\n", 1)[0].decode("utf-8", "replace")

    def _names(self, below: str) -> list[str]:
        path = f"{self._queue}/{self._place}/{below}".rstrip("/")
        try:
            return os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            self._faults[path] = reason(error)
        return []

    def _read(self, below: str, most: int) -> bytes | None:
        path = f"{self._queue}/{self._place}/{below}"
        try:
            return read_file(path, most)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._faults[path] = reason(error)
        return None


class StoredMail:
    """All of it. Reads only. What cannot be read is left out; whoever has used the rest calls `check`."""

    def __init__(self, home: Home) -> None:
        """Read the names of the domains. Raises Temporary."""
        self._queue = home.queue
        self._faults: dict[str, str] = {}
        self.domains = {name: StoredDomain(home, name, self._faults) for name in stored_domains(home)}

    def check(self) -> None:
        """Raise Temporary, naming what could not be read so far, if anything could not."""
        check_read(self._faults)

    def messages(self, selectors: Selectors, now: float) -> Iterator[StoredMessage]:
        """Yield the messages that match, with the recipients that are chosen."""
        for domain in self.domains.values():
            if selectors.domain in (None, domain.domain) and _may_be_stored(selectors):
                for message in domain.messages():
                    chosen = self.choose(message, selectors, now)
                    if chosen is not None:
                        yield chosen

    def find(self, long_id: str) -> list[StoredMessage]:
        """Return what is stored of a message."""
        return [message for domain in self.domains.values() for message in domain.find(long_id)]

    def find_number(self, message: int) -> set[str]:
        """Return the long ids of the messages that are stored and have this number."""
        return {long_id for domain in self.domains.values() for long_id in domain.long_ids(message)}

    def count(self) -> int:
        """Return how many messages there are, COUNTED_MAX if there are more."""
        names = (name for domain in self.domains.values() for name in domain.long_ids())
        return sum(1 for _ in islice(names, COUNTED_MAX))

    def choose(self, message: StoredMessage, selectors: Selectors, now: float) -> StoredMessage | None:
        """Return a message with those of its recipients that match, None if it does not match."""
        first = message.first
        if not _may_be_stored(selectors) or (selectors.state == "held" and message.held is None):
            return None
        if selectors.older is not None and now - first.birth / 1e6 < selectors.older:
            return None
        if not selectors.is_of_sender(first.sender) or not selectors.fits_size(first.size):
            return None
        chosen = tuple(each for each in message.recipients if selectors.recipients.chooses(each.lower(), each.lower()))
        if not selectors.recipients.any:
            chosen = message.recipients
        if not chosen:
            return None
        if selectors.reason is not None and selectors.reason not in (message.held or "").lower():
            return None
        if selectors.uid is not None and selectors.uid != received_uid(self._head(message, RECEIVED_MAX)):
            return None
        if selectors.subject is not None and selectors.subject not in self._subject(message).lower():
            return None
        return message._replace(recipients=chosen)

    def _subject(self, message: StoredMessage) -> str:
        return find_subject(self._head(message, HEADER_MAX))

    def _head(self, message: StoredMessage, most: int) -> bytes:
        try:
            return read_head(f"{self._queue}/{message.path}", most)
        except OSError:
            return b""


def _may_be_stored(selectors: Selectors) -> bool:
    return selectors.state in (None, "stored", "held")


def stored_domains(home: Home) -> list[bytes]:
    """Return the domains that have stored mail. Raises Temporary."""
    path = f"{home.queue}/ondemand"
    try:
        names = sorted(os.listdir(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Temporary(f"unable to read {path}: {reason(error)}") from error
    return [name.encode() for name in names if is_domain_name(name.encode("utf-8", "replace"))]


def check_read(faults: Mapping[str, str]) -> None:
    """Raise Temporary if something that is stored could not be read; `faults` are the reasons, by path."""
    if faults:
        shown = [f"{path}: {why}" for path, why in faults.items()][:FAULTS_SHOWN]
        more = f" and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
        what = "mail that is stored there was left out, the rest was not; queuectl check says what is wrong"
        raise Temporary(f"unable to read {', '.join(shown)}{more}; {what}")


def read_stored(home: Home, domain: bytes) -> Iterator[StoredRecipient]:
    """Yield what is stored for a domain, in order. Reads only; raises Temporary at the end if not all can be read.

    What is delivered meanwhile may be left out.
    """
    faults: dict[str, str] = {}
    directory = f"{home.queue}/ondemand/{os.fsdecode(domain)}"
    try:
        numbers = sorted(number for name in os.listdir(directory) if (number := cluster_number(name)))
    except FileNotFoundError:
        return
    except OSError as error:
        raise Temporary(f"unable to read {directory}: {reason(error)}") from error
    for number in numbers:
        path = f"{directory}/{number}{SUFFIX}"
        try:
            found = unpack_cluster(read_file(path, CLUSTER_MAX))
        except FileNotFoundError:
            continue
        except OSError as error:
            faults[path] = reason(error)
            continue
        for record in found.pending:
            yield record.stored
    check_read(faults)
