"""Runs queue-send and writes down the CPU time of each turn of its loop: measured.py FILE PROGRAM ARGUMENT...

FILE gets a line of JSON at the end: the CPU milliseconds of all turns, and of the worst ones what each part took.
Nothing in queue-send knows of this.
"""

import json
import runpy
import sys
import time
from array import array
from heapq import heappushpop
from typing import Any

from queue_send.main import QueueSend

WORST = 5


class Timed:
    """A part of the loop with the CPU time of its last turn."""

    def __init__(self, part: Any) -> None:
        self._part = part
        self.name = type(part).__name__ + str(getattr(part, "kind", ""))
        self.took = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)

    def run(self, ready: dict[int, int], now: float) -> None:
        """Run the part."""
        before = time.thread_time()
        self._part.run(ready, now)
        self.took = time.thread_time() - before


class Turns:
    """What the turns took, in milliseconds."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._all = array("f")
        self._worst: list[tuple[float, int, dict[str, float]]] = [(0.0, -place, {}) for place in range(WORST)]

    def turn(self, sender: Any, real: Any) -> None:
        """Make a turn of a QueueSend."""
        if not isinstance(sender._parts[0], Timed):
            sender._parts = [Timed(part) for part in sender._parts]
        before = time.thread_time()
        real(sender)
        took = 1000 * (time.thread_time() - before)
        self._all.append(took)
        if took > self._worst[0][0]:
            parts = {part.name: round(1000 * part.took, 1) for part in sender._parts if part.took > 0.0005}
            heappushpop(self._worst, (took, len(self._all), parts))

    def write(self) -> None:
        """Write the file."""
        worst = [(round(took, 1), parts) for took, _, parts in sorted(self._worst, reverse=True) if took]
        with open(self._path, "w", encoding="ascii") as file:
            json.dump({"turns": [round(took, 3) for took in self._all], "worst": worst}, file)


def main() -> None:
    """Run the program."""
    path, *sys.argv = sys.argv[1:]
    turns = Turns(path)
    real_turn, real_finish = QueueSend.turn, QueueSend.finish

    def finish(sender: QueueSend) -> int:
        turns.write()
        return real_finish(sender)

    QueueSend.turn = lambda sender: turns.turn(sender, real_turn)  # type: ignore[method-assign]
    QueueSend.finish = finish  # type: ignore[method-assign]
    if sys.argv[0] == sys.executable:
        del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
