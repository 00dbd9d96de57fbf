"""The pipes between queue-todo and its workers (todo_workers.py, todo_worker.py). Pure.

To a worker, netstrings:

    N<class> <scanned>\\0<id> <id> ...   messages to classify, in order; class: empty for the first one; scanned: 1 if a
                                        scan has found them
    U<envnoathost>\\0<locals>\\0<percenthack>\\0<virtualdomains>   the rules; lists are lines, entries KEY:VALUE
    O<class> <class> ...                the lower classes, the highest first
    a command of queue-send             one byte, or a record with its NUL (queue_wire.pipes.notice)

From a worker, the notices of queue_wire.pipes.notice, and records that end with a NUL:

    T<first> <lower>   how many of the messages that it got it has begun, of the first class and of the others
    Q<id>              the message is parked
    E<text>            an alert about a file that all workers read

Both sides are the same program, so what cannot be read is a bug: FormatError.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from queue_wire.control.rewrite import Rules
from queue_wire.format_error import FormatError, quoted
from queue_wire.ids import unpack_id
from queue_wire.pipes.framing import PREFIX_MAX, pack_netstring
from queue_wire.pipes.notice import NOTICE_MAX, Ask, ClassifyRequest, CommandReader, Gone, Resubmission

_TAKEN = re.compile(rb"T(-?[0-9]{1,20}) (-?[0-9]{1,20})")
_DIGITS = frozenset(b"0123456789")
# Bytes of a record to a worker: of virtualdomains with very many lines. The rules alone can be that long.
INSTRUCTION_MAX = 1 << 28
# The first bytes of records that are not passed on as they are.
_OURS = frozenset(b"WPTQE")
_CLASSIFIED = ord("D")


class Named(NamedTuple):
    """Messages of one class that a worker is to classify."""

    priority: str
    scanned: bool
    messages: list[int]


class ClassOrder(NamedTuple):
    """The lower classes, the highest first."""

    names: tuple[str, ...]


class Taken(NamedTuple):
    """How many of the messages that a worker got it has begun: of the first class, and of the others.

    Messages that it takes again, such as deferred ones, count as messages that it got and has not begun.
    """

    first: int
    lower: int


class Parked(NamedTuple):
    """A worker has parked a message, because it cannot be read."""

    message: int


class SharedAlert(NamedTuple):
    """A worker cannot read a file that all workers read. The others say the same."""

    text: str


def share_of(message: int, split: int, count: int) -> int:
    """Return which of `count` workers, from 0, has a message: all of a bucket belong to one."""
    return message % split % count


def pack_named(priority: str, scanned: bool, messages: Iterable[int]) -> bytes:
    """Return the N record."""
    ids = b" ".join([b"%d" % message for message in messages])
    return pack_netstring(b"N%s %d\0%s" % (priority.encode("ascii"), scanned, ids))


def pack_rules(rules: Rules) -> bytes:
    """Return the U record."""
    entries = [key + b":" + value for key, value in rules.virtualdomains.items()]
    lists = [b"\n".join(each) for each in (sorted(rules.locals), sorted(rules.percenthack), entries)]
    return pack_netstring(b"U" + b"\0".join([rules.envnoathost, *lists]))


def size_of_rules(rules: Rules) -> int:
    """Return how many bytes the U record has at most, without its frame."""
    entries = [rules.locals, rules.percenthack, rules.virtualdomains, rules.virtualdomains.values()]
    return len(rules.envnoathost) + 5 + sum(len(entry) + 1 for each in entries for entry in each)


def pack_order(names: Sequence[str]) -> bytes:
    """Return the O record."""
    return pack_netstring(b"O" + " ".join(names).encode("ascii"))


def pack_taken(taken: Taken) -> bytes:
    """Return the T record, with its NUL."""
    return b"T%d %d\0" % taken


def pack_parked(message: int) -> bytes:
    """Return the Q record, with its NUL."""
    return b"Q%d\0" % message


def pack_shared_alert(alert: SharedAlert) -> bytes:
    """Return the E record, with its NUL."""
    return b"E%s\0" % alert.text.encode("utf-8", "backslashreplace").replace(b"\0", b"_")


Instruction = Named | Rules | ClassOrder | bytes | ClassifyRequest | Gone | Resubmission


def unpack_instruction(record: bytes) -> Instruction:
    """Return what a netstring to a worker holds; bytes are a command of one byte. Raises FormatError."""
    kind = record[:1]
    if kind == b"N":
        head, _, ids = record[1:].partition(b"\0")
        priority, space, scanned = head.rpartition(b" ")
        if not space or scanned not in (b"0", b"1"):
            raise FormatError(f"instruction: not a class and 0 or 1: {quoted(record)}")
        return Named(priority.decode("ascii"), scanned == b"1", [unpack_id(each) for each in ids.split()])
    if kind == b"U":
        fields = record[1:].split(b"\0")
        if len(fields) != 4:
            raise FormatError(f"instruction: rules of {len(fields)} fields, not 4")
        local, percenthack, virtualdomains = [_split_lines(field) for field in fields[1:]]
        pairs = [line.partition(b":") for line in virtualdomains]
        return Rules(fields[0], frozenset(local), frozenset(percenthack), {key: value for key, _, value in pairs})
    if kind == b"O":
        return ClassOrder(tuple(record[1:].decode("ascii").split()))
    commands = CommandReader().feed(record)
    if len(commands) != 1:
        raise FormatError(f"instruction: not one command: {quoted(record)}")
    return commands[0]


def _split_lines(field: bytes) -> list[bytes]:
    """Return the entries of a list; none of them is empty."""
    return field.split(b"\n") if field else []


WorkerRecord = Ask | Taken | Parked | SharedAlert


class WorkerReader:
    """Reads what a worker says, and divides it into what is passed on and what is not.

    worked: a notice of a classified or an announced message was passed on. The caller sets it to False.
    """

    def __init__(self) -> None:
        self._rest = b""
        self.worked = False

    def feed(self, data: bytes) -> list[bytes | WorkerRecord]:
        """Return what `data` completes, in order; bytes are one or more whole records. Raises FormatError."""
        data = self._rest + data
        found: list[bytes | WorkerRecord] = []
        begin = start = 0
        size = len(data)
        while start < size:
            kind = data[start]
            if kind in _DIGITS:
                end = _netstring_end(data, start)
                if end < 0:
                    break
                self.worked = True
            else:
                nul = data.find(b"\0", start)
                if (nul if nul >= 0 else size) - start > NOTICE_MAX:
                    raise FormatError(f"worker: record over {NOTICE_MAX} bytes")
                if nul < 0:
                    break
                end = nul + 1
                if kind in _OURS:
                    if begin < start:
                        found.append(data[begin:start])
                    found.append(_unpack_ours(data[start:nul]))
                    begin = end
                elif kind == _CLASSIFIED:
                    self.worked = True
            start = end
        if begin < start:
            found.append(data[begin:start])
        self._rest = data[start:]
        return found


def _netstring_end(data: bytes, start: int) -> int:
    """Return where the netstring ends that begins at `start`, -1 if it is not complete. Raises FormatError."""
    colon = data.find(b":", start, start + PREFIX_MAX + 1)
    if colon < 0:
        if len(data) - start > PREFIX_MAX:
            raise FormatError(f"worker: no length: {quoted(data[start : start + 20])}")
        return -1
    prefix = data[start:colon]
    if not prefix.isdigit() or int(prefix) > NOTICE_MAX:
        raise FormatError(f"worker: no length up to {NOTICE_MAX}: {quoted(prefix)}")
    end = colon + 2 + int(prefix)
    if end > len(data):
        return -1
    if data[end - 1] != 0x2C:
        raise FormatError("worker: no comma at the end of a netstring")
    return end


def _unpack_ours(record: bytes) -> WorkerRecord:
    if record[:1] == b"T":
        match = _TAKEN.fullmatch(record)
        if match is None:
            raise FormatError(f"worker: not two counts: {quoted(record)}")
        return Taken(int(match[1]), int(match[2]))
    if record[:1] == b"Q":
        return Parked(unpack_id(record[1:]))
    if record[:1] == b"E":
        return SharedAlert(record[1:].decode("utf-8", "backslashreplace"))
    if len(record) != 1:
        raise FormatError(f"worker: unknown record: {quoted(record)}")
    return Ask(record.decode("ascii"))
