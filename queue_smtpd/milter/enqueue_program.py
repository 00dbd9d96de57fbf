"""Has a program queue a message in the place of queue-intake: that of QUEUE_ENQUEUE or QMAILQUEUE (qmail-queue(8)).

The program gets the message on descriptor 0 and the envelope on descriptor 1, both as files without a name, at their
beginning. Descriptor 2 is the log; no other is open. It runs without arguments and without a shell, as the account of
the server, with its environment, QUEUE_HOME, and what tcpserver would say of the client. Its exit code is that of
qmail-queue: 0 means that the message is queued, 11 to 40 that it never can be, any other that it may be later.

It is a temporary failure if the program cannot be run, is killed by a signal, exits 0 before it has read all of the
message and the envelope, or takes longer than SECONDS; then it is killed with its process group. A program that is
killed may have queued the message, which its client then sends once more.
"""

import asyncio
import os
import signal
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from queue_base.daemon.program_group import FileAction, signal_group, start_group
from queue_base.durable import write_all
from queue_base.errors import NO_PROGRAM, explain_code, is_permanent, known_code, reason
from queue_base.home import Home
from queue_smtpd.milter.message_spool import write_text
from queue_smtpd.processes.log_writer import LogWriter
from queue_wire.files.envelope import pack_enqueue
from queue_wire.pipes.qmtp import ACCEPTED, NUMBER_PLACE, PERMANENT, TEMPORARY, Answer

# Programs of a process at once; a message waits until one has ended.
PROGRAMS = 20
# Seconds for a message, with those in which it waits. A client waits ten minutes (RFC 5321 4.5.3.2.6).
SECONDS = 540.0
_LATE = b"failed: it took too long and was killed"


class GivenMessage(NamedTuple):
    """A message for a program. `pieces` may raise OSError."""

    pieces: Iterator[bytes]
    sender: bytes
    recipients: list[bytes]


class _Input:
    """The files that a program reads. It shares their offsets, so they say how far it has read."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self.handles: list[int] = []

    def add(self, size: int, file: int) -> None:
        """Add a file; the program gets it for reading alone, at its beginning. Raises OSError."""
        self.handles.append(os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC))
        self._sizes.append(size)

    @property
    def unread(self) -> int:
        """The bytes that were not read."""
        rest = [size - os.lseek(each, 0, os.SEEK_CUR) for each, size in zip(self.handles, self._sizes, strict=True)]
        return sum(max(0, each) for each in rest)

    def close(self) -> None:
        for each in self.handles:
            os.close(each)
        self.handles = []


class _RunningProgram:
    """A process whose exit the event loop waits for. `ended` has its exit code, or the negative number of a signal."""

    def __init__(self, pid: int) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = loop.create_future()
        self._alive = True
        self._pid = pid
        self._handle = os.pidfd_open(pid)
        loop.add_reader(self._handle, self._reap, loop)

    def _reap(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._handle)
        os.close(self._handle)
        self._alive = False
        _, status = os.waitpid(self._pid, 0)
        if not self.ended.done():
            self.ended.set_result(os.waitstatus_to_exitcode(status))

    def kill(self) -> None:
        """Kill it, and what it has started in its process group. It is reaped when it has ended."""
        if self._alive:
            signal_group(self._pid, signal.SIGKILL)


class EnqueuePrograms:
    """Runs programs, PROGRAMS at once."""

    def __init__(self, home: Home, log: LogWriter) -> None:
        self._home = os.fsencode(home.path)
        self._log = log.descriptor
        self._places = asyncio.Semaphore(PROGRAMS)

    async def run(
        self, program: str, client: dict[bytes, bytes], message: GivenMessage, seconds: float = SECONDS
    ) -> tuple[Answer, bytes]:
        """Return what became of a message, and what the log is to say of the program.

        `client` has environment variables; one that is empty is taken away.
        """
        environment = {**os.environb, **client, b"QUEUE_HOME": self._home}
        for name in [name for name, value in client.items() if not value or b"\0" in value]:
            del environment[name]
        given = _Input()
        try:
            async with asyncio.timeout(seconds), self._places:
                await _write_input(given, message)
                code = await self._run(program, environment, given)
            unread = given.unread
        except TimeoutError:
            return _answer(TEMPORARY, "qq timeout (#4.3.0)"), _LATE
        except OSError as error:
            return _answer(TEMPORARY, explain_code(NO_PROGRAM)), b"failed: " + os.fsencode(reason(error))
        finally:
            given.close()
        if code == 0 and unread:
            what = f"failed: it exited 0 but did not read everything: {unread} bytes are left"
            return _answer(TEMPORARY, "qq temporary problem (#4.3.0)"), what.encode()
        if code == 0:
            return _answer(ACCEPTED, "ok -"), b"accepts message"
        if code < 0:
            return _answer(TEMPORARY, "qq crashed (#4.3.0)"), b"failed: it was killed by signal %d" % -code
        known = known_code(code)
        text = explain_code(known)
        if is_permanent(known):
            return _answer(PERMANENT, text), b"refuses message: it exited %d: %s" % (code, text.encode())
        return _answer(TEMPORARY, text), f"failed: it exited {code}: {text}".encode()

    async def _run(self, program: str, environment: dict[bytes, bytes], given: _Input) -> int:
        """Return its exit code, or the negative number of a signal. Raises OSError, and TimeoutError of the caller."""
        message, envelope = given.handles
        actions: list[FileAction] = [(os.POSIX_SPAWN_DUP2, message, 0), (os.POSIX_SPAWN_DUP2, envelope, 1)]
        if self._log is None:
            actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0))
        else:
            actions.append((os.POSIX_SPAWN_DUP2, self._log, 2))
        pid = start_group([os.fsencode(program)], environment, actions)
        try:
            running = _RunningProgram(pid)
        except OSError:
            # For example for lack of descriptors. Its exit could not be waited for.
            signal_group(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        try:
            return await running.ended
        finally:
            running.kill()


def _answer(letter: bytes, text: str) -> Answer:
    return Answer(letter, text.encode())


async def _write_input(given: _Input, message: GivenMessage) -> None:
    """Write the message and the envelope. Raises OSError."""
    size = 0
    with tempfile.TemporaryFile(buffering=0) as file:
        numbered = True
        for piece in message.pieces:
            if numbered and NUMBER_PLACE in piece:
                # The number of the message in the queue is that of the program's queue-enqueue.
                numbered, piece = False, piece.replace(b" id " + NUMBER_PLACE, b"", 1)
            write_text(file.fileno(), piece)
            size += len(piece)
            # Other connections have their turns.
            await asyncio.sleep(0)
        given.add(size, file.fileno())
    envelope = pack_enqueue(message.sender, message.recipients)
    with tempfile.TemporaryFile(buffering=0) as file:
        write_all(file.fileno(), envelope)
        given.add(len(envelope), file.fileno())
