"""Passes messages to a program in place of queue-enqueue, named by QUEUE_ENQUEUE or QMAILQUEUE (netqmail's qmail.c).

The program gets the message on descriptor 0, then the envelope on descriptor 1. Descriptor 2 is ours; no other is
open. It runs without arguments and without a shell, as the current user, with our environment and QUEUE_HOME. Its exit
code is that of qmail-queue(8): 0 means that the message is queued, 11 to 40 that it never can be, any other that it may
be queued later. It sees the end of the envelope only if the message is to be queued. So a program that ends by running
queue-enqueue queues nothing if we are killed.

It is a temporary failure if the program cannot be run, is killed by a signal, exits before it has read everything, or
takes longer than 24 hours; then it is killed with all processes that it has started. Bytes that are left in a pipe when
the program exits count as unread, even if a process that it leaves behind would read them: only the exit code of the
program itself says that the message is queued.
"""

import fcntl
import os
import select
import signal
import struct
import subprocess
import termios

from queue_base.daemon.signals import keep_children
from queue_base.errors import (
    BUG,
    CONFIG,
    NO_PROGRAM,
    READ,
    REFUSED,
    TIMEOUT,
    QueueTrouble,
    explain_code,
    known_code,
    reason,
)
from queue_base.home import Home
from queue_base.queue.inflow import InflowControl
from queue_base.queue.writer import Draft, Writer
from queue_inject.source import Deadline
from queue_wire.files.envelope import check_address, pack_enqueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_PIECE = 65536


class FilterDraft(Draft):
    """A message that is passed to the program."""

    __slots__ = ("_deadline", "_ended", "_envelope", "_envelope_handle", "_process", "_unread")

    def __init__(self, program: str, environment: dict[str, str], inflow: InflowControl) -> None:
        """Start the program. Raises QueueTrouble."""
        self._deadline = Deadline()
        self._envelope = b""
        # Descriptors to count what is left in the pipes: those that write are closed by then.
        self._unread: list[int] = []
        handles: list[int] = []
        try:
            handles += os.pipe()
            handles += os.pipe()
            # It gets a session of its own, so that it can be killed with everything that it starts.
            self._process = subprocess.Popen(
                [program], stdin=handles[0], stdout=handles[2], env=environment, start_new_session=True
            )
        except OSError as error:
            for handle in handles[1::2]:
                os.close(handle)
            raise _failure(program, NO_PROGRAM, f"it cannot be run: {reason(error)}") from error
        finally:
            for handle in handles[::2]:
                os.close(handle)
        self._envelope_handle = handles[3]
        self._ended = os.pidfd_open(self._process.pid)
        for handle in handles[1::2]:
            os.set_blocking(handle, False)
        super().__init__(inflow, program, handles[1], b"")

    def write(self, data: bytes) -> None:
        self._send(self._handle, data)

    def finish(self, sender: bytes, recipients: list[bytes]) -> None:
        self._envelope = pack_enqueue(check_address(sender), map(check_address, recipients))
        self._watch_unread(self._handle)
        self.close()

    def queue(self) -> None:
        """Pass the envelope and wait until the program exits. Raises QueueTrouble."""
        self._send(self._envelope_handle, self._envelope)
        self._watch_unread(self._envelope_handle)
        self._close_envelope()
        self._wait_for_exit()
        self.queued = True

    def discard(self) -> None:
        """Kill the program if the message is not queued: it has not seen the end of the envelope."""
        unread, self._unread = self._unread, []
        for handle in unread:
            os.close(handle)
        if not self.queued:
            self._kill()
            self.close()
            self._close_envelope()
            self._process.wait()
        handle, self._ended = self._ended, -1
        if handle >= 0:
            os.close(handle)

    def _send(self, handle: int, data: bytes) -> None:
        poll = select.poll()
        poll.register(handle, select.POLLOUT)
        poll.register(self._ended, select.POLLIN)
        sent = 0
        while sent < len(data):
            try:
                if self._ended in dict(poll.poll(self._left() * 1000)):
                    self._fail()
                sent += os.write(handle, data[sent : sent + _PIECE])
            except BlockingIOError:
                continue
            except OSError:
                self._fail()

    def _fail(self) -> None:
        """Raise QueueTrouble for a program that has stopped reading or has exited, with its exit code if it failed."""
        self.close()
        self._close_envelope()
        self._wait_for_exit()
        raise _failure(self.path, READ, "it did not read everything")

    def _watch_unread(self, handle: int) -> None:
        """Open a pipe for reading, so that `_wait_for_exit` can count what is left in it. Raises QueueTrouble.

        Call it only when everything is written. Before that our own read end would keep a write from failing when the
        program has stopped reading.
        """
        try:
            self._unread.append(os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            why = f"what it reads cannot be seen: /proc/self/fd/{handle}: {reason(error)}"
            raise _failure(self.path, CONFIG, why) from error

    def _wait_for_exit(self) -> None:
        """Wait until the program exits. Raises QueueTrouble unless it exited 0 and has read everything."""
        poll = select.poll()
        poll.register(self._ended, select.POLLIN)
        while not poll.poll(self._left() * 1000):
            pass
        code = self._process.wait()
        if code < 0:
            raise _failure(self.path, BUG, f"it was killed by signal {-code}")
        if code:
            known = known_code(code)
            raise _failure(self.path, known, f"it exited {code}: {explain_code(known)}")
        left = sum(map(_count_unread, self._unread))
        if left:
            raise _failure(self.path, READ, f"it exited 0 but did not read everything: {left} bytes are left")

    def _left(self) -> float:
        try:
            return self._deadline.left()
        except QueueTrouble:
            self._kill()
            raise _failure(self.path, TIMEOUT, "it took too long and was killed") from None

    def _kill(self) -> None:
        try:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        except OSError:
            pass  # It has just exited.

    def _close_envelope(self) -> None:
        handle, self._envelope_handle = self._envelope_handle, -1
        if handle >= 0:
            os.close(handle)


def _count_unread(handle: int) -> int:
    """Return the number of bytes in a pipe."""
    (count,) = struct.unpack("i", fcntl.ioctl(handle, termios.FIONREAD, bytes(4)))
    return int(count)


class _NoInflowControl(InflowControl):
    """Admits every message. If the program queues it here, queue-enqueue checks the disk."""

    def admit(self) -> None:
        """Do nothing."""

    def check(self, place: str | int | None = None, coming: int = 0) -> None:
        """Do nothing."""


class FilterWriter(Writer):
    """Runs the program once for each draft. An open draft is a process, so each is committed before the next begins."""

    one_by_one = True

    def __init__(self, home: Home, variable: str, program: str) -> None:
        """`program` is the value of the environment variable `variable`. Raises QueueTrouble for a relative path."""
        if not os.path.isabs(program):
            raise QueueTrouble(
                CONFIG, f"unable to run {variable}={program}: it is not an absolute path; nothing was queued"
            )
        # If SIGCHLD were ignored, the exit code of a program that failed would read 0.
        keep_children()
        self._program = program
        self._environment = {**os.environ, "QUEUE_HOME": home.path}
        self.inflow = _NoInflowControl(home, home.owned)

    def begin(self) -> FilterDraft:
        return FilterDraft(self._program, self._environment, self.inflow)

    def commit(self, drafts: "Sequence[Draft]") -> None:
        failure: QueueTrouble | None = None
        for draft in drafts:
            if isinstance(draft, FilterDraft):
                try:
                    draft.queue()
                except QueueTrouble as error:
                    failure = failure or error
                finally:
                    draft.discard()
        if failure is not None:
            raise failure


def _failure(program: str, code: int, why: str) -> QueueTrouble:
    # READ means that our own input cannot be read, and some callers of sendmail then give up. A problem of the program
    # may pass.
    code = REFUSED if code == READ else code
    return QueueTrouble(code, f"unable to queue message by {program}: {why}")
