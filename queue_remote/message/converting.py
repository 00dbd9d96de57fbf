"""Other forms of messages (queue_remote.message.downgrade), each made once for all deliveries that need it.

    message, size = await conversions.convert(message, seven_bit, short_lines)

Another process makes them (converter.py), with a limit on its time; one for small messages and one for large
ones, one message at a time each. A form is a file without a name, shared by all deliveries of that message, and gone
with the last of them; all forms together take COPIES_MOST bytes at most. What is over a limit is temporary. A message
that takes too long is tried once more, later, and then it is said that it cannot be converted.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

from queue_remote.message.converter import most_written
from queue_remote.message.file import Message
from queue_wire.format_error import FormatError

SIZE_MOST = 32 * 1024 * 1024
COPIES_MOST = 256 * 1024 * 1024
# Up to this size a message does not wait for larger ones.
SMALL = 1024 * 1024
# For one conversion. The worst of 32 MB takes 6 s where this was written, and 150 MB; the rest is for machines that are
# slower, and for very many fields or parts.
CPU_SECONDS = 30
MEMORY_MOST = 768 * 1024 * 1024
# By the clock on the wall, for disks and machines that stand still.
SECONDS_MOST = 600.0
# What failed is not tried again so soon: the jobs to a message's other destinations come in this time.
FAILED_SECONDS = 300.0
FAILED_MOST = 1000
# A message that has been here for so long was tried before, if not by this process.
OLD_SECONDS = 86400.0

_NUMBERS = itertools.count()
_Name = tuple[tuple[int, ...], bool, bool]


class Later(Exception):
    """A message cannot be converted now; the text says why."""


class _Excess(Exception):
    """A conversion exceeded its limits."""


class _Copy:
    """One form, from the time when it is wanted on. Its file is there once `made` is done."""

    __slots__ = ("descriptor", "made", "reserved", "users", "wire_size")

    def __init__(self) -> None:
        self.descriptor = -1
        # Bytes that count towards COPIES_MOST.
        self.reserved = 0
        self.users = 0
        self.wire_size = 0
        self.made: asyncio.Task[None] | None = None


class Conversions:
    """The forms that are in use; they outlive the control files that were read."""

    def __init__(self) -> None:
        self.bytes = 0
        self._copies: dict[_Name, _Copy] = {}
        self._processes = _Process(), _Process()
        # What failed, and until when that is not tried again.
        self._failed: dict[_Name, tuple[Exception, float]] = {}
        # What exceeded its limits once.
        self._excessive: dict[_Name, None] = {}

    async def convert(self, message: Message, seven_bit: bool, short_lines: bool) -> tuple[Message, int]:
        """Return a message, to be closed by the caller, and its size on the wire.

        Raises FormatError, saying why it cannot be, Later, and OSError.
        """
        if message.size > SIZE_MOST:
            raise FormatError(f"it has {message.size} bytes, and only {SIZE_MOST} are worked on")
        name = message.identity(), seven_bit, short_lines
        copy = self._copies.get(name)
        if copy is None:
            failure, until = self._failed.get(name, (None, 0.0))
            if failure is not None and time.monotonic() < until:
                raise type(failure)(*failure.args)
            copy = self._copies[name] = _Copy()
            # It may go on when nobody waits for it any more, and the message is closed.
            source = os.dup(message.fileno())
            copy.made = asyncio.get_running_loop().create_task(self._make(name, copy, source, message.size))
            copy.made.add_done_callback(_look)
        assert copy.made is not None
        copy.users += 1
        try:
            await asyncio.shield(copy.made)
            return Message(copy.descriptor, lambda _: self._leave(name, copy)), copy.wire_size
        except BaseException:
            self._leave(name, copy)
            raise

    def kill(self) -> None:
        """Nobody waits for a message any more: end the processes."""
        for process in self._processes:
            process.kill()

    def _leave(self, name: _Name, copy: _Copy) -> None:
        """A delivery is done with a form."""
        copy.users -= 1
        if not copy.users and copy.made is not None and copy.made.done():
            self._drop(name, copy)

    def _drop(self, name: _Name, copy: _Copy) -> None:
        if self._copies.get(name) is copy:
            del self._copies[name]
        self.bytes -= copy.reserved
        copy.reserved = 0
        if copy.descriptor >= 0:
            os.close(copy.descriptor)
            copy.descriptor = -1

    async def _make(self, name: _Name, copy: _Copy, source: int, size: int) -> None:
        """Make a form. Raises FormatError, Later, OSError."""
        try:
            await self._convert(name, copy, source, size)
        except (FormatError, Later) as error:
            self._fail(name, error)
            raise
        finally:
            os.close(source)
            if not copy.users:
                self._drop(name, copy)

    async def _convert(self, name: _Name, copy: _Copy, source: int, size: int) -> None:
        _, seven_bit, short_lines = name
        process = self._processes[size > SMALL]
        async with process.free:
            most = most_written(size)
            if self.bytes + most > COPIES_MOST:
                raise Later("too many converted messages are on their way")
            copy.reserved = most
            self.bytes += most
            with tempfile.TemporaryFile() as file:
                try:
                    found, newlines = await process.convert(source, file.fileno(), seven_bit, short_lines)
                except _Excess as error:
                    raise self._judge(name, source, str(error)) from error
                # Times are coarse and inode numbers used again; this way no two have the same identity.
                os.utime(file.fileno(), ns=(0, next(_NUMBERS)))
                copy.descriptor = os.dup(file.fileno())
        self.bytes += found - most
        copy.reserved = found
        # A last line that does not end gets its line end.
        unended = found > 0 and os.pread(copy.descriptor, 1, found - 1) != b"\n"
        copy.wire_size = found + newlines + 2 * unended

    def _judge(self, name: _Name, source: int, reason: str) -> Exception:
        """Return what becomes of a message that exceeded the limits: it is deferred, and the next time it fails."""
        if name in self._excessive or time.time() - os.fstat(source).st_mtime > OLD_SECONDS:
            return FormatError(reason)
        while len(self._excessive) >= FAILED_MOST:
            del self._excessive[next(iter(self._excessive))]
        self._excessive[name] = None
        return Later(f"{reason}; it is tried once more")

    def _fail(self, name: _Name, error: Exception) -> None:
        if isinstance(error, Later) and name not in self._excessive:
            return  # What is full now may have room soon.
        while len(self._failed) >= FAILED_MOST:
            del self._failed[next(iter(self._failed))]
        self._failed[name] = type(error)(*error.args), time.monotonic() + FAILED_SECONDS


class _Process:
    """A process that converts, started when it is first needed, and again after it has gone."""

    def __init__(self) -> None:
        # For who has a job for it.
        self.free = asyncio.Semaphore(1)
        self._running: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    async def convert(self, source: int, target: int, seven_bit: bool, short_lines: bool) -> tuple[int, int]:
        """Return the size of the result and its number of LFs. Raises FormatError, _Excess, OSError."""
        connection = self._start()
        job = b"%d %d %d %d" % (seven_bit, short_lines, CPU_SECONDS, MEMORY_MOST)
        try:
            socket.send_fds(connection, [job], [source, target])
            async with asyncio.timeout(SECONDS_MOST):
                answer = await _receive(connection)
        except TimeoutError as error:
            self.kill()
            raise _Excess(f"it takes over {SECONDS_MOST:.0f} seconds") from error
        except BaseException:
            self.kill()
            raise
        kind, _, text = answer.partition(b" ")
        if kind == b"K":
            size, newlines = map(int, text.split())
            return size, newlines
        if kind == b"F":
            raise FormatError(text.decode("utf-8", "replace"))
        if kind == b"X":
            raise _Excess(text.decode("utf-8", "replace"))
        if not kind:
            self.kill()
        raise OSError(text.decode("utf-8", "replace") or "the process that converts has ended")

    def kill(self) -> None:
        if self._running is not None:
            process, connection = self._running
            self._running = None
            connection.close()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self) -> socket.socket:
        """Return the connection to the process. Raises OSError."""
        if self._running is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            try:
                # Its modules are ours, whatever the environment says.
                code = f"import sys; sys.path[:] = {[path for path in sys.path if path]!r}; "
                code += "from queue_remote.message.converter import main; main()"
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", code],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
            finally:
                theirs.close()
            self._running = process, ours
        return self._running[1]


def _look(made: asyncio.Task[None]) -> None:
    """What went wrong is told to who waits; if nobody does any more, nobody needs to know."""
    if not made.cancelled():
        made.exception()


async def _receive(connection: socket.socket) -> bytes:
    """Return the next packet, nothing at the end. Raises OSError."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(connection.fileno(), readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection.fileno())
    return connection.recv(4096)
