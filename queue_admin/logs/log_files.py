"""The log as files of multilog, svlogd or s6-log, plain or compressed, and as the journal of systemd.

Of a directory only the files are read that can hold lines from a time on: a rotated file is named by the time of its
last line, of another one the mtime says that. `current` is opened first, so that nothing is missed or comes twice if
the logger rotates it meanwhile. Links and what is no file are passed by: the logger's account may write there.
"""

import bz2
import contextlib
import gzip
import json
import lzma
import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import BinaryIO, NamedTuple, cast

from queue_admin.messages.survey import open_regular
from queue_base.errors import Permanent, Temporary, reason
from queue_wire.files.stamp import pack_stamp, unpack_stamp

CURRENT = "current"
LINE_MAX = 1 << 16  # Bytes of a line that are looked at; ours have 1,000.
_ROTATED = re.compile(r"@([0-9a-f]{24})\.[su](\.(?:gz|xz|bz2|zst|zstd))?")
# What loggers keep beside the log.
_OTHERS = ("lock", "state", "newstate", "config", "processed", "status")
_BISECTED = 1 << 20  # Bytes from which on the first line is searched by bisection.

Line = tuple[int, bytes]  # The time in nanoseconds since the epoch, and the text.
Concerns = Callable[[bytes], bool]


class LogFile(NamedTuple):
    """A file of a log: the one that the logger writes has the name CURRENT, a log that is one file has no name."""

    end: bytes  # The stamp of its last line, or what sorts as one.
    name: str
    inode: int
    handle: int | None  # For a file that is open.


class LogDirectory:
    """A logger's directory, or one file. `name` is its path."""

    def __init__(self, path: str) -> None:
        self.name = path

    def begin(self) -> int | None:
        """Return the time of the oldest line, in nanoseconds; None if no line has a time."""
        files = self.files(0)
        try:
            for file in files:
                with contextlib.suppress(OSError), self.open(file) as source:
                    found = next(stamped_lines(source, lambda line: True), None)
                    if found is not None:
                        return found[0]
        finally:
            close_files(files)
        return None

    def lines(self, since: int, concerns: Concerns) -> Iterator[Line]:
        """Yield the lines from a time (nanoseconds) on for which `concerns` is true, in order.

        Raises Temporary, Permanent.
        """
        files = self.files(since)
        try:
            for file in files:
                with self.open(file, since) as source:
                    yield from (line for line in stamped_lines(source, concerns) if line[0] >= since)
        except OSError as error:
            raise Temporary(f"unable to read {error.filename or self.name}: {reason(error)}") from error
        finally:
            close_files(files)

    def files(self, since: int) -> list[LogFile]:
        """Return the files that can hold lines from a time on, in the order of their lines. Close them afterwards.

        Raises Temporary.
        """
        if not os.path.isdir(self.name):
            return [LogFile(b"", "", 0, None)]
        try:
            current: int | None = open_regular(f"{self.name}/{CURRENT}")
        except FileNotFoundError:
            current = None
        except OSError as error:
            raise Temporary(f"unable to read {self.name}/{CURRENT}: {reason(error)}") from error
        same = None if current is None else os.fstat(current)
        found, first = [], pack_stamp(since)
        filled = False  # Whether `current` has got the name of a filled file since it was opened.
        try:
            with os.scandir(self.name) as entries:
                for entry in entries:
                    if entry.name == CURRENT or entry.name in _OTHERS or entry.name.startswith("."):
                        continue
                    try:
                        about = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # The logger has just removed it: it was the oldest.
                    rotated = _ROTATED.fullmatch(entry.name)
                    end = b"@" + rotated[1].encode() if rotated else pack_stamp(about.st_mtime_ns)
                    if same is not None and os.path.samestat(same, about):
                        filled = True
                        found.append(LogFile(end, entry.name, about.st_ino, current))
                    elif entry.is_file(follow_symlinks=False) and end >= first:
                        found.append(LogFile(end, entry.name, about.st_ino, None))
        except OSError as error:
            raise Temporary(f"unable to read {self.name}: {reason(error)}") from error
        found.sort()
        return found if same is None or filled else [*found, LogFile(b"~", CURRENT, same.st_ino, current)]

    @contextlib.contextmanager
    def open(self, file: LogFile, since: int = 0) -> Iterator[BinaryIO]:
        """Open a file for reading its content, near the first line from a time on. Raises OSError."""
        path = f"{self.name}/{file.name}" if file.name else self.name
        try:
            handle = open_regular(path) if file.handle is None else os.dup(file.handle)
        except FileNotFoundError:
            # The logger has removed or renamed it: most likely it was the oldest.
            handle = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), path) from error
        with os.fdopen(handle, "rb") as raw:
            head = os.pread(handle, 6, 0)
            with _unpacked(raw, head, path) as content:
                if content is raw:
                    raw.seek(begin_near(handle, since))
                yield content


def close_files(files: list[LogFile]) -> None:
    """Close those that are open."""
    for file in files:
        if file.handle is not None:
            os.close(file.handle)


@contextlib.contextmanager
def _unpacked(raw: BinaryIO, head: bytes, path: str) -> Iterator[BinaryIO]:
    try:
        if head.startswith(b"\x1f\x8b"):
            with gzip.GzipFile(fileobj=raw) as content:
                yield cast(BinaryIO, content)
        elif head.startswith(b"\xfd7zXZ\0"):
            with lzma.LZMAFile(raw) as content:
                yield cast(BinaryIO, content)
        elif head.startswith(b"BZh"):
            with bz2.BZ2File(raw) as content:
                yield cast(BinaryIO, content)
        elif head.startswith(b"\x28\xb5\x2f\xfd"):
            with _unzstd(raw, path) as unpacked:
                yield unpacked
        else:
            yield raw
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise Temporary(f"unable to read {path}: its compressed content is damaged: {error}") from error


@contextlib.contextmanager
def _unzstd(raw: BinaryIO, path: str) -> Iterator[BinaryIO]:
    program = shutil.which("zstd")
    if program is None:
        raise Permanent(f"unable to read {path}: it is compressed, and there is no program zstd")
    with subprocess.Popen([program, "-dcq"], stdin=raw, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        try:
            yield cast(BinaryIO, child.stdout)
        finally:
            child.kill()


def stamped_lines(source: BinaryIO, concerns: Concerns) -> Iterator[Line]:
    """Yield the lines that have a time stamp and for which `concerns` is true. Raises OSError."""
    while line := source.readline(LINE_MAX):
        if concerns(line):
            found = unpack_stamp(line.rstrip(b"\n"))
            if found is not None:
                yield found


def begin_near(handle: int, since: int) -> int:
    """Return an offset at the begin of a line, before the first line from a time on, of a file with TAI64N stamps."""
    low, high = 0, os.fstat(handle).st_size
    first = pack_stamp(since)
    while high - low > _BISECTED:
        middle = (low + high) // 2
        data = os.pread(handle, 2 * LINE_MAX, middle)
        newline = data.find(b"\n")
        stamp = data[newline + 1 : newline + 26]
        if newline < 0 or stamp[:1] != b"@" or len(stamp) < 25:
            return low
        if stamp < first:
            low = middle + newline + 1
        else:
            high = middle
    return low


class SystemdJournal:
    """The journal of systemd, of one unit, which is its `name`."""

    def __init__(self, unit: str) -> None:
        self.name = unit

    def begin(self) -> int | None:
        """Return the time of the oldest line, in nanoseconds; None if there is none."""
        with contextlib.closing(self._read("-n", "+1")) as found:
            return next((when for when, _ in found), None)

    def lines(self, since: int, concerns: Concerns) -> Iterator[Line]:
        """Yield the lines as LogDirectory.lines does."""
        for when, text in self._read(since_option(since)):
            if when >= since and concerns(b" " + text):
                yield when, text

    def start_journalctl(self, *options: str) -> subprocess.Popen[bytes]:
        """Start journalctl, which prints the entries as JSON to a pipe. Raises Permanent."""
        words = ["journalctl", "-q", "--no-pager", "-o", "json", "--output-fields=MESSAGE", f"--unit={self.name}"]
        try:
            return subprocess.Popen([*words, *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        except OSError as error:
            raise Permanent(f"unable to run journalctl: {reason(error)}") from error

    def _read(self, *options: str) -> Generator[Line, None, None]:
        with self.start_journalctl(*options) as child:
            assert child.stdout is not None
            try:
                for line in child.stdout:
                    found = unpack_entry(line)
                    if found is not None:
                        yield found
            except GeneratorExit:
                child.kill()
                raise
        if child.returncode:
            raise Temporary(f"unable to read the journal: journalctl ended with {child.returncode}")


LogSource = LogDirectory | SystemdJournal


def since_option(since: int) -> str:
    """Return journalctl's option for lines from a time on, in nanoseconds since the epoch."""
    seconds, rest = divmod(since // 1000, 1_000_000)
    return f"--since=@{seconds}.{rest:06d}"


def unpack_entry(line: bytes) -> Line | None:
    """Return the time and the text of an entry of the journal, as journalctl -o json prints it; None for none."""
    try:
        entry = json.loads(line)
        text = entry["MESSAGE"]
        # A text that is no UTF-8 is a list of its bytes.
        data = bytes(text) if isinstance(text, list) else str(text).encode("utf-8", "surrogateescape")
        return int(entry["__REALTIME_TIMESTAMP"]) * 1000, data
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
