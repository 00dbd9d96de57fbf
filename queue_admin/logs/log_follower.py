"""The lines of a log, those that are there and then each new one as it comes (`queuectl log --follow`).

A logger's directory, or that of a log that is one file, is watched with inotify, and nothing is done until its present
file changes. When the logger has filled its file, the rest of it is read, then the files that it has filled since, then
its new one: no line is missed and none comes twice, however often it turned. If inotify cannot be had, the file is
looked at each second. The journal is followed by journalctl.

A file without time stamps, such as the stdout of queue-start, gives only the lines that come from now on.
"""

import contextlib
import os
import select
import time
from collections.abc import Iterator
from typing import Protocol

import pyinotify

from queue_admin.logs.log_files import (
    CURRENT,
    LINE_MAX,
    Concerns,
    Line,
    LogDirectory,
    LogSource,
    SystemdJournal,
    begin_near,
    close_files,
    since_option,
    stamped_lines,
    unpack_entry,
)
from queue_admin.messages.survey import open_regular
from queue_base.daemon.watch import APPEARED, Watch
from queue_base.errors import Temporary, reason
from queue_wire.files.stamp import unpack_stamp

CHANGED = APPEARED | pyinotify.IN_MODIFY
LOOK_EVERY = 1.0  # Seconds between two looks where inotify cannot be had.
_PIECE = 1 << 16  # Bytes.
_STDOUT = 1


class LogFollower(Protocol):
    """A log that is being followed."""

    def lines(self, concerns: Concerns) -> Iterator[Line]:
        """Yield the lines for which `concerns` is true that are there and have not been passed. Raises Temporary."""

    def wait(self, seconds: float) -> None:
        """Wait until there may be new lines, for so many seconds at most.

        Raises BrokenPipeError as soon as nobody can read standard output any more.
        """

    def close(self) -> None:
        """End it."""


def follow(source: LogSource, since: int) -> LogFollower:
    """Begin to follow a log, from a time on, in nanoseconds since the epoch. Raises Permanent."""
    return JournalFollower(source, since) if isinstance(source, SystemdJournal) else DirectoryFollower(source, since)


class _Parts:
    """Divides what is read of a file or a pipe into lines. One that is too long comes in parts."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> list[bytes]:
        """Return the lines that are whole now, without their newlines."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_MAX:
            lines.append(self._rest)
            self._rest = b""
        return lines

    def clear(self) -> None:
        """Forget the begin of a line."""
        self._rest = b""


class DirectoryFollower:
    """Follows a logger's directory, or one file."""

    def __init__(self, log: LogDirectory, since: int) -> None:
        self._log = log
        self._since = since
        self._last = since  # The time of the newest line.
        self._present = f"{log.name}/{CURRENT}" if os.path.isdir(log.name) else log.name
        top, self._name = os.path.split(self._present)
        self._watch = Watch([top or "."], CHANGED)  # From before the first look on.
        self._handle: int | None = None  # Of the file that is being read.
        self._parts = _Parts()
        self._begun = self._caught_up = False

    def lines(self, concerns: Concerns) -> Iterator[Line]:
        try:
            # Until the file that has been read to its end is still the present one.
            while self._turned():
                if self._handle is not None:
                    yield from self._new(concerns)
                yield from self._filled(concerns)
            yield from self._new(concerns)
        except OSError as error:
            raise Temporary(f"unable to read {error.filename or self._log.name}: {reason(error)}") from error
        self._caught_up = True

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        watched = self._watch.descriptor
        while (left := end - time.monotonic()) > 0:
            ready = wait_for(watched, left if watched is not None else min(left, LOOK_EVERY))
            if watched is None:
                return
            # Other files of the directory do not matter: a present file that is new has the name of the old one.
            if ready and (self._name in self._watch.take() or self._watch.lost):
                self._watch.lost = False
                return

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _turned(self) -> bool:
        """Return whether the present file is another one than that which is being read."""
        try:
            there = os.lstat(self._present)
        except FileNotFoundError:
            return not self._begun  # Later: the logger is about to make a new one.
        return self._handle is None or not os.path.samestat(there, os.fstat(self._handle))

    def _filled(self, concerns: Concerns) -> Iterator[Line]:
        """Open the present file; yield the lines of the files that the logger has filled before it."""
        first, self._begun = not self._begun, True
        files = self._log.files(self._last)
        try:
            present = files[-1] if files and files[-1].name in ("", CURRENT) else None
            if present is None and not first:
                return  # It has turned once more, just now.
            read = None if self._handle is None else os.fstat(self._handle).st_ino
            places = [place for place, file in enumerate(files) if file.inode == read]
            # A file that is gone, or that a processor of the logger has replaced, is known by its last line.
            after = self._since if first or places else self._last + 1
            for file in files[places[0] + 1 if places else 0 :]:
                if file is not present:
                    with self._log.open(file, self._last) as source:
                        yield from self._chosen(stamped_lines(source, concerns), after)
            if present is not None:
                handle = open_regular(self._present) if present.handle is None else os.dup(present.handle)
                self.close()
                self._handle = handle
                os.lseek(handle, begin_near(handle, self._since) if first else 0, os.SEEK_SET)
                self._parts.clear()
        except FileNotFoundError:
            return  # Likewise.
        finally:
            close_files(files)

    def _new(self, concerns: Concerns) -> Iterator[Line]:
        """Yield the lines of the open file from where it was read to."""
        handle = self._handle
        while handle is not None:
            data = os.read(handle, _PIECE)
            if not data:
                if os.fstat(handle).st_size >= os.lseek(handle, 0, os.SEEK_CUR):
                    return
                os.lseek(handle, 0, os.SEEK_SET)  # It was emptied.
                self._parts.clear()
            yield from self._chosen(self._stamped(self._parts.take(data), concerns), self._since)

    def _stamped(self, lines: list[bytes], concerns: Concerns) -> Iterator[Line]:
        for line in lines:
            if not concerns(line):
                continue
            found = unpack_stamp(line)
            if found is not None:
                yield found
            elif self._caught_up and line:
                yield time.time_ns(), line

    def _chosen(self, lines: Iterator[Line], after: int) -> Iterator[Line]:
        for when, text in lines:
            self._last = max(self._last, when)
            if when >= after:
                yield when, text


class JournalFollower:
    """Follows the journal of a unit."""

    def __init__(self, journal: SystemdJournal, since: int) -> None:
        self._since = since
        self._child = journal.start_journalctl("--follow", "--no-tail", since_option(since))
        assert self._child.stdout is not None
        self._pipe = self._child.stdout.fileno()
        os.set_blocking(self._pipe, False)
        self._parts = _Parts()

    def lines(self, concerns: Concerns) -> Iterator[Line]:
        while True:
            try:
                data = os.read(self._pipe, _PIECE)
            except BlockingIOError:
                return
            if not data:
                raise Temporary(f"unable to follow the journal: journalctl ended with {self._child.wait()}")
            for line in self._parts.take(data):
                found = unpack_entry(line)
                if found is not None and found[0] >= self._since and concerns(b" " + found[1]):
                    yield found

    def wait(self, seconds: float) -> None:
        wait_for(self._pipe, seconds)

    def close(self) -> None:
        self._child.kill()
        with contextlib.suppress(OSError):
            self._child.communicate()


def wait_for(descriptor: int | None, seconds: float) -> bool:
    """Wait until a descriptor can be read, for so many seconds at most; return whether it can.

    Raises BrokenPipeError as soon as nobody can read standard output any more, as after `| head -1`.
    """
    poll = select.poll()
    if descriptor is not None:
        poll.register(descriptor, select.POLLIN)
    poll.register(_STDOUT, 0)
    ready = dict(poll.poll(seconds * 1000))
    if ready.get(_STDOUT, 0) & (select.POLLERR | select.POLLHUP):
        raise BrokenPipeError
    return descriptor in ready
