"""A program in queue-enqueue's place: QUEUE_ENQUEUE, else QMAILQUEUE, names it (netqmail's qmail.c, qmail-queue(8)).

The program gets the message on descriptor 0 and, when that has ended, the envelope on descriptor 1; descriptor 2 is
ours, and no other is open. It is run as it stands, without arguments and without a shell, as the user that we are,
with our environment and QUEUE_HOME. Exit code 0 says that the message is queued, 11 to 40 that it never can be, any
other that it may be later. It never sees the end of an envelope unless the message is to be queued, so one that
ends by running queue-enqueue queues nothing when we are killed.

A program that cannot be run, dies by a signal, ends before it has read everything, or takes longer than 24 hours is
temporary trouble; one over its time is killed, with what it has started. What is still in a pipe when it ends was not
read, even if a process that it leaves behind would read it later: only its own exit code answers for the message.
"""

import fcntl
import os
import select
import signal
import struct
import subprocess
import termios

from queue_base.errors import CONFIG, READ, REFUSED, TIMEOUT, QueueTrouble, reason
from queue_base.home import Home
from queue_base.inflow import Intake
from queue_base.signals import keep_children
from queue_base.writer import Draft, Writer
from queue_inject.source import Deadline
from queue_wire.envelope import check_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

NO_PROGRAM = 120
CRASHED = 81
# An older qmail's code for an address that is too long.
_OLD_TOO_LONG = 115
_TEXTS = {
    11: "envelope address too long for qq (#5.1.3)",
    31: "mail server permanently rejected message (#5.3.0)",
    51: "qq out of memory (#4.3.0)",
    52: "qq timeout (#4.3.0)",
    53: "qq write error or disk full (#4.3.0)",
    54: "qq read error (#4.3.0)",
    55: "qq unable to read configuration (#4.3.0)",
    56: "qq trouble making network connection (#4.3.0)",
    61: "qq trouble in home directory (#4.3.0)",
    **dict.fromkeys(range(62, 67), "qq trouble creating files in queue (#4.3.0)"),
    71: "mail server temporarily rejected message (#4.3.0)",
    72: "connection to mail server timed out (#4.4.1)",
    73: "connection to mail server rejected (#4.4.1)",
    74: "communication with mail server failed (#4.4.2)",
    81: "qq internal bug (#4.3.0)",
    91: "qq internal bug (#4.3.0)",
    120: "unable to exec qq (#4.3.0)",
}
_PIECE = 65536


def explain_code(code: int) -> str:
    """Return what qmail says about an exit code of qmail-queue that is not 0."""
    other = "qq permanent problem (#5.3.0)" if 11 <= code <= 40 else "qq temporary problem (#4.3.0)"
    return _TEXTS.get(code, other)


class FilterDraft(Draft):
    """A message on its way through the program."""

    __slots__ = ("_deadline", "_ended", "_envelope", "_names", "_process", "_unread")

    def __init__(self, program: str, environment: dict[str, str], intake: Intake) -> None:
        """Start the program. Raises QueueTrouble."""
        self._deadline = Deadline()
        self._envelope = b""
        # Descriptors to see what is left in the pipes, since ours to write are closed by then.
        self._unread: list[int] = []
        handles: list[int] = []
        try:
            handles += os.pipe()
            handles += os.pipe()
            # A session of its own: all that it starts can be killed with it.
            self._process = subprocess.Popen(
                [program], stdin=handles[0], stdout=handles[2], env=environment, start_new_session=True
            )
        except OSError as error:
            for handle in handles[1::2]:
                os.close(handle)
            raise _trouble(program, NO_PROGRAM, f"it cannot be run: {reason(error)}") from error
        finally:
            for handle in handles[::2]:
                os.close(handle)
        self._names = handles[3]
        self._ended = os.pidfd_open(self._process.pid)
        for handle in handles[1::2]:
            os.set_blocking(handle, False)
        super().__init__(intake, program, handles[1], b"")

    def write(self, data: bytes) -> None:
        self._send(self._handle, data)

    def finish(self, sender: bytes, recipients: list[bytes]) -> None:
        tail = b"".join([b"T%s\0" % check_address(recipient) for recipient in recipients])
        self._envelope = b"F%s\0%s\0" % (check_address(sender), tail)
        self._watch_unread(self._handle)
        self.close()

    def queue(self) -> None:
        """Hand over the envelope, and wait for the program's answer. Raises QueueTrouble."""
        self._send(self._names, self._envelope)
        self._watch_unread(self._names)
        self._close_names()
        self._judge()
        self.queued = True

    def discard(self) -> None:
        """End the program; it has not got the end of an envelope."""
        unread, self._unread = self._unread, []
        for handle in unread:
            os.close(handle)
        if not self.queued:
            self._kill()
            self.close()
            self._close_names()
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
                    self._stop()
                sent += os.write(handle, data[sent : sent + _PIECE])
            except BlockingIOError:
                continue
            except OSError:
                self._stop()

    def _stop(self) -> None:
        """It has stopped reading, or ended; its exit code tells more than that. Raises QueueTrouble."""
        self.close()
        self._close_names()
        self._judge()
        raise _trouble(self.path, READ, "it did not read everything")

    def _watch_unread(self, handle: int) -> None:
        """Keep a descriptor for `_judge` to see what is left in a pipe. Raises QueueTrouble.

        Not before everything is written: as long as we could read it too, nothing would tell us that nobody does.
        """
        try:
            self._unread.append(os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            why = f"what it reads cannot be seen: /proc/self/fd/{handle}: {reason(error)}"
            raise _trouble(self.path, CONFIG, why) from error

    def _judge(self) -> None:
        """Wait for the end of the program. Raises QueueTrouble unless it exited 0."""
        poll = select.poll()
        poll.register(self._ended, select.POLLIN)
        while not poll.poll(self._left() * 1000):
            pass
        code = self._process.wait()
        if code < 0:
            raise _trouble(self.path, CRASHED, f"it was killed by signal {-code}")
        if code:
            known = 11 if code == _OLD_TOO_LONG else code
            raise _trouble(self.path, known, f"it exited {code}: {explain_code(known)}")
        left = sum(map(_count_unread, self._unread))
        if left:
            raise _trouble(self.path, READ, f"it exited 0 but did not read everything: {left} bytes are left")

    def _left(self) -> float:
        try:
            return self._deadline.left()
        except QueueTrouble:
            self._kill()
            raise _trouble(self.path, TIMEOUT, "it took too long and was killed") from None

    def _kill(self) -> None:
        try:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        except OSError:
            pass  # It has just ended.

    def _close_names(self) -> None:
        handle, self._names = self._names, -1
        if handle >= 0:
            os.close(handle)


def _count_unread(handle: int) -> int:
    """Return how many bytes are in a pipe."""
    (count,) = struct.unpack("i", fcntl.ioctl(handle, termios.FIONREAD, bytes(4)))
    return int(count)


class _NoIntake(Intake):
    """What the program queues at last is asked whether there is room; the message may go elsewhere as well."""

    def admit(self) -> None:
        """Go on."""

    def check(self, place: str | int | None = None, coming: int = 0) -> None:
        """Go on."""


class FilterWriter(Writer):
    """Runs the program once for each draft. Commit each before the next is begun: an open draft is a process."""

    one_by_one = True

    def __init__(self, home: Home, variable: str, program: str) -> None:
        """`program` is what the environment's `variable` says. Raises QueueTrouble for a relative path."""
        if not os.path.isabs(program):
            raise QueueTrouble(CONFIG, f"unable to run {variable}={program}: it is no whole path; nothing was queued")
        # Or what a program that failed had exited with would read 0.
        keep_children()
        self._program = program
        self._environment = {**os.environ, "QUEUE_HOME": home.path}
        self.intake = _NoIntake(home, home.queue)

    def begin(self) -> FilterDraft:
        return FilterDraft(self._program, self._environment, self.intake)

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


def _trouble(program: str, code: int, why: str) -> QueueTrouble:
    # READ says that our own input cannot be read; some who call sendmail give up then. The program's may pass.
    code = REFUSED if code == READ else code
    return QueueTrouble(code, f"unable to queue message by {program}: {why}")
