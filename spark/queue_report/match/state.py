"""What is open between two lines of a stream's log, and how the table `pending` holds it."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from queue_report.match.hashes import hash_addresses
from queue_report.match.rows import Columns, add_facts, born_of, column_of, domain_of, fill
from queue_report.schema.arrow import ARROW
from queue_report.schema.columns import LEVEL, OF_MESSAGE

# Of a message, what `info` tells and when: qp, uid, sender, bytes, birth_ns, info_ns. None: the log does not say.
Facts: TypeAlias = tuple[int | None, int | None, bytes | None, int | None, int | None, int | None]
NO_FACTS: Facts = (None, None, None, None, None, None)
# Deliveries in flight and limits: local_now, local_limit, remote_now, remote_limit.
Level: TypeAlias = tuple[int, int, int, int]

# Columns of a message's row that are attributes of Message.
_COPIED = ("successes", "failures", "deferrals", "bounce_qp", "bounce_of", "again_ns", "fate")
# The columns of `pending` that a row of each kind is read by, and those of others than messages made of, by `what`; and
# columns that are bytes here.
_COLUMNS = {
    "message": ("id", "key", "first_ns", "seen", *OF_MESSAGE, *_COPIED),
    "delivery": ("channel", "recipient", "domain", "id", "key", "open", "delivery", "start_ns", *OF_MESSAGE),
    "status": ("first_ns", *LEVEL),
    "bounce": ("bounce_qp", "key", "id", "first_ns"),
    "session": ("id", "key", "first_ns", "session"),
    "run": ("domain", "fate", "key", "start_ns", "successes", "failures", "deferrals"),
    "stored": ("domain", "key", "recipient", "id", "sender", "bytes", "deferrals", "first_ns"),
}
_BYTES = ("sender", "channel", "recipient")
_SESSION_TEXTS = (
    "client", "name", "server", "tls_version", "tls_cipher", "tls_failure", "auth_user", "mechanism",
)  # fmt: skip
_SESSION_COUNTS = ("messages", "recipients", "bytes", "refused", "dropped", "discarded", "auth_failures")
_WORDS_MAX = 100  # Unknown first words that are counted each for itself.
_OTHERS = "(others)"
SLICE = 10_000  # Messages that are packed or unpacked at once.


class Hashes(set[int]):
    """Addresses as hash_addresses has them."""


class Message:
    """One life of a message number. There may be a million, so it has slots, and None for what is rare.

    tried: the addresses (`remote R`) that were tried: None for none, one, or a set; or as hashes: one, or Hashes.
    again_ns: time of a last `new`, of which the next `info` will tell whether it is another message. fate: discarded
    or deleted, so far.
    """

    __slots__ = (
        "again_ns", "bounce_of", "bounce_qp", "deferrals", "facts", "failures", "fate", "first_ns", "key", "number",
        "successes", "tried",
    )  # fmt: skip

    def __init__(self, number: int, first_ns: int, facts: Facts) -> None:
        self.number, self.first_ns, self.facts = number, first_ns, facts
        self.key = f"{number}.{first_ns}"
        self.successes = self.failures = self.deferrals = 0
        self.tried: bytes | set[bytes] | int | Hashes | None = None
        self.bounce_qp: int | None = None
        self.bounce_of: str | None = None
        self.again_ns: int | None = None
        self.fate: str | None = None

    def try_address(self, address: bytes) -> bool:
        """Note that an address is tried; or return False: its hash is to be noted, as those of the others were."""
        tried = self.tried
        if tried is None:
            self.tried = address
        elif tried == address:
            pass
        elif isinstance(tried, bytes):
            self.tried = {tried, address}
        elif isinstance(tried, int | Hashes):
            return False
        else:
            tried.add(address)
        return True

    def try_hash(self, hashed: int) -> None:
        """Note that the address of this hash is tried. The others must be hashes."""
        if isinstance(self.tried, Hashes):
            self.tried.add(hashed)
        elif isinstance(self.tried, int) and self.tried != hashed:
            self.tried = Hashes((self.tried, hashed))

    def recipients(self) -> int:
        """Return how many different addresses were tried."""
        tried = self.tried
        return 0 if tried is None else len(tried) if isinstance(tried, set) else 1

    def seen(self) -> list[int]:
        """Return the hashes of the addresses that were tried. They must be hashes."""
        tried = self.tried
        assert not isinstance(tried, bytes)
        return [] if tried is None else [tried] if isinstance(tried, int) else sorted(map(int, tried))


def hash_tried(messages: Iterable[Message]) -> None:
    """Note the addresses that were tried as their hashes."""
    named = [
        (one, [one.tried] if isinstance(one.tried, bytes) else list(one.tried))
        for one in messages
        if isinstance(one.tried, bytes | set) and not isinstance(one.tried, Hashes)
    ]
    hashes = iter(hash_addresses([address for _, addresses in named for address in addresses]))
    for one, addresses in named:
        one.tried = next(hashes) if len(addresses) == 1 else Hashes(islice(hashes, len(addresses)))


class OpenSession:
    """A session of SMTP that has not ended: what is known of it, as a row. sender, recipients: of the transaction."""

    __slots__ = ("recipients", "row", "sender")

    def __init__(self, row: dict[str, Any], sender: bytes | None = None, recipients: int = 0) -> None:
        self.row, self.sender, self.recipients = row, sender, recipients

    @classmethod
    def new(cls, number: int, at: int) -> "OpenSession":
        row = {"key": f"{number}.{at}", "number": number, "start_ns": at}
        return cls(row | dict.fromkeys(_SESSION_TEXTS) | dict.fromkeys(_SESSION_COUNTS, 0))

    def pack(self) -> str:
        """Return it as JSON, for the table `pending`."""
        kept = {name: one.decode() if isinstance(one, bytes) else one for name, one in self.row.items()}
        sender = None if self.sender is None else self.sender.decode()
        return json.dumps({"row": kept, "sender": sender, "recipients": self.recipients})

    @classmethod
    def unpack(cls, text: str) -> "OpenSession":
        kept = json.loads(text)
        sender = None if kept["sender"] is None else kept["sender"].encode()
        return cls(kept["row"], sender, kept["recipients"])


class OpenStored:
    """A recipient that is stored for an on-demand domain. There may be a million. `below`: the same one, which was
    stored before."""

    __slots__ = ("below", "deferrals", "sender", "size", "start_ns")

    def __init__(self, start_ns: int, sender: bytes, size: int, deferrals: int = 0) -> None:
        self.start_ns, self.sender, self.size, self.deferrals = start_ns, sender, size, deferrals
        self.below: OpenStored | None = None

    def in_order(self) -> "list[OpenStored]":
        """Return those below it, and itself."""
        found = [self]
        while (below := found[-1].below) is not None:
            found.append(below)
        return found[::-1]


class OpenRun:
    """A run over what is stored that has not ended. start_ns, cause: None for one that has no `started`. The counts are
    of its lines."""

    __slots__ = ("cause", "deferrals", "failures", "start_ns", "successes")

    def __init__(self, start_ns: int | None, cause: bytes | None) -> None:
        self.start_ns, self.cause = start_ns, cause
        self.successes = self.failures = self.deferrals = 0

    def count(self, result: bytes) -> None:
        """Count a line of a recipient."""
        self.successes += result == b"success"
        self.failures += result == b"failure"
        self.deferrals += result == b"deferral"


StoredKey: TypeAlias = tuple[bytes, bytes, bytes]  # Domain, long id, recipient.
# A delivery in flight: its message, number, address (`remote R`), start, and the message's facts at the start.
Delivery: TypeAlias = tuple[Message, int, bytes, int, Facts]
# A bounce whose own message has not been seen: key and number of what it reports, and when it was said.
Bounce: TypeAlias = tuple[str, int, int]


@dataclass
class Stamps:
    """The stamps of the lines that were read. latest: of all; None: no line was, or it is not known which.

    run_ns, run_fresh, last_print: the lines at the end that have one stamp: which, whether none before had it or a
    later one, and the print of the last. run_prints: of a run that is not fresh, how many lines each print had.
    last_digest: a hash of the last line that nobody can make equal to another's; None where a lake does not have it.
    """

    latest: int | None = None
    run_ns: int | None = None
    run_fresh: bool = True
    last_print: int | None = None
    run_prints: dict[int, int] = field(default_factory=dict)
    last_digest: str | None = None


class State:
    """What is open at one place of a stream's log.

    messages, deliveries, sessions (of SMTP): by number. bounces: by qp. stored: recipients of on-demand domains. runs:
    over what is stored, by domain. level: since when, and which; None where nothing is known, as between two runs of
    queue-send. last_ns: stamp of the queue's last line. begun_ns, begun: when a message began last, and how many of
    each number began with that stamp. dying: this run has lost a daemon. unknown: how many lines of the stream began
    with a word that no kind of line has, by that word. tries: addresses of which messages are to note the hashes.
    """

    def __init__(self, host: str, queue: str) -> None:
        self.host, self.queue = host, queue
        self.messages: dict[int, Message] = {}
        self.deliveries: dict[int, Delivery] = {}
        self.bounces: dict[int, Bounce] = {}
        self.sessions: dict[int, OpenSession] = {}
        self.stored: dict[StoredKey, OpenStored] = {}
        self.runs: dict[bytes, OpenRun] = {}
        self.level: tuple[int, Level] | None = None
        self.last_ns: int | None = None
        self.begun_ns: int | None = None
        self.begun: dict[int, int] = {}
        self.dying = False
        self.unknown: Counter[str] = Counter()
        self.stamps = Stamps()
        self.tries: list[tuple[Message, bytes]] = []

    def push(self, key: StoredKey, one: OpenStored) -> None:
        """A recipient is stored."""
        one.below = self.stored.get(key)
        self.stored[key] = one

    def note_tries(self) -> None:
        """Have the messages note the hashes of `tries`."""
        for (message, _), hashed in zip(self.tries, hash_addresses([one for _, one in self.tries]), strict=True):
            message.try_hash(hashed)
        self.tries.clear()

    def add_unknown(self, word: str) -> None:
        """Count an unknown word; all together those that come when there are very many."""
        many = len(self.unknown) >= _WORDS_MAX and word not in self.unknown
        self.unknown[_OTHERS if many else word] += 1

    def pack(self) -> pa.Table:
        """Return the rows of the table `pending`."""
        return pa.Table.from_batches(list(self._slices(lambda number: self.messages[number])), ARROW["pending"])

    def take_slices(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the table `pending`, at most SLICE messages at once. A message that was taken is no longer
        in the state, so that a million of them do not need memory twice."""
        return self._slices(self.messages.pop)

    def _slices(self, message: Callable[[int], Message]) -> Iterator[pa.RecordBatch]:
        # Whether the message of a delivery is open is known as long as that is there.
        others = [batch for what, rows in self._rows_of_others() for batch in self._batches(what, rows)]
        numbers = iter(list(self.messages))
        while messages := [message(number) for number in islice(numbers, SLICE)]:
            hash_tried(messages)
            columns = {name: list(map(attrgetter(name), messages)) for name in ("key", "first_ns", *_COPIED)}
            columns["id"] = [one.number for one in messages]
            columns["recipients"] = [one.recipients() for one in messages]
            columns["seen"] = [one.seen() for one in messages]
            add_facts(columns, [one.facts for one in messages])
            yield self._batch("message", columns, len(messages))
        yield from others

    def _batches(self, what: str, rows: Iterator[tuple[Any, ...]]) -> Iterator[pa.RecordBatch]:
        while part := list(islice(rows, SLICE)):
            yield self._batch(what, {name: column_of(part, at) for at, name in enumerate(_COLUMNS[what])}, len(part))

    def _batch(self, what: str, columns: Columns, size: int) -> pa.RecordBatch:
        return fill("pending", columns, {"what": what, "host": self.host, "queue": self.queue}, size)

    def _rows_of_others(self) -> Iterator[tuple[str, Iterator[tuple[Any, ...]]]]:
        """Yield the rows of what is open beside messages, in the columns of _COLUMNS."""
        yield "delivery", (
            (*address.split(b" ", 1), domain_of(address), one.number, one.key, self.messages.get(one.number) is one,
             delivery, at, *facts)
            for one, delivery, address, at, facts in self.deliveries.values()
        )  # fmt: skip
        if self.level is not None:
            yield "status", iter([(self.level[0], *self.level[1])])
        yield "bounce", ((qp, *one) for qp, one in self.bounces.items())
        yield "session", (
            (number, one.row["key"], one.row["start_ns"], one.pack()) for number, one in self.sessions.items()
        )  # fmt: skip
        yield "run", (
            (domain, one.cause, "", one.start_ns, one.successes, one.failures, one.deferrals)
            for domain, one in self.runs.items()
        )  # fmt: skip
        yield "stored", (
            (*key, born_of(key[1])[0], one.sender, one.size, one.deferrals, one.start_ns)
            for key, last in self.stored.items() for one in last.in_order()
        )  # fmt: skip

    def mark(self) -> dict[str, Any]:
        """Return what `pending` does not hold, for JSON: the last stamps, whether the run has lost a daemon, and
        unknown words."""
        stamps = self.stamps
        return {
            "latest": stamps.latest,
            "run": [stamps.run_ns, stamps.run_fresh, stamps.last_print, list(stamps.run_prints.items())],
            "last_line": [stamps.run_ns, stamps.last_digest],
            "last_ns": self.last_ns,
            "begun": [self.begun_ns, list(self.begun.items())],
            "dying": self.dying,
            "unknown": dict(sorted(self.unknown.items())),
        }

    @classmethod
    def unpack(cls, host: str, queue: str, pending: pa.Table | None, mark: Mapping[str, Any] | None = None) -> "State":
        """Return the state of a stream. pending: its rows, those of `take_slices` one after the other. mark: what
        `mark` gave; of a lake made before the last stamp as `latest`, which may be missing."""
        state = cls(host, queue)
        state._set_mark(mark or {})
        batches = [] if pending is None else pending.to_batches(SLICE)
        # Deliveries come after their messages.
        for what, names in _COLUMNS.items():
            for batch in batches:
                part = batch.filter(pc.equal(batch.column("what"), what))
                columns = [part[name].cast(pa.binary()) if name in _BYTES else part[name] for name in names]
                for row in zip(*(one.to_pylist() for one in columns), strict=True):
                    state._restore(what, row)
        return state

    def _restore(self, what: str, row: tuple[Any, ...]) -> None:
        """Have what a row says, of _COLUMNS."""
        if what == "message":
            number, key, first_ns, seen, *rest = row
            message = self.messages[number] = Message(number, first_ns, _facts(rest))
            message.key = key
            message.successes, message.failures, message.deferrals, *rest = rest[len(OF_MESSAGE) :]
            message.bounce_qp, message.bounce_of, message.again_ns, message.fate = rest
            message.tried = None if not seen else seen[0] if len(seen) == 1 else Hashes(seen)
        elif what == "delivery":
            channel, recipient, _, number, key, is_open, delivery, at, *rest = row
            one = self.messages.get(number) if is_open else None
            if one is None:
                one = Message(number, 0, NO_FACTS)
                one.key = key
            self.deliveries[delivery] = (one, delivery, channel + b" " + recipient, at, _facts(rest))
        elif what == "status":
            at, a, b, c, d = row
            self.level = at, (a, b, c, d)
        elif what == "bounce":
            qp, key, number, at = row
            self.bounces[qp] = key, number, at
        elif what == "session":
            self.sessions[row[0]] = OpenSession.unpack(row[3])
        elif what == "run":
            domain, cause, _, *counts = row
            run = self.runs[domain.encode()] = OpenRun(None, None if cause is None else cause.encode())
            run.start_ns, run.successes, run.failures, run.deferrals = counts
        elif what == "stored":
            domain, long_id, recipient, _, sender, size, deferrals, at = row
            self.push((domain.encode(), long_id.encode(), recipient), OpenStored(at, sender, size, deferrals))

    def _set_mark(self, mark: Mapping[str, Any]) -> None:
        self.dying = bool(mark.get("dying"))
        self.unknown.update(mark.get("unknown", {}))
        self.stamps.latest = mark.get("latest")
        self.last_ns = mark.get("last_ns", mark.get("latest"))
        self.begun_ns, begun = mark.get("begun", (None, ()))
        self.begun = dict(begun)
        if mark.get("run"):
            stamps = self.stamps
            stamps.run_ns, stamps.run_fresh, stamps.last_print, prints = mark["run"]
            stamps.run_prints = dict(prints)
            # An earlier version goes on with "run" alone.
            at, digest = mark.get("last_line", (None, None))
            stamps.last_digest = digest if at == stamps.run_ns else None


def _facts(row: Sequence[Any]) -> Facts:
    qp, uid, sender, size, birth_ns, info_ns = row[:6]
    return qp, uid, sender, size, birth_ns, info_ns
