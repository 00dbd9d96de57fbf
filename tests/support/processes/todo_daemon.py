"""queue-todo on pipes: what it says, sorted into notices and log lines. Lines count as written once they are read."""

import os
from pathlib import Path

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.pipes.notice import (
    EXIT,
    LOCAL,
    PASSED,
    REMOTE,
    REREAD,
    WRITTEN,
    Arrived,
    Ask,
    Classified,
    ClassifyAnswer,
    ClassifyDeferral,
    Held,
    Reread,
    unpack_notice,
)
from support.processes.forked import BIN
from support.queues.home import make_home
from support.send.piped import Piped

# The beginnings of lines about todo/ that is behind, and a disk that is short: they may come at any moment.
BUSY = ("inflow ", "alert: queue-todo: unable to take mail: ")


def todo_home(path: Path, *, flat: bool = False, split: int = 3) -> Home:
    """Make a home whose only local host is me.example.org."""
    home = make_home(path, split=split, flat=flat)
    Path(home.control, "locals").write_bytes(b"me.example.org\n")
    return home


class TodoDaemon(Piped):
    """A running queue-todo; `lines` are the log lines that were read so far.

    Where `answers` is false it never hears that they are in the log.
    """

    def __init__(
        self,
        home: Home,
        *,
        wrapper: tuple[str, ...] = (),
        programs: Path = BIN,
        answers: bool = True,
    ) -> None:
        super().__init__("queue-todo", home, wrapper=wrapper, programs=programs)
        self._answers = answers
        self.home = home
        self.layout = open_layout(home.queue)
        self.lines: list[str] = []
        self.rereads: list[Reread] = []  # What it said of its control files.
        self.deferrals: list[ClassifyDeferral] = []
        self.arrived: Arrived | None = None  # The last full notice.
        self.submitted: tuple[int | None, bytes] = None, b""  # The uid and the submitter of the last short one.

    def notice(self) -> Classified:
        """Return the next notice, short or full, as a short one; log lines before it go to `lines`."""
        while True:
            found = self._sent()
            if isinstance(found, Arrived):
                self.arrived = found
                channels = [channel for channel, _ in found.recipients]
                return Classified(found.message, LOCAL in channels, REMOTE in channels)
            if isinstance(found, Classified):
                self.submitted = found.uid, found.submitter
                return Classified(found.message, found.local, found.remote, found.priority)
            assert isinstance(found, bytes)
            self.lines.append(found.decode())

    def _sent(self) -> Classified | Arrived | ClassifyAnswer | Held | bytes:
        """Return the next record; what it asks is answered."""
        while True:
            found = unpack_notice(self.record())
            if isinstance(found, Reread):
                self.rereads.append(found)
                continue
            if isinstance(found, ClassifyDeferral):
                self.deferrals.append(found)
                continue
            if not isinstance(found, Ask):
                return found
            if self._answers:
                self.write(WRITTEN)

    def notices(self, count: int) -> dict[int, Classified]:
        """Return the next `count` notices by id; no id may come twice."""
        found = [self.notice() for _ in range(count)]
        assert len({notice.message for notice in found}) == count
        return {notice.message: notice for notice in found}

    def line(self) -> str:
        """Return the next record, which must be a log line. What it says of a busy machine only goes to `lines`."""
        while True:
            found = self._sent()
            assert isinstance(found, bytes), f"a notice instead of a log line: {found!r}"
            self.lines.append(found.decode())
            if not self.lines[-1].startswith(BUSY):
                return self.lines[-1]

    def announced(self) -> Arrived:
        """Return the next notice, which must announce a message."""
        self.notice()
        assert self.arrived is not None and self.arrived.announced
        return self.arrived

    def tell(self, mode: bytes = b"") -> None:
        """Say what is done with new messages, if anything is, and wait until queue-todo has read it.

        Nothing else may come before its answer.
        """
        self.write(mode + PASSED)
        while (found := unpack_notice(self.record())) is not Ask.PASSED:
            assert isinstance(found, Reread), found
            self.rereads.append(found)

    def reread(self) -> None:
        """Send the command of a HUP."""
        self.write(REREAD)

    def exit(self) -> int:
        """Send the command to exit, read what it still has to say, answer what it asks; return the exit code."""
        self.write(EXIT)
        while self.more():
            self._sent()
        return self.process.wait(30)

    def pull(self) -> None:
        """Pull the trigger."""
        trigger = os.open(self.home.queue + "/lock/trigger", os.O_WRONLY | os.O_NONBLOCK)
        os.write(trigger, b"\0")
        os.close(trigger)
