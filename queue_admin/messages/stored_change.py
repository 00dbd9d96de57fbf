"""Changes what is stored for on-demand domains: marks in hold/, and orders that queue-ondemand carries out; flushes it.

Marks and orders are files (queue_wire.files.stored_order), durable before queue-ondemand is told of them. If it does
not run, it finds them at its next start. What frees the disk must not need room on it: an order to delete for which
there is none is given to queue-ondemand itself, or is carried out here while the suite does not run.
"""

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from typing import NamedTuple

from queue_admin.messages.admin_client import OnDemandClient, ask_for_runs, connect_or_lock
from queue_admin.messages.offline import OfflineQueue
from queue_admin.messages.selectors import Selectors
from queue_admin.messages.stored_mail import StoredMail, StoredMessage
from queue_admin.messages.stored_removal import remove_stored
from queue_admin.messages.survey import look
from queue_base.durable import Commit
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_base.queue.hold_marks import lacks_room
from queue_base.queue.layout import FILE_MODE, Layout
from queue_wire.admin.ondemand_socket import (
    EMPTY,
    FLUSH,
    HOLDS,
    NO_LINE,
    ON_HOLD,
    ORDERS,
    REQUEUED,
    RUNNING,
    UNKNOWN,
    RequeuedMessage,
    RunRequest,
    unpack_requeued,
)
from queue_wire.files.stored_order import (
    DELETE_STORED,
    HOLD_DIRECTORY,
    ORDER_DIRECTORY,
    REQUEUE_STORED,
    WHOLE,
    StoredOrder,
    divide_order,
    pack_order,
)
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_long_id

DIRECTORY_MODE = 0o2750
ORDER_SECONDS = 10.0  # An order that takes longer goes on without the command.
LOOK_SECONDS = 0.02
GIVEN_MAX = 5000  # Long ids, or ends of clusters, in a request.
DELETE_WAIT = 120.0  # Seconds for the deletion of what one request names.


class StoredIds:
    """Looks for ids among what is stored while they are passed on; `found` is what there is of them."""

    def __init__(self, layout: Layout, mail: StoredMail) -> None:
        self._layout = layout
        self._mail = mail
        self.found: list[StoredMessage] = []

    def pass_on(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the ids but for those of messages that are stored and no longer in the queue."""
        for name in names:
            stored = self._mail.find(name)
            self.found += stored
            if stored:
                message, birth = unpack_long_id(name)
                there = look(self._layout, message)
                if there is None or there.birth != birth:
                    continue
            yield name


class StoredChange:
    """What a command is to change: messages that a person named, or all that match.

    `messages` are long ids by domain; `whole` are the domains of which all was chosen. `requeued` are those that were
    requeued while the order was waited for, under new ids. `on_hold` is how many are on hold and were left as they are.
    """

    def __init__(self, home: Home, layout: Layout, mail: StoredMail, selectors: Selectors, now: float) -> None:
        self._home = home
        self._layout = layout
        self._mail = mail
        self._selectors = selectors
        self._now = now
        self.messages: dict[bytes, dict[str, None]] = {}
        self.whole: set[bytes] = set()
        self.requeued: list[RequeuedMessage] = []
        self.on_hold = 0
        self.most: int | None = None  # Take no more than so many.

    @property
    def count(self) -> int:
        """How many messages were chosen."""
        return sum(map(len, self.messages.values()))

    def take_named(self, found: Iterable[StoredMessage], held: bool | None = None) -> None:
        """Take those of the messages that match; only those on hold, or not on hold, if `held` is not None."""
        for message in found:
            chosen = self._mail.choose(message, self._selectors, self._now)
            if chosen is None or chosen.ordered:
                continue
            names = self.messages.get(chosen.domain, {})
            if self.most is not None and self.count >= self.most and chosen.long_id not in names:
                return
            if held in (None, chosen.held is not None):
                self.messages.setdefault(chosen.domain, {})[chosen.long_id] = None
            elif chosen.held is not None:
                self.on_hold += 1

    def take_matching(self, held: bool | None = None) -> None:
        """Take all that match, likewise."""
        self.take_named(self._mail.messages(self._selectors, self._now), held)
        if self._selectors.of_domain_alone and self.most is None:
            self.whole = set(self.messages)

    def hold(self, why: bytes) -> None:
        """Put them on hold; what is on hold already keeps its reason. Raises Temporary."""
        for domain, names in self.messages.items():
            marks = [WHOLE] if domain in self.whole else list(names)
            there = {mark for mark in marks if os.path.lexists(f"{self._place(domain, HOLD_DIRECTORY)}/{mark}")}
            marks = [mark for mark in marks if mark not in there]
            for name in list(names) if WHOLE in there else there:
                del names[name]
                self.on_hold += 1
            self._change(domain, HOLD_DIRECTORY, dict.fromkeys(marks, why + b"\n"))
        self._tell(HOLDS)

    def release(self) -> list[bytes]:
        """Take them from hold; return the domains that are on hold as a whole, and stay so. Raises Temporary."""
        left = []
        for domain, names in self.messages.items():
            place = self._place(domain, HOLD_DIRECTORY)
            commit = Commit()
            try:
                there = set(os.listdir(place))
                wanted = there if domain in self.whole else there.intersection(names)
                for name in wanted:
                    commit.unlink(f"{place}/{name}")
                commit.sync()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _unable(error, place) from error
            if WHOLE in there - wanted:
                left.append(domain)
        self._tell(HOLDS)
        return left

    def order(self, command: bytes) -> bool:
        """Have them deleted, bounced or requeued; return whether that is done. Raises Temporary."""
        recipient = self._selectors.recipient or b""
        made, unwritten = [], dict[bytes, StoredOrder]()
        name = f"{time.time_ns():020}.{os.getpid()}"
        for domain, names in self.messages.items():
            order = StoredOrder(command, recipient, frozenset(names))
            if domain in self.whole:
                # What was read: a message that is stored by now is not meant.
                order = StoredOrder(command, recipient, ends=tuple(self._mail.domains[domain].ends.values()))
            try:
                self._write(domain, ORDER_DIRECTORY, {name: pack_order(order)})
            except OSError as error:
                if command != DELETE_STORED or not lacks_room(error):
                    raise _unable(error, self._place(domain, ORDER_DIRECTORY)) from error
                unwritten[domain] = order
            else:
                made.append(f"{self._place(domain, ORDER_DIRECTORY)}/{name}")
        for domain, order in unwritten.items():
            self._delete(domain, order)
        if not made:
            return True
        try:
            with OnDemandClient(self._home) as client:
                for domain in self.messages:
                    client.ask(RunRequest(ORDERS, domain))
                return self._wait_for(client, command, name, made)
        except (Temporary, FormatError):
            # It does not run, or has ended meanwhile; the next one finds the orders.
            return not any(map(os.path.lexists, made))

    def _delete(self, domain: bytes, order: StoredOrder) -> None:
        """Delete what is stored without a file that says so. Raises Temporary."""
        trouble = f"unable to delete what is stored for {domain.decode()}"
        try:
            client = OnDemandClient(self._home, DELETE_WAIT)
        except Temporary as error:
            with closing(connect_or_lock(self._home, self._layout)) as queue:
                if not isinstance(queue, OfflineQueue):
                    raise Temporary(f"{trouble}: the disk has no room for an order, and {error}") from error
                try:
                    remove_stored(self._home, domain, order)
                except OSError as failed:
                    raise _unable(failed, self._place(domain, "")) from failed
            return
        until = time.monotonic() + ORDER_SECONDS
        with client:
            for part in divide_order(order, GIVEN_MAX):
                while (answer := client.ask(RunRequest(ORDERS, domain, pack_order(part)))).word == RUNNING:
                    if time.monotonic() > until:
                        why = "a delivery is under way, and the disk has no room for an order that waits for its end"
                        raise Temporary(f"{trouble}: {why}; try again")
                    time.sleep(LOOK_SECONDS)
                if answer.word != EMPTY:
                    raise Temporary(f"{trouble}: {answer.text.decode()}")

    def _wait_for(self, client: OnDemandClient, command: bytes, name: str, made: list[str]) -> bool:
        """Wait until orders with this name are carried out; return whether they are. Raises Temporary, FormatError."""
        until = time.monotonic() + ORDER_SECONDS
        while True:
            over = not any(map(os.path.lexists, made))
            if command == REQUEUE_STORED:
                while text := client.ask(RunRequest(REQUEUED, name.encode())).text:
                    self.requeued += unpack_requeued(text)
            if over or time.monotonic() > until:
                return over
            time.sleep(LOOK_SECONDS)

    def _change(self, domain: bytes, kind: str, contents: dict[str, bytes]) -> None:
        """Make files of a domain, durably, each at once; nothing if its mail is gone. Raises Temporary."""
        try:
            self._write(domain, kind, contents)
        except OSError as error:
            raise _unable(error, self._place(domain, kind)) from error

    def _write(self, domain: bytes, kind: str, contents: dict[str, bytes]) -> None:
        """Do so. Raises OSError."""
        place = self._place(domain, kind)
        passing = f"{self._home.queue}/pid/stored.{os.getpid()}"
        commit = Commit()
        try:
            commit.directory(place, DIRECTORY_MODE)
            for name, data in contents.items():
                commit.unlink(passing)
                commit.create(passing, data, FILE_MODE)
                commit.sync()  # Its bytes must not come after its name.
                commit.rename(passing, f"{place}/{name}")
            commit.sync()
        except FileNotFoundError:
            return  # The last message of the domain is gone, and its directory.
        except OSError:
            with suppress(OSError):
                os.unlink(passing)  # A full disk takes the name and not the contents.
            raise

    def _tell(self, command: bytes) -> bool:
        """Tell queue-ondemand; return whether it runs."""
        try:
            ask_for_runs(self._home, [RunRequest(command, domain) for domain in self.messages])
        except Temporary:
            return False
        return True

    def _place(self, domain: bytes, kind: str) -> str:
        return f"{self._home.queue}/ondemand/{domain.decode()}/{kind}"


def _unable(error: OSError, path: str) -> Temporary:
    return Temporary(f"unable to change {error.filename or path}: {reason(error)}")


class FlushedDomains(NamedTuple):
    """For how many domains a run is under way or comes soon, which are on hold, whose hosts have to use ATRN, and which
    have no line in control/ondemand any more.
    """

    delivered: int
    held: list[bytes]
    asking: list[bytes]
    lineless: list[bytes]


def flush_domains(home: Home, domains: Mapping[bytes, Collection[str]]) -> FlushedDomains:
    """Have queue-ondemand deliver what is stored for domains. Raises Temporary.

    Of each domain the messages with these long ids are delivered; all if there are none, or more than a request has.
    """
    requests = [
        RunRequest(FLUSH, domain, ",".join(ids if len(ids) <= GIVEN_MAX else ()).encode())
        for domain, ids in domains.items()
    ]
    answers = ask_for_runs(home, requests)
    held = [domain for domain, answer in zip(domains, answers, strict=True) if answer.text == ON_HOLD]
    unknown = {domain: answer.text for domain, answer in zip(domains, answers, strict=True) if answer.word == UNKNOWN}
    lineless = [domain for domain, text in unknown.items() if text == NO_LINE]
    asking = [domain for domain, text in unknown.items() if text != NO_LINE]
    delivered = sum(answer.word not in (EMPTY, UNKNOWN) for answer in answers) - len(held)
    return FlushedDomains(delivered, held, asking, lineless)
