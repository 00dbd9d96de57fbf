"""Runs a program for a delivery: `/bin/sh -c COMMAND` (qmail-command(8)).

The program has a process group of its own in the session of the delivery: `kill 0` in a script reaches only the
script, and queue-local can kill the session. The program has ended when the shell has: processes that it leaves in the
background live on, and their output is not read. At the time limit its group gets TERM, and later KILL.
"""

import os
import select
import signal
import time
from typing import NamedTuple

from queue_base.daemon.pipes import PeerLost, read_available
from queue_base.daemon.program_group import signal_group, start_group
from queue_base.errors import Temporary, reason

# Between TERM and KILL.
GRACE = 3.0
# After KILL; do not wait for a process that hangs in the kernel.
_LAST_WAIT = 1.0
_SHELL = b"/bin/sh"
# How much of the command a text shows; the rest can be read in the .qmail file.
_NAMED = 60
# Its last output is still in the pipe when it ends. A pipe holds 64 kB, and background processes may still write.
_CHUNK = 1 << 16
# What interrupts a delivery: queue-local tells it to end, or its time is over.
_INTERRUPTING = (signal.SIGTERM, signal.SIGALRM)
_INTERRUPTED = 75
# Bytes kept of the beginning of the output, and of its end.
HEAD_MAX = 2000
TAIL_MAX = 800
_LEFT_OUT = b"\n[...]\n"
# A tab becomes a space, a newline stays, any other control byte becomes `_`.
_KEPT = {9: ord(" "), 10: 10, 127: ord("_")}
_PRINTED = bytes(_KEPT.get(byte, byte if byte >= 32 else ord("_")) for byte in range(256))


class Output:
    """The output of a program: keeps the first and last bytes of any amount, cleaned for a report."""

    __slots__ = ("_head", "_tail", "_total")

    def __init__(self) -> None:
        self._head = b""
        self._tail = b""
        self._total = 0

    def feed(self, data: bytes) -> None:
        self._total += len(data)
        room = HEAD_MAX - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail = (self._tail + data[-TAIL_MAX:])[-TAIL_MAX:]

    def kept(self) -> bytes:
        """Return the kept output, cleaned."""
        between = _LEFT_OUT if self._total > len(self._head) + len(self._tail) else b""
        return clean_output(self._head + between + self._tail)


def clean_output(data: bytes) -> bytes:
    """Return text for a report: UTF-8, no control characters but newlines, no empty lines, one newline at its end.

    What is not UTF-8 becomes `?`, byte by byte. Nothing at all stays nothing.
    """
    text = data.replace(b"\r\n", b"\n").translate(_PRINTED)
    if not text.isascii():
        # U+0080 to U+009F are control characters as well; a bad byte must not take three of ours.
        text = "".join(_character(char) for char in text.decode("utf-8", "surrogateescape")).encode()
    lines = [line.rstrip(b" ") for line in text.split(b"\n")]
    return b"".join(line + b"\n" for line in lines if line)


def _character(char: str) -> str:
    return char if char == "\n" or char.isprintable() else "?"


class Interrupted(Temporary):
    """The delivery must end now, by timeout or by request. Its programs are to be killed."""

    exit_code = _INTERRUPTED

    def __init__(self, what: str, more: str = "") -> None:
        super().__init__(f"{what}. (#4.3.0){more}")
        self.what = what


class Ran(NamedTuple):
    """How a program ended by itself: exit code, and its output on stdout and stderr, limited and cleaned."""

    code: int
    output: bytes


def run_program(command: bytes, environment: dict[bytes, bytes], message: int, seconds: float) -> Ran:
    """Run a program in the current directory; its stdin is the open file `message`, at offset 0.

    Raises Temporary if it cannot be started or is killed by a signal, Interrupted if it runs for more than `seconds`
    or the delivery is interrupted. Its process group is dead then.
    """
    output = Output()
    # An interruption between the start of the program and the `try` would leave the program running. It waits.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTING)
    try:
        program = _Program(command, environment, message)
        try:
            program.watch()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            code = program.run(output, seconds)
        except Interrupted as error:
            program.end()
            raise Interrupted(f"{error.what}: killed {_name(command)}", _said(output)) from error
        except BaseException:
            program.end()
            raise
        finally:
            program.close()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if code < 0:
        raise Temporary(f"Aack, child crashed: signal {-code} killed {_name(command)}. (#4.3.0){_said(output)}")
    return Ran(code, output.kept())


class _Program:
    """A running program: its pid, a pidfd, and the pipe of its output. Raises Temporary if it cannot be started."""

    def __init__(self, command: bytes, environment: dict[bytes, bytes], message: int) -> None:
        try:
            os.lseek(message, 0, os.SEEK_SET)
            self.reader, writer = os.pipe()
        except OSError as error:
            raise Temporary(f"Unable to prepare a program: {reason(error)}. (#4.3.0)") from error
        os.set_blocking(self.reader, False)
        self.pidfd = -1
        try:
            actions = [(os.POSIX_SPAWN_DUP2, source, to) for source, to in ((message, 0), (writer, 1), (writer, 2))]
            self.pid = start_group([_SHELL, b"-c", command], environment, actions)
        except (OSError, ValueError) as error:
            os.close(self.reader)
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise Temporary(f"Unable to run /bin/sh: {why}. (#4.3.0)") from error
        finally:
            os.close(writer)

    def watch(self) -> None:
        """Open the pidfd. Raises Temporary."""
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except OSError as error:
            raise Temporary(f"Unable to watch a program: {reason(error)}. (#4.3.0)") from error

    def run(self, output: Output, seconds: float) -> int:
        """Read its output until it ends; return its exit code. Raises Interrupted."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        poll.register(self.reader, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            ready = {descriptor for descriptor, _ in poll.poll(left * 1000 + 1)}
            # Read first: the output that it wrote before it ended is in the pipe.
            if self.reader in ready and not self._read(output):
                poll.unregister(self.reader)
            if self.pidfd in ready:
                return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        raise Interrupted("Timeout on program")

    def _read(self, output: Output) -> bool:
        """Read what is available; return False at end of file."""
        try:
            output.feed(read_available(self.reader, _CHUNK) or b"")
        except PeerLost:
            return False
        return True

    def end(self) -> None:
        """End its process group, and the program itself if it has left it. Its pid is not reused until it is reaped."""
        # This takes a limited time, and the alarm of the delivery must not interrupt it.
        signal.alarm(0)
        signal_group(self.pid, signal.SIGTERM)
        # A stopped process handles TERM only after it continues.
        signal_group(self.pid, signal.SIGCONT)
        self._wait(GRACE)
        signal_group(self.pid, signal.SIGKILL)
        self._wait(_LAST_WAIT)
        os.waitpid(self.pid, os.WNOHANG)

    def _wait(self, seconds: float) -> None:
        if self.pidfd >= 0:
            poll = select.poll()
            poll.register(self.pidfd, select.POLLIN)
            poll.poll(seconds * 1000)

    def close(self) -> None:
        os.close(self.reader)
        if self.pidfd >= 0:
            os.close(self.pidfd)


def _name(command: bytes) -> str:
    """Return the first bytes of the command, in one line."""
    name = clean_output(command[:_NAMED].replace(b"\n", b" ")).decode().rstrip("\n")
    return name + "..." if len(command) > _NAMED else name


def _said(output: Output) -> str:
    """Return its output, in lines of its own."""
    return ("\n" + output.kept().decode()).rstrip("\n")
