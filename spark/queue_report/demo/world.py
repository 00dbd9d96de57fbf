"""A simulated host: what comes in by day and week, and what becomes of it, as its log tells."""

import heapq
import math
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from queue_report.demo.destinations import DAY, DAYS, HOUR, Destination, make_destinations, person
from queue_report.demo.multilog import Multilog
from queue_report.demo.sender import Sender
from queue_report.demo.things import HOSTS, Host, Job, Mail

# The most that _busy returns.
BUSIEST = 1.5 * 1.4


def write_logs(directory: Path, seed: int = 1, days: int = DAYS) -> None:
    """Write the logs of all hosts as DIRECTORY/HOST/main/: the same bytes for the same seed."""
    destinations = make_destinations(seed)
    for host in HOSTS:
        log = Multilog(directory / host.name / "main")
        World(host, destinations, log, seed).run(days)
        log.close()


class World(Sender):
    """Simulates one host. run() writes its log."""

    def __init__(self, host: Host, destinations: Sequence[Destination], log: Multilog, seed: int) -> None:
        super().__init__(host, log, random.Random(f"{host.name} {seed}"))
        self._destinations, self._weights = destinations, [destination.weight for destination in destinations]
        self._by_name = {destination.name: destination for destination in destinations}
        self._todo: list[tuple[str, dict[str, Destination | None], int]] = []
        # The numbers of messages: the smallest free one is next, as a disk gives its inodes out again.
        self._ids = list(range(40_000, 90_000))
        self._qp = 2_000

    def run(self, days: int = DAYS) -> None:
        self._start()
        self._at(self._gap(), self._arrive)
        for week in range(-(-days // 7)):
            self._at((7 * week + 7) * DAY + 3.2 * HOUR, self._stop)
            if self._host.newsletter:
                self._at((7 * week + 2) * DAY + 9.1 * HOUR, self._send_news)
        if self._host.crash is not None:
            self._at(self._host.crash, self._crash)
        self._go_on(days * DAY)

    def _gap(self) -> float:
        """Return the time until the next message."""
        gap = 0.0
        while True:
            # Candidates come at the highest rate; as many stay as the hour is busy.
            gap += self._rng.expovariate(self._host.daily / DAY * 3 * BUSIEST)
            if self._rng.random() * BUSIEST < _busy(self._now + gap):
                return gap

    def _arrive(self) -> None:
        number = 1 if self._rng.random() < 0.86 else self._rng.randrange(2, 8)
        to = dict(self._recipient(self._rng.random() < self._host.away) for _ in range(number))
        # Who writes to the world is ours; who writes to us is mostly not.
        ours = self._rng.random() < self._host.away
        domain = self._host.domain if ours else self._rng.choices(self._destinations, self._weights)[0].name
        self._queue(f"{person(self._rng)}@{domain}", to, self._next_qp())
        self._at(self._now + self._gap(), self._arrive)

    def _send_news(self) -> None:
        to = dict(self._recipient(away=True) for _ in range(self._host.newsletter))
        self._queue(f"news-owner@{self._host.domain}", to, self._next_qp())

    def _recipient(self, away: bool) -> tuple[str, Destination | None]:
        destination = self._rng.choices(self._destinations, self._weights)[0] if away else None
        return f"{person(self._rng)}@{destination.name if destination else self._host.domain}", destination

    def _next_qp(self) -> int:
        self._qp = self._qp + self._rng.randrange(1, 9) if self._qp < 32_000 else 400
        return self._qp

    def _queue(self, sender: str, to: dict[str, Destination | None], qp: int) -> None:
        self._todo.append((sender, to, qp))
        self._classify()

    def _classify(self) -> None:
        while self._running and self._todo:
            sender, to, qp = self._todo.pop(0)
            mail = Mail(heapq.heappop(self._ids), sender, self._now, len(to))
            size = int(self._rng.lognormvariate(9.3, 1.4)) + 600
            uid = 1001 if sender.endswith(self._host.domain) else 64011
            self._say(f"new msg {mail.id}")
            self._say(f"info msg {mail.id}: bytes {size} from <{sender}> qp {qp} uid {uid}")
            for recipient, destination in to.items():
                # queue-send takes a moment to open it.
                ready = self._now + self._rng.lognormvariate(-4.2, 0.6)
                self._at(ready, partial(self._offer, Job(mail, recipient, destination)))

    def _settle(self, mail: Mail, failed: bool) -> None:
        mail.open -= 1
        mail.failed |= failed
        if mail.open == 0:
            if mail.failed:
                self._bounce(mail)
            self._say(f"end msg {mail.id}")
            heapq.heappush(self._ids, mail.id)

    def _bounce(self, mail: Mail) -> None:
        if mail.sender == "#@[]":
            self._say(f"triple bounce: discarding bounce/{mail.id}")
            return
        to, sender = (mail.sender, "") if mail.sender else (f"postmaster@{self._host.domain}", "#@[]")
        qp = self._next_qp()
        self._say(f"bounce msg {mail.id} qp {qp}")
        destination = self._by_name.get(to.rpartition("@")[2])
        self._at(self._now + 0.02, partial(self._queue, sender, {to: destination}, qp))


def _busy(at: float) -> float:
    """Return how busy a time is, about 1/3 on average: workdays, by day, less at lunch."""
    hour = at / HOUR % 24
    workday = 0 < at // DAY % 7 < 6
    rhythm = 0.08 + math.exp(-(((hour - 10.2) / 2.6) ** 2)) + 0.85 * math.exp(-(((hour - 15) / 2.8) ** 2))
    return min(rhythm, 1.4) * (1.5 if workday else 0.4)
