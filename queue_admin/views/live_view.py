"""The live view of `queuectl top --watch`: it draws readings on a terminal, each INTERVAL seconds, until q or ^C.

It has the terminal's other screen, and gives the terminal back as it was however it ends: by q, ^C, SIGTERM, SIGHUP, an
error, and for the time of a stop with ^Z. A change of the terminal's size draws it anew at once. The ranking comes from
a walk over the queue in a thread, which rests between two walks for REST times as long as one takes.
"""

import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Sequence
from types import FrameType, TracebackType

from queue_admin.metrics.reading import Reading, take_reading
from queue_admin.printable import visible
from queue_admin.views.live_screen import LiveQueue, live_lines
from queue_admin.views.queue_walk import QueueWalk
from queue_admin.views.ranked_messages import rank
from queue_admin.views.ranking import Ranking
from queue_base.errors import Failure
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.logline import moment

INTERVAL = 2.0
REST = 9.0
REST_MIN = 10.0
RANKED = 10
_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_REDRAW = b"\0"


class _ViewEnded(BaseException):
    """A signal ends the view."""


class LiveTerminal:
    """The terminal while it shows the view. Use it as a context manager."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._output = sys.stdout.fileno()
        self._before = termios.tcgetattr(self._input)
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> "LiveTerminal":
        signal.signal(signal.SIGWINCH, self._changed)
        signal.signal(signal.SIGCONT, self._continued)
        signal.signal(signal.SIGTSTP, self._stopped)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._ended)
        self._enter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._leave()

    def draw(self, lines: Sequence[str], height: int) -> None:
        """Show lines, at most `height`, in place of what was shown."""
        # Behind a line of the whole width nothing may be erased: its last character would be.
        shown = "\r\n".join(f"\x1b[2K{line}" for line in lines)
        self._write(f"\x1b[H{shown}\x1b[J" if len(lines) < height else f"\x1b[H{shown}")

    def wait(self, seconds: float) -> bool:
        """Wait for a key, a change of size, or so many seconds; return whether the key was q."""
        ready, _, _ = select.select([self._input, self._reader], [], [], seconds)
        if self._reader in ready:
            os.read(self._reader, 65536)
        if self._input not in ready:
            return False
        keys = os.read(self._input, 1024)
        return not keys or bool({b"q", b"Q"} & {keys[at : at + 1] for at in range(len(keys))})

    def _enter(self) -> None:
        tty.setcbreak(self._input, termios.TCSANOW)
        self._write(_ENTER)

    def _leave(self) -> None:
        try:
            self._write(_LEAVE)
            termios.tcsetattr(self._input, termios.TCSANOW, self._before)
        except (OSError, termios.error):
            pass  # The terminal is gone.

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(self._output, data) :]

    def _changed(self, number: int, frame: FrameType | None) -> None:
        try:
            os.write(self._writer, _REDRAW)
        except BlockingIOError:
            pass  # It is to be drawn anew already.

    def _stopped(self, number: int, frame: FrameType | None) -> None:
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _continued(self, number: int, frame: FrameType | None) -> None:
        self._enter()
        self._changed(number, frame)

    def _ended(self, number: int, frame: FrameType | None) -> None:
        raise _ViewEnded


class Ranker:
    """Ranks the messages of all queues in a thread, again and again. `lines` is the last table."""

    def __init__(self, homes: Sequence[Home], queues: Sequence[str], by: str) -> None:
        self._homes = homes
        self._queues = queues
        self._by = by
        self.lines: list[str] = []
        threading.Thread(target=self._work, name="rank", daemon=True).start()

    def _work(self) -> None:
        while True:
            begun, at = time.monotonic(), time.time()
            ranking = Ranking()
            troubles: list[str] = []
            for home in self._homes:
                try:
                    for _ in rank(QueueWalk(open_layout(home.queue), self._queues, at), self._by, ranking):
                        time.sleep(0)  # The view has its turn.
                except Failure as error:
                    troubles.append(str(error))
            head = f"{'messages':>8}{'recipients':>12}{'MB':>10}  {self._by}, as of {moment(int(at))}"
            rows = [
                f"{row.messages:>8}{row.recipients:>12}{row.size / 1e6:>10.1f}  {visible(row.key)}"
                for row in ranking.rows(RANKED)
            ]
            self.lines = [*troubles, head, *rows] if len(troubles) < len(self._homes) else troubles
            time.sleep(max(REST_MIN, REST * (time.monotonic() - begun)))


def show_live(home: Home, queues: Sequence[str], by: str) -> None:
    """Show the view until it is ended."""
    homes = home.each()
    ranker = Ranker(homes, queues, by)
    before: dict[str, Reading] = {}
    try:
        with LiveTerminal() as terminal:
            while True:
                readings, begun = {one.name: take_reading(one, None, reasons=True) for one in homes}, time.monotonic()
                shown = [LiveQueue(one.name, one.queue, readings[one.name], before.get(one.name)) for one in homes]
                while (left := INTERVAL - (time.monotonic() - begun)) > 0:
                    size = os.get_terminal_size(sys.stdout.fileno())
                    ranking = ranker.lines
                    lines = live_lines(shown, ranking, size.columns, size.lines)
                    terminal.draw(lines, size.lines)
                    if terminal.wait(left):
                        return
                before = readings
    except (KeyboardInterrupt, _ViewEnded):
        return
