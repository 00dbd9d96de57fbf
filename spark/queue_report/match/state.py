"""What is open between two lines of a stream's log, and how the table `pending` holds it."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_report.match.hashes import hash_address, hash_addresses
from queue_report.match.rows import add_address, add_facts, born_of, fill
from queue_report.schema.arrow import ARROW
from queue_report.schema.columns import LEVEL, OF_MESSAGE

# Of a message, what `info` tells and when: qp, uid, sender, bytes, birth_ns, info_ns. None: the log does not say.
Facts: TypeAlias = tuple[int | None, int | None, bytes | None, int | None, int | None, int | None]
NO_FACTS: Facts = (None, None, None, None, None, None)
# Deliveries in flight and limits: local_now, local_limit, remote_now, remote_limit.
Level: TypeAlias = tuple[int, int, int, int]

# Columns of a message's row that are attributes of Message.
_COPIED = ("successes", "failures", "deferrals", "bounce_qp", "bounce_of", "again_ns", "fate")
_SESSION_TEXTS = (
    "client", "name", "server", "tls_version", "tls_cipher", "tls_failure", "auth_user", "mechanism",
)  # fmt: skip
_SESSION_COUNTS = ("messages", "recipients", "bytes", "refused", "dropped", "discarded", "auth_failures")
_WORDS_MAX = 100  # Unknown first words that are counted each for itself.
_OTHERS = "(others)"
SLICE = 10_000  # Messages that are packed or unpacked at once.


class Hashes:
    """Addresses as hash_address has them."""

    __slots__ = ("hashes",)

    def __init__(self, hashes: Iterable[int]) -> None:
        self.hashes = set(hashes)


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

    def try_address(self, address: bytes) -> None:
        """Note that an address is tried."""
        tried = self.tried
        if tried is None:
            self.tried = address
        elif tried == address:
            pass
        elif isinstance(tried, bytes):
            self.tried = {tried, address}
        elif isinstance(tried, Hashes):
            tried.hashes.add(hash_address(address))
        elif isinstance(tried, set):
            tried.add(address)
        else:
            self.tried = Hashes({tried, hash_address(address)})

    def recipients(self) -> int:
        """Return how many different addresses were tried."""
        tried = self.tried
        if isinstance(tried, Hashes):
            return len(tried.hashes)
        return 0 if tried is None else len(tried) if isinstance(tried, set) else 1

    def seen(self) -> list[int]:
        """Return the hashes of the addresses that were tried, which are noted as hashes from now on."""
        tried = self.tried
        if tried is None:
            return []
        if isinstance(tried, set):
            tried = self.tried = Hashes(hash_addresses(list(tried)))
        if isinstance(tried, Hashes):
            return sorted(tried.hashes)
        if isinstance(tried, bytes):
            tried = self.tried = hash_address(tried)
        return [tried]


def _hash_tried(messages: Iterable[Message]) -> None:
    """Note single addresses as their hashes."""
    named = [(one, one.tried) for one in messages if isinstance(one.tried, bytes)]
    if named:
        for (one, _), hashed in zip(named, hash_addresses([address for _, address in named]), strict=True):
            one.tried = hashed


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
    with a word that no kind of line has, by that word.
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

    def push(self, key: StoredKey, one: OpenStored) -> None:
        """A recipient is stored."""
        one.below = self.stored.get(key)
        self.stored[key] = one

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
        others = self._pack_others()
        numbers = list(self.messages)
        for start in range(0, len(numbers), SLICE):
            yield self._pack_messages(list(map(message, numbers[start : start + SLICE])))
        yield from others

    def _pack_others(self) -> list[pa.RecordBatch]:
        """Return the rows of what is open beside messages."""
        parts = []
        if self.deliveries:
            flying = list(self.deliveries.values())
            columns = {
                "id": [one[0].number for one in flying],
                "key": [one[0].key for one in flying],
                "open": [self.messages.get(one[0].number) is one[0] for one in flying],
                "delivery": [one[1] for one in flying],
                "start_ns": [one[3] for one in flying],
            }
            add_address(columns, [one[2] for one in flying])
            add_facts(columns, [one[4] for one in flying])
            parts.append(self._batch("delivery", columns, len(flying)))
        if self.level is not None:
            at, level = self.level
            columns = {name: [value] for name, value in zip(LEVEL, level, strict=True)}
            parts.append(self._batch("status", columns | {"first_ns": [at]}, 1))
        if self.bounces:
            keys, numbers, times = zip(*self.bounces.values(), strict=True)
            columns = {"bounce_qp": list(self.bounces), "key": keys, "id": numbers, "first_ns": times}
            parts.append(self._batch("bounce", columns, len(keys)))
        if self.sessions:
            rows = [one.row for one in self.sessions.values()]
            columns = {"key": [row["key"] for row in rows], "id": [row["number"] for row in rows]}
            columns |= {"first_ns": [row["start_ns"] for row in rows]}
            columns |= {"session": [one.pack() for one in self.sessions.values()]}
            parts.append(self._batch("session", columns, len(rows)))
        if self.runs:
            running = list(self.runs.values())
            columns = {"domain": list(self.runs), "fate": [one.cause for one in running]}
            columns |= {"key": [""] * len(running)}
            for name in ("start_ns", "successes", "failures", "deferrals"):
                columns[name] = [getattr(one, name) for one in running]
            parts.append(self._batch("run", columns, len(running)))
        stored = list(self.stored)
        parts += [self._pack_stored(stored[start : start + SLICE]) for start in range(0, len(stored), SLICE)]
        return parts

    def _pack_stored(self, keys: list[StoredKey]) -> pa.RecordBatch:
        pairs = []
        for key in keys:
            one: OpenStored | None = self.stored[key]
            copies = []
            while one is not None:
                copies.append((key, one))
                one = one.below
            pairs += copies[::-1]
        columns: dict[str, Any] = {
            "domain": [key[0] for key, _ in pairs],
            "key": [key[1] for key, _ in pairs],
            "id": [born_of(key[1])[0] for key, _ in pairs],
            "recipient": [key[2] for key, _ in pairs],
            "sender": [one.sender for _, one in pairs],
            "bytes": [one.size for _, one in pairs],
            "deferrals": [one.deferrals for _, one in pairs],
            "first_ns": [one.start_ns for _, one in pairs],
        }
        return self._batch("stored", columns, len(pairs))

    def _pack_messages(self, messages: list[Message]) -> pa.RecordBatch:
        _hash_tried(messages)
        columns: dict[str, Any] = {
            "id": [one.number for one in messages],
            "key": [one.key for one in messages],
            "first_ns": [one.first_ns for one in messages],
            "recipients": [one.recipients() for one in messages],
            "seen": [one.seen() for one in messages],
        }
        for name in _COPIED:
            columns[name] = [getattr(one, name) for one in messages]
        add_facts(columns, [one.facts for one in messages])
        return self._batch("message", columns, len(messages))

    def _batch(self, what: str, columns: Mapping[str, Any], size: int) -> pa.RecordBatch:
        constant = {"what": what, "host": self.host, "queue": self.queue}
        return fill("pending", columns, constant, size)

    def mark(self) -> dict[str, Any]:
        """Return what `pending` does not hold, for JSON: the last stamps, whether the run has lost a daemon, and
        unknown words."""
        stamps = self.stamps
        return {
            "latest": stamps.latest,
            "run": [
                stamps.run_ns,
                stamps.run_fresh,
                stamps.last_print,
                [list(one) for one in stamps.run_prints.items()],
            ],
            "last_line": [stamps.run_ns, stamps.last_digest],
            "last_ns": self.last_ns,
            "begun": [self.begun_ns, [list(one) for one in self.begun.items()]],
            "dying": self.dying,
            "unknown": dict(sorted(self.unknown.items())),
        }

    @classmethod
    def unpack(
        cls,
        host: str,
        queue: str,
        pending: pa.Table | Iterable[pa.RecordBatch] | None,
        mark: Mapping[str, Any] | None = None,
    ) -> "State":
        """Return the state of a stream. pending: rows of any streams, those of `take_slices` one after the other. mark:
        what `mark` gave; of a lake made before the last stamp as `latest`, which may be missing."""
        state = cls(host, queue)
        state._set_mark(mark or {})
        batches = pending.to_batches(SLICE) if isinstance(pending, pa.Table) else pending or ()
        others: list[pa.RecordBatch] = []
        for batch in batches:
            own = pc.and_(pc.equal(batch.column("host"), host), pc.equal(batch.column("queue"), queue))
            is_message = pc.equal(batch.column("what"), "message")
            _unpack_messages(state, batch.filter(pc.and_(own, is_message)))
            rest = batch.filter(pc.and_not(own, is_message))
            if rest.num_rows:
                others.append(rest)
        # Deliveries come after their messages.
        for batch in others:
            for what, unpack in _UNPACK.items():
                unpack(state, batch.filter(pc.equal(batch.column("what"), what)))
        return state

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


def _rows(batch: pa.RecordBatch, *names: str) -> Iterator[tuple[Any, ...]]:
    """Yield these columns of each row; texts as UTF-8, but for keys."""
    columns = []
    for name in names:
        column = batch.column(name)
        is_text = name in ("sender", "channel", "recipient")
        columns.append((column.cast(pa.binary()) if is_text else column).to_pylist())
    return zip(*columns, strict=True)


def _unpack_messages(state: State, batch: pa.RecordBatch) -> None:
    seen = batch.column("seen")
    hashes, ends = (
        seen.flatten().to_pylist(),
        np.cumsum(pc.fill_null(pc.list_value_length(seen), 0).to_numpy()).tolist(),
    )
    begin = 0
    for end, (number, first_ns, key, *rest) in zip(
        ends, _rows(batch, "id", "first_ns", "key", *OF_MESSAGE, *_COPIED), strict=True
    ):
        qp, uid, sender, size, birth_ns, info_ns, *copied = rest
        message = Message(number, first_ns, (qp, uid, sender, size, birth_ns, info_ns))
        message.key = key
        for name, value in zip(_COPIED, copied, strict=True):
            setattr(message, name, value)
        if end - begin == 1:
            message.tried = hashes[begin]
        elif end > begin:
            message.tried = Hashes(hashes[begin:end])
        begin = end
        state.messages[number] = message


def _unpack_deliveries(state: State, batch: pa.RecordBatch) -> None:
    names = ("id", "key", "open", "delivery", "channel", "recipient", "start_ns", *OF_MESSAGE)
    for number, key, is_open, delivery, channel, recipient, start_ns, *facts in _rows(batch, *names):
        message = state.messages.get(number) if is_open else None
        if message is None:
            message = Message(number, 0, NO_FACTS)
            message.key = key
        qp, uid, sender, size, birth_ns, info_ns = facts
        known = (qp, uid, sender, size, birth_ns, info_ns)
        state.deliveries[delivery] = (message, delivery, channel + b" " + recipient, start_ns, known)


def _unpack_statuses(state: State, batch: pa.RecordBatch) -> None:
    for first_ns, *level in _rows(batch, "first_ns", *LEVEL):
        local, local_limit, remote, remote_limit = level
        state.level = (first_ns, (local, local_limit, remote, remote_limit))


def _unpack_bounces(state: State, batch: pa.RecordBatch) -> None:
    for qp, *bounce in _rows(batch, "bounce_qp", "key", "id", "first_ns"):
        key, number, first_ns = bounce
        state.bounces[qp] = (key, number, first_ns)


def _unpack_sessions(state: State, batch: pa.RecordBatch) -> None:
    for number, session in _rows(batch, "id", "session"):
        state.sessions[number] = OpenSession.unpack(session)


def _unpack_stored(state: State, batch: pa.RecordBatch) -> None:
    names = ("domain", "key", "recipient", "sender", "bytes", "deferrals", "first_ns")
    for domain, long_id, recipient, sender, size, deferrals, first_ns in _rows(batch, *names):
        key = domain.encode(), long_id.encode(), recipient
        state.push(key, OpenStored(first_ns, sender, size, deferrals))


def _unpack_runs(state: State, batch: pa.RecordBatch) -> None:
    names = ("domain", "fate", "start_ns", "successes", "failures", "deferrals")
    for domain, cause, start_ns, successes, failures, deferrals in _rows(batch, *names):
        run = state.runs[domain.encode()] = OpenRun(start_ns, None if cause is None else cause.encode())
        run.successes, run.failures, run.deferrals = successes, failures, deferrals


_UNPACK: dict[str, Callable[[State, pa.RecordBatch], None]] = {
    "delivery": _unpack_deliveries,
    "status": _unpack_statuses,
    "bounce": _unpack_bounces,
    "session": _unpack_sessions,
    "stored": _unpack_stored,
    "run": _unpack_runs,
}
