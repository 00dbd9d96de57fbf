"""What is open between two lines of a stream's log, and how the table `pending` holds it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from spark.match.hashes import hash_address
from spark.match.tables import LEVEL, add_address, add_facts, fill

# Of a message, what `info` tells and when: qp, uid, sender, bytes, birth_ns, info_ns. None: the log does not say.
Facts: TypeAlias = tuple[int | None, int | None, bytes | None, int | None, int | None, int | None]
NO_FACTS: Facts = (None, None, None, None, None, None)
# Deliveries in flight and limits: local_now, local_limit, remote_now, remote_limit.
Level: TypeAlias = tuple[int, int, int, int]


class Hashes:
    """Addresses as hash_address has them."""

    __slots__ = ("hashes",)

    def __init__(self, hashes: Iterable[int]) -> None:
        self.hashes = set(hashes)


class Message:
    """One life of a message number. There may be a million: no dict, and what is rare is None.

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
        """Return the hashes of the addresses that were tried."""
        tried = self.tried
        if tried is None:
            return []
        if isinstance(tried, int):
            return [tried]
        if isinstance(tried, bytes):
            return [hash_address(tried)]
        return sorted(tried.hashes if isinstance(tried, Hashes) else map(hash_address, tried))


# A delivery in flight: its message, number, address (`remote R`), start, and the message's facts at the start.
Delivery: TypeAlias = tuple[Message, int, bytes, int, Facts]
# A bounce whose own message has not been seen: key and number of what it reports, and when it was said.
Bounce: TypeAlias = tuple[str, int, int]


@dataclass
class Stamps:
    """The stamps of the lines that were read. latest: of all; None: no line was, or it is not known which.

    run_ns, run_fresh, last_print: the lines at the end that have one stamp: which, whether none before had it or a
    later one, and the print of the last. run_prints: of a run that is not fresh, how many lines each print had.
    """

    latest: int | None = None
    run_ns: int | None = None
    run_fresh: bool = True
    last_print: int | None = None
    run_prints: dict[int, int] = field(default_factory=dict)


class State:
    """What is open at one place of a stream's log.

    messages, deliveries: by number. bounces: by qp. level: since when, and which; None where nothing is known, as
    between two runs of queue-send. last_ns: stamp of the queue's last line. dying: this run has lost a daemon.
    """

    def __init__(self, host: str, queue: str) -> None:
        self.host, self.queue = host, queue
        self.messages: dict[int, Message] = {}
        self.deliveries: dict[int, Delivery] = {}
        self.bounces: dict[int, Bounce] = {}
        self.level: tuple[int, Level] | None = None
        self.last_ns: int | None = None
        self.dying = False
        self.stamps = Stamps()

    def pack(self) -> pa.Table:
        """Return the rows of the table `pending`."""
        messages = list(self.messages.values())
        columns: dict[str, Any] = {
            "id": [one.number for one in messages],
            "key": [one.key for one in messages],
            "first_ns": [one.first_ns for one in messages],
            "recipients": [one.recipients() for one in messages],
            "seen": [one.seen() for one in messages],
        }
        for name in ("successes", "failures", "deferrals", "bounce_qp", "bounce_of", "again_ns", "fate"):
            columns[name] = [getattr(one, name) for one in messages]
        add_facts(columns, [one.facts for one in messages])
        parts = [self._table("message", columns, len(messages))]
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
            parts.append(self._table("delivery", columns, len(flying)))
        if self.level is not None:
            at, level = self.level
            columns = {name: [value] for name, value in zip(LEVEL, level, strict=True)}
            parts.append(self._table("status", columns | {"first_ns": [at]}, 1))
        if self.bounces:
            keys, numbers, times = zip(*self.bounces.values(), strict=True)
            columns = {"bounce_qp": list(self.bounces), "key": keys, "id": numbers, "first_ns": times}
            parts.append(self._table("bounce", columns, len(keys)))
        return pa.concat_tables(parts)

    def _table(self, what: str, columns: Mapping[str, Any], size: int) -> pa.Table:
        constant = {"what": what, "host": self.host, "queue": self.queue}
        return pa.Table.from_batches([fill("pending", columns, constant, size)])

    def mark(self) -> dict[str, Any]:
        """Return what `pending` does not hold: the last stamps, and whether the run has lost a daemon; for JSON."""
        stamps = self.stamps
        prints = [list(pair) for pair in stamps.run_prints.items()]
        found = {"latest": stamps.latest, "run": [stamps.run_ns, stamps.run_fresh, stamps.last_print, prints]}
        return found | {"last": self.last_ns} | ({"dying": True} if self.dying else {})

    @classmethod
    def unpack(cls, host: str, queue: str, pending: pa.Table | None, mark: Mapping[str, Any] | None = None) -> "State":
        """Return the state of a stream. pending: rows of any streams. mark: what `mark` gave; of a lake made before
        the last stamp as `latest`, which may be missing."""
        if pending is not None:
            pending = pending.filter((pc.field("host") == host) & (pc.field("queue") == queue))
        return unpack_all(pending, {(host, queue): mark or {}})[host, queue]


def unpack_all(
    pending: pa.Table | None, marks: Mapping[tuple[str, str], Mapping[str, Any]]
) -> dict[tuple[str, str], State]:
    """Return the states of all streams that have rows of `pending` or a mark."""
    states: dict[tuple[str, str], State] = {}
    for place, mark in marks.items():
        state = states[place] = State(*place)
        state.dying = bool(mark.get("dying"))
        state.stamps.latest = mark.get("latest")
        state.last_ns = mark.get("last", mark.get("latest"))
        if mark.get("run"):
            stamps = state.stamps
            stamps.run_ns, stamps.run_fresh, stamps.last_print, prints = mark["run"]
            stamps.run_prints = dict(prints)
    if pending is None:
        return states
    # Messages before their deliveries.
    for wanted in (pc.field("what") != "delivery", pc.field("what") == "delivery"):
        for batch in pending.filter(wanted).to_batches(1 << 16):
            for row in batch.to_pylist():
                place = row["host"], row["queue"]
                if place not in states:
                    states[place] = State(*place)
                _UNPACK[row["what"]](states[place], row)
    return states


def _facts(row: Mapping[str, Any]) -> Facts:
    sender = None if row["sender"] is None else row["sender"].encode()
    return row["qp"], row["uid"], sender, row["bytes"], row["birth_ns"], row["info_ns"]


def _unpack_message(state: State, row: Mapping[str, Any]) -> None:
    message = state.messages[row["id"]] = Message(row["id"], row["first_ns"], _facts(row))
    message.key = row["key"]
    for name in ("successes", "failures", "deferrals", "bounce_qp", "bounce_of", "again_ns", "fate"):
        setattr(message, name, row[name])
    seen = row["seen"] or ()
    message.tried = None if not seen else seen[0] if len(seen) == 1 else Hashes(seen)


def _unpack_delivery(state: State, row: Mapping[str, Any]) -> None:
    message = state.messages.get(row["id"]) if row["open"] else None
    if message is None:
        message = Message(row["id"], 0, NO_FACTS)
        message.key = row["key"]
    address = f"{row['channel']} {row['recipient']}".encode()
    state.deliveries[row["delivery"]] = (message, row["delivery"], address, row["start_ns"], _facts(row))


def _unpack_status(state: State, row: Mapping[str, Any]) -> None:
    state.level = row["first_ns"], (row["local_now"], row["local_limit"], row["remote_now"], row["remote_limit"])


def _unpack_bounce(state: State, row: Mapping[str, Any]) -> None:
    state.bounces[row["bounce_qp"]] = (row["key"], row["id"], row["first_ns"])


_UNPACK = {
    "message": _unpack_message,
    "delivery": _unpack_delivery,
    "status": _unpack_status,
    "bounce": _unpack_bounce,
}
