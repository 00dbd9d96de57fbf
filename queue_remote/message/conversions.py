"""Other forms of messages (queue_remote.message.downgrade), each made once for all deliveries that need it.

    message, size = await conversions.convert(message, seven_bit, short_lines)

Other processes make them (queue_remote.message.converter), with limits: one for small messages and one for large ones,
each one message at a time. A form is a temporary file without a name, shared by all deliveries of the message, and
closed with the last of them; all forms together take COPIES_MAX bytes at most. A form over that limit is a temporary
failure. A message that exceeds the limits of time or memory is tried once more later, and then cannot be converted.
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

SIZE_MAX = 32 * 1024 * 1024
COPIES_MAX = 256 * 1024 * 1024
# Up to this size a message does not wait for larger ones.
SMALL = 1024 * 1024
# For one conversion. The worst message of 32 MB took 6 s and 150 MB when this was written; the rest is for slower
# machines, and for very many fields or parts.
CPU_SECONDS = 30
MEMORY_MAX = 768 * 1024 * 1024
# Real time, for disks and machines that hang.
SECONDS_MAX = 600.0
# A failed conversion is not tried again for this time, in which jobs for the message's other destinations follow.
FAILED_SECONDS = 300.0
FAILED_MAX = 1000
# A message of this age was tried before, maybe by an earlier process.
OLD_SECONDS = 86400.0

_NUMBERS = itertools.count()
_Name = tuple[tuple[int, ...], bool, bool]


class Later(Exception):
    """A message cannot be converted now; the text says why."""


class _Excess(Exception):
    """A conversion exceeded its limits."""


class _Form:
    """One form, made or being made. Its file exists once `made` is done."""

    __slots__ = ("descriptor", "made", "reserved", "users", "wire_size")

    def __init__(self) -> None:
        self.descriptor = -1
        # Bytes counted towards COPIES_MAX.
        self.reserved = 0
        self.users = 0
        self.wire_size = 0
        self.made: asyncio.Task[None] | None = None


class Conversions:
    """The forms in use. They survive changes of the control files."""

    def __init__(self) -> None:
        self.bytes = 0
        self._forms: dict[_Name, _Form] = {}
        self._processes = _Converter(), _Converter()
        # Failed conversions, and until when each is not tried again.
        self._failed: dict[_Name, tuple[Exception, float]] = {}
        # Conversions that exceeded their limits once.
        self._excessive: dict[_Name, None] = {}

    async def convert(self, message: Message, seven_bit: bool, short_lines: bool) -> tuple[Message, int]:
        """Return a message, to be closed by the caller, and its size on the wire.

        Raises FormatError with the reason if it cannot be converted, Later, and OSError.
        """
        if message.size > SIZE_MAX:
            raise FormatError(f"it has {message.size} bytes, and only {SIZE_MAX} are worked on")
        name = message.identity(), seven_bit, short_lines
        form = self._forms.get(name)
        if form is None:
            failure, until = self._failed.get(name, (None, 0.0))
            if failure is not None and time.monotonic() < until:
                raise type(failure)(*failure.args)
            form = self._forms[name] = _Form()
            # The conversion continues if its delivery is cancelled and closes the message.
            source = os.dup(message.fileno())
            form.made = asyncio.get_running_loop().create_task(self._make(name, form, source, message.size))
            form.made.add_done_callback(_retrieve)
        assert form.made is not None
        form.users += 1
        try:
            await asyncio.shield(form.made)
            return Message(form.descriptor, lambda _: self._leave(name, form)), form.wire_size
        except BaseException:
            self._leave(name, form)
            raise

    def kill(self) -> None:
        """Kill the processes."""
        for process in self._processes:
            process.kill()

    def _leave(self, name: _Name, form: _Form) -> None:
        """End one delivery's use of a form."""
        form.users -= 1
        if not form.users and form.made is not None and form.made.done():
            self._drop(name, form)

    def _drop(self, name: _Name, form: _Form) -> None:
        if self._forms.get(name) is form:
            del self._forms[name]
        self.bytes -= form.reserved
        form.reserved = 0
        if form.descriptor >= 0:
            os.close(form.descriptor)
            form.descriptor = -1

    async def _make(self, name: _Name, form: _Form, source: int, size: int) -> None:
        """Make a form. Raises FormatError, Later, OSError."""
        try:
            await self._convert(name, form, source, size)
        except (FormatError, Later) as error:
            self._fail(name, error)
            raise
        finally:
            os.close(source)
            if not form.users:
                self._drop(name, form)

    async def _convert(self, name: _Name, form: _Form, source: int, size: int) -> None:
        _, seven_bit, short_lines = name
        process = self._processes[size > SMALL]
        async with process.free:
            most = most_written(size)
            if self.bytes + most > COPIES_MAX:
                raise Later("too many converted messages are on their way")
            form.reserved = most
            self.bytes += most
            with tempfile.TemporaryFile() as file:
                try:
                    found, newlines = await process.convert(source, file.fileno(), seven_bit, short_lines)
                except _Excess as error:
                    raise self._failure_of_excess(name, source, str(error)) from error
                # File times are coarse and inode numbers are used again; this makes the identity of each file unique.
                os.utime(file.fileno(), ns=(0, next(_NUMBERS)))
                form.descriptor = os.dup(file.fileno())
        self.bytes += found - most
        form.reserved = found
        # On the wire the last line gets a line end.
        unended = found > 0 and os.pread(form.descriptor, 1, found - 1) != b"\n"
        form.wire_size = found + newlines + 2 * unended

    def _failure_of_excess(self, name: _Name, source: int, reason: str) -> Exception:
        """Return the failure of a message that exceeded the limits: temporary the first time, then permanent."""
        if name in self._excessive or time.time() - os.fstat(source).st_mtime > OLD_SECONDS:
            return FormatError(reason)
        while len(self._excessive) >= FAILED_MAX:
            del self._excessive[next(iter(self._excessive))]
        self._excessive[name] = None
        return Later(f"{reason}; it is tried once more")

    def _fail(self, name: _Name, error: Exception) -> None:
        if isinstance(error, Later) and name not in self._excessive:
            return  # There may be space for it soon.
        while len(self._failed) >= FAILED_MAX:
            del self._failed[next(iter(self._failed))]
        self._failed[name] = type(error)(*error.args), time.monotonic() + FAILED_SECONDS


class _Converter:
    """A process that converts, started when it is first needed, and again after it has ended."""

    def __init__(self) -> None:
        # It takes one job at a time.
        self.free = asyncio.Semaphore(1)
        self._running: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    async def convert(self, source: int, target: int, seven_bit: bool, short_lines: bool) -> tuple[int, int]:
        """Return the size of the result and its number of LFs. Raises FormatError, _Excess, OSError."""
        connection = self._start()
        job = b"%d %d %d %d" % (seven_bit, short_lines, CPU_SECONDS, MEMORY_MAX)
        try:
            socket.send_fds(connection, [job], [source, target])
            async with asyncio.timeout(SECONDS_MAX):
                answer = await _receive(connection)
        except TimeoutError as error:
            self.kill()
            raise _Excess(f"it takes over {SECONDS_MAX:.0f} seconds") from error
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
                # It uses our module path; -I ignores the environment.
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


def _retrieve(made: asyncio.Task[None]) -> None:
    """Retrieve the exception, so that asyncio does not log it if no delivery waits for it."""
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
