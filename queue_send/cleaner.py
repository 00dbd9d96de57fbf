"""The pipes to queue-clean: which messages it is to remove, and which it has. What fails is asked for again later."""

import select
from collections import deque
from heapq import heappop, heappush

from queue_base.daemon.pipes import OutPipe, PeerLost, read_available
from queue_send.log import Log
from queue_send.loop import Shutdown
from queue_send.scheduler.retry import AGAIN_AFTER
from queue_wire.pipes.cleaning import ANSWERS, REMOVED, TODO, Removal, pack_clean

# Messages that wait for their removal; with more, no delivery is started, so that a slow disk does not fill up.
WAITING_MAX = 50_000
ANSWERS_A_TURN = 200  # Answers, and repeated requests: an answer may free the number of a new message.


class Cleaner:
    """The pipes to queue-clean: `ids` for message numbers, `answers` for one byte each, in the same order.

    Until the answer has come, the number is in use.
    """

    def __init__(self, ids: int, answers: int, log: Log, shutdown: Shutdown) -> None:
        self._log = log
        self._shutdown = shutdown
        self._ids = OutPipe(ids)
        self._answers = answers
        self._asked: deque[tuple[Removal, float]] = deque()  # With the time of the request.
        self._again: list[tuple[float, Removal]] = []
        # Requests for messages that were not classified, with the time, until the log is written up to a position.
        self._unlogged: deque[tuple[int, Removal, float]] = deque()
        self._removed: list[int] = []
        self.lost = False

    def take_removed(self) -> list[int]:
        """Return the messages that were removed since the last call."""
        removed, self._removed = self._removed, []
        return removed

    def remove(self, removal: Removal, now: float) -> None:
        """Ask for the removal of a message that has ended."""
        if removal.files == TODO:
            self._unlogged.append((self._log.position, removal, now))
        else:
            self._ask(removal, now)

    def _ask(self, removal: Removal, now: float) -> None:
        self._asked.append((removal, now))
        self._ids.put(pack_clean(*removal))

    def lag(self, now: float) -> tuple[int, float]:
        """Return how many messages wait for their removal, and the seconds that the oldest request has waited."""
        return len(self), max(0.0, now - self._asked[0][1]) if self._asked else 0.0

    @property
    def behind(self) -> bool:
        """Whether so many messages wait for their removal that no delivery is to be started."""
        return len(self) > WAITING_MAX

    def __len__(self) -> int:
        """Return how many messages wait for their removal."""
        return len(self._asked) + len(self._again) + len(self._unlogged)

    @property
    def busy(self) -> bool:
        """Whether requests have not been written yet. The answers need not be waited for."""
        return bool(self._ids.unwritten or self._unlogged) and not self.lost

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for answers, for room in the pipe, and for the next repeated request."""
        if self.lost:
            return 3600.0
        poll.register(self._answers, select.POLLIN)
        if self._ids.unwritten:
            poll.register(self._ids.descriptor, select.POLLOUT)
        if self._removed or (self._unlogged and self._log.has_written(self._unlogged[0][0])):
            return 0.0
        return max(0.0, self._again[0][0] - now) if self._again else 3600.0

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn: answers, repeats."""
        if self.lost:
            return
        try:
            if self._answers in ready:
                for answer in read_available(self._answers, ANSWERS_A_TURN) or b"":
                    self._take(answer, now)
            for _ in range(ANSWERS_A_TURN):
                if not self._again or self._again[0][0] > now:
                    break
                self._ask(heappop(self._again)[1], now)
        except PeerLost:
            self._lose()

    def write(self) -> None:
        """Write requests."""
        if self.lost:
            return
        while self._unlogged and self._log.has_written(self._unlogged[0][0]):
            _, removal, since = self._unlogged.popleft()
            self._ask(removal, since)
        try:
            self._ids.flush()
        except PeerLost:
            self._lose()

    def _lose(self) -> None:
        self.lost = True
        self._shutdown.lose("queue-clean")

    def _take(self, answer: int, now: float) -> None:
        if not self._asked or answer not in ANSWERS:
            self._log.warning("internal error: queue-clean sent something impossible")
            return
        removal, _ = self._asked.popleft()
        message = removal.message
        if answer != REMOVED[0]:
            self._log.warning(f"unable to clean up msg {message}; will try again later")
            heappush(self._again, (now + AGAIN_AFTER, removal if removal.files == TODO else Removal(message)))
            return
        self._removed.append(message)
