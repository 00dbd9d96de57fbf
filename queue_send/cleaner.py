"""queue-clean as queue-send sees it: ids out, answers in, in order.

Until the answer has come the number is taken. A notice about a new message of the same number, which can be
here before the answer, waits for it.
"""

import select
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from queue_base.pipes import OutPipe, PeerLost, read_available
from queue_send.run import Run
from queue_wire.cleaning import ANSWERS, REMOVED, pack_clean
from queue_wire.notice import Classified

AGAIN_AFTER = 123.0  # Seconds until a removal that failed is asked for again.
A_TURN = 200  # Answers, and requests that are repeated, in one turn of the loop: a number may bring a new message.


class Cleaner:
    """`ids` and `answers` are descriptors."""

    def __init__(self, run: Run, ids: int, answers: int) -> None:
        self._run = run
        self._ids = OutPipe(ids)
        self._answers = answers
        self._asked: deque[int] = deque()
        self._again: list[tuple[float, int]] = []
        self._held: dict[int, Classified | None] = {}
        self._arrive: Callable[[Classified, float], None] | None = None
        self.lost = False

    def attach(self, arrive: Callable[[Classified, float], None]) -> None:
        """Name the function that a notice is given back to."""
        self._arrive = arrive

    def remove(self, message: int) -> None:
        """Ask for the removal of a finished message."""
        self._held[message] = None
        self._ask(message)

    def _ask(self, message: int) -> None:
        self._asked.append(message)
        self._ids.put(pack_clean(message))

    def holds(self, message: int) -> bool:
        """Return whether the number belongs to a message that is being removed."""
        return message in self._held

    def defer(self, notice: Classified) -> bool:
        """Keep a notice whose number is taken, and return True; False where it is free."""
        if notice.message not in self._held:
            return False
        self._held[notice.message] = notice
        return True

    @property
    def busy(self) -> bool:
        """Whether requests have not been written yet; the answers need not be waited for."""
        return bool(self._ids.held) and not self.lost

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for answers, for room in the pipe, and for the next repeated request."""
        if self.lost:
            return 3600.0
        poll.register(self._answers, select.POLLIN)
        if self._ids.held:
            poll.register(self._ids.descriptor, select.POLLOUT)
        return max(0.0, self._again[0][0] - now) if self._again else 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn: answers, repeats, requests."""
        if self.lost:
            return
        try:
            if self._answers in ready:
                for answer in read_available(self._answers, A_TURN) or b"":
                    self._take(answer, now)
            for _ in range(A_TURN):
                if self._again and self._again[0][0] <= now:
                    self._ask(heappop(self._again)[1])
            if self._ids.held:
                self._run.log.flush()
            self._ids.flush()
        except PeerLost:
            self.lost = True
            self._run.lose("queue-clean")

    def _take(self, answer: int, now: float) -> None:
        if not self._asked or answer not in ANSWERS:
            self._run.log.warning("internal error: queue-clean sent something impossible")
            return
        message = self._asked.popleft()
        if answer != REMOVED[0]:
            self._run.log.warning(f"unable to clean up msg {message}; will try again later")
            heappush(self._again, (now + AGAIN_AFTER, message))
            return
        notice = self._held.pop(message, None)
        if notice is not None and self._arrive is not None:
            self._arrive(notice, now)
