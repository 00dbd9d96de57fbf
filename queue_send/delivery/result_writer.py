"""The last results: why recipients are still in the queue, for people, as last/B/I has it.

queue_wire.files.last_result has the format of a file.

A deferral costs the loop a record in memory. The disk thread packs those of a turn or more, and appends them to the
files of their messages, without a sync. Nothing depends on them: if the disk refuses, or has no room, or does not keep
pace, they are lost, mail goes on, and the log has one warning until one can be written again. Recipients that are
deferred without an attempt, because their nexthop is dead, have a record, too; there may be very many at once, and
they leave half the room to the others.

A message whose records are being written does not end before that, so that they never come after its removal.
"""

import os
import stat
from typing import NamedTuple

from queue_base.daemon.clock import Clock
from queue_base.daemon.disk_thread import DiskThread
from queue_base.durable import write_all
from queue_base.errors import reason
from queue_base.queue.layout import FILE_MODE, Layout, birth_by
from queue_send.events import Events, Happened
from queue_send.log import Log
from queue_send.messages.transitions import MessageEvent
from queue_wire.files.last_result import (
    FILE_MIN,
    HEADER_SIZE,
    pack_header,
    pack_result,
    size_limit,
    whole_records,
)

PENDING_MAX = 4_000_000  # Bytes of texts and of what else a record takes, of those that wait. More are lost.
RECORD_BYTES = 200
RECORDS_AT_ONCE = 500  # One piece of work of the disk thread ends with the message that has this one.
NO_TEXT = b"The report of the delivery made no sense."
_OPEN = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _Deferred(NamedTuple):
    """The deferrals of one report: the channel, the nexthop, the time on the disk's clock, and (offset, text) of each
    recipient. `size` is about that in memory."""

    channel: str
    nexthop: bytes
    when: int
    recipients: list[tuple[int, bytes]]
    size: int

    def pack(self) -> bytes:
        """Return the records."""
        return b"".join(
            [pack_result(self.channel, at, self.when, self.nexthop, text or NO_TEXT) for at, text in self.recipients]
        )


class ResultWriter:
    """The records that are to be written and are being written."""

    def __init__(self, layout: Layout, log: Log, clock: Clock, disk: DiskThread, events: Events) -> None:
        self._layout = layout
        self._log = log
        self._clock = clock
        self._disk = disk
        self._events = events
        self._pending: dict[int, list[_Deferred]] = {}
        self._size = 0  # Bytes that `_pending` takes, about.
        self._writing: dict[int, list[_Deferred]] = {}
        self._refused = False

    def keep(
        self,
        message: int,
        channel: str,
        nexthop: bytes,
        recipients: list[tuple[int, bytes]],
        now: float,
        tried: bool = True,
    ) -> None:
        """Add deferrals, as (offset, text) of each recipient; `write` has them written. tried: by a report."""
        if self._size < (PENDING_MAX if tried else PENDING_MAX // 2):
            size = sum([len(text) for _, text in recipients]) + RECORD_BYTES * len(recipients)
            when = self._clock.to_disk(int(now))
            self._pending.setdefault(message, []).append(_Deferred(channel, nexthop, when, recipients, size))
            self._size += size

    def write(self) -> None:
        """Have the disk thread write what was added, unless it is writing; then the rest follows."""
        if not self._pending or self._writing:
            return
        writing, count, taken = self._writing, 0, []
        for message, reports in self._pending.items():
            if count >= RECORDS_AT_ONCE:
                break
            taken.append(message)
            count += sum([len(report.recipients) for report in reports])
        # After the loop: the first key of a dict is found slowly if many before it were removed.
        for message in taken:
            writing[message] = self._take(message)
        failed: list[OSError] = []

        def work() -> None:
            for message, reports in writing.items():
                try:
                    append_results(self._layout, message, b"".join([report.pack() for report in reports]))
                except OSError as error:
                    failed.append(error)

        def written(trouble: OSError | None) -> None:
            self._report([*failed, trouble] if trouble is not None else failed)
            self._events.extend([Happened(MessageEvent.WRITTEN, message) for message in self._writing])
            self._writing = {}
            self.write()

        self._disk.submit(work, written, syncs=False)

    def _take(self, message: int) -> list[_Deferred]:
        reports = self._pending.pop(message)
        self._size -= sum([report.size for report in reports])
        return reports

    def _report(self, failed: list[OSError]) -> None:
        if failed and not self._refused:
            path = failed[0].filename or "last"
            self._log.warning(f"unable to write {path}: {reason(failed[0])}; why mail waits is not kept; mail goes on")
        self._refused = bool(failed)

    def release(self, message: int) -> bool:
        """Drop the records of a message that is to end; return False if some are being written: WRITTEN follows."""
        if message in self._pending:
            self._take(message)
        return message not in self._writing


def append_results(layout: Layout, message: int, data: bytes) -> None:
    """Append records to last/B/I, making it if need be. Raises OSError.

    The file of an earlier message with this number is replaced; of one that would become too long, the newer half
    stays. After an error it has no part of `data`.
    """
    path = layout.hashed("last", message)
    birth = _birth(layout, message)
    if birth is None:
        return
    header = pack_header(birth)
    handle = os.open(path, _OPEN, FILE_MODE)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "not a regular file", path)
        size = found.st_size
        if size and os.pread(handle, HEADER_SIZE, 0) != header:
            os.ftruncate(handle, 0)
            size = 0
        if not size:
            data = header + data
        elif size + len(data) > FILE_MIN:
            size = _shorten(handle, header, size, size_limit(_envelope(layout, message)) - len(data))
        _append(handle, data, size)
    except OSError as error:
        error.filename = error.filename or path
        raise
    finally:
        os.close(handle)


def _append(handle: int, data: bytes, size: int) -> None:
    """Append to a file of `size` bytes; if that fails, cut it to this size again."""
    try:
        write_all(handle, data)
    except OSError:
        os.ftruncate(handle, size)
        raise


def _shorten(handle: int, header: bytes, size: int, room: int) -> int:
    """If a file has more than `room` bytes, keep its newer half. Returns its size."""
    if size <= room:
        return size
    keep = max(0, room // 2)
    tail = whole_records(os.pread(handle, keep, size - keep))
    os.ftruncate(handle, 0)
    _append(handle, header + tail, 0)
    return len(header) + len(tail)


def _birth(layout: Layout, message: int) -> int | None:
    """Return the birth of a message in microseconds; None if it is gone. An announced message has no info/ yet."""
    for path in (layout.hashed("info", message), layout.mess(message)):
        try:
            return birth_by(os.stat(path))
        except FileNotFoundError:
            continue
    return None


def _envelope(layout: Layout, message: int) -> int:
    """Return the bytes of local/B/I and remote/B/I, or of todo/B/I."""
    size = 0
    for path in (layout.hashed("local", message), layout.hashed("remote", message), layout.todo(message)):
        try:
            size += os.stat(path).st_size
        except FileNotFoundError:
            continue
    return size
