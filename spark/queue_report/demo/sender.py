"""A simulated queue-send: its runs, its deliveries within the limits, its destinations that die and come back."""

import heapq
import math
import random
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable
from functools import partial

from queue_report.demo.destinations import DAY, answer
from queue_report.demo.multilog import Multilog
from queue_report.demo.things import Dead, Host, Job, Mail

START = 1_772_323_200  # 2026-03-01 UTC, a Sunday.
LIFETIME = 4 * DAY
TOO_LONG = "I'm_not_going_to_try_again;_this_message_has_been_in_the_queue_too_long./"


class Sender(ABC):
    """Times are seconds from START. Whoever makes mail offers its recipients as jobs."""

    def __init__(self, host: Host, log: Multilog, rng: random.Random) -> None:
        self._host, self._log, self._rng = host, log, rng
        self._now, self._last_ns = 0.0, 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._running, self._run, self._delivery = False, 0, 0
        self._ready: tuple[deque[Job], deque[Job]] = (deque(), deque())
        self._flying: dict[tuple[int, int], Job] = {}
        self._count = [0, 0]
        self._sample: tuple[int, int] | None = None
        self._misses: Counter[str] = Counter()
        self._dead: dict[str, Dead] = {}

    @abstractmethod
    def _classify(self) -> None:
        """Take what waits in todo/."""

    @abstractmethod
    def _settle(self, mail: Mail, failed: bool) -> None:
        """A recipient of a message was delivered to, or has failed."""

    def _at(self, when: float, event: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._events, (max(when, self._now), self._serial, event))

    def _go_on(self, until: float) -> None:
        """Do what is due before a time."""
        while self._events and self._events[0][0] < until:
            self._now, _, event = heapq.heappop(self._events)
            event()
            self._pump()

    def _stamp(self) -> int:
        self._last_ns = max(self._last_ns + self._rng.randrange(9_000, 60_000), START * 10**9 + int(self._now * 1e9))
        return self._last_ns

    def _say(self, text: str) -> None:
        self._log.write(self._stamp(), text)

    # Runs.

    def _start(self) -> None:
        self._running, self._delivery, self._sample = True, 0, None
        self._run += 1
        self._status()
        self._classify()

    def _stop(self) -> None:
        self._running, self._sample = False, None
        self._status()
        self._leave()

    def _leave(self) -> None:
        if not self._flying:
            self._say("status: exiting")
            self._at(self._now + 4, self._start)

    def _crash(self) -> None:
        """Simulate a power cut in the middle of a line."""
        self._running = False
        text = f"starting delivery {self._delivery + 1}: msg 40000 to local anna@{self._host.domain}"
        self._log.cut(self._stamp(), text)
        for job in self._flying.values():
            self._ready[job.channel].appendleft(job)
        self._flying.clear()
        self._count = [0, 0]
        self._at(self._now + 95, self._start)

    def _status(self) -> None:
        sample = (self._count[0], self._count[1])
        if sample != self._sample:
            self._sample = sample
            tail = "" if self._running else " exitasap"
            (local, remote), (most_local, most_remote) = sample, self._host.limits
            self._say(f"status: local {local}/{most_local} remote {remote}/{most_remote}{tail}")

    # Deliveries.

    def _offer(self, job: Job) -> None:
        """A recipient is due: it waits for its turn, or for its destination to come back."""
        if job.destination is not None and job.destination.name in self._dead:
            self._dead[job.destination.name].parked.append(job)
        else:
            self._ready[job.channel].append(job)

    def _pump(self) -> None:
        if self._running:
            for ready, limit, channel in zip(self._ready, self._host.limits, (0, 1), strict=True):
                while ready and self._count[channel] < limit:
                    self._try(ready.popleft())
        if self._running or self._flying:
            self._status()

    def _try(self, job: Job) -> None:
        self._delivery += 1
        number = self._delivery
        self._flying[self._run, number] = job
        self._count[job.channel] += 1
        channel = ("local", "remote")[job.channel]
        self._say(f"starting delivery {number}: msg {job.mail.id} to {channel} {job.recipient}")
        if job.destination is not None:
            result, text, took = answer(self._rng, job.destination, job.recipient, self._now, job.tries)
        else:
            good = self._rng.random() > 0.012
            result, text = ("success", "did_1+0+0/") if good else ("failure", "Sorry,_no_mailbox_here._(#5.1.1)/")
            took = self._rng.lognormvariate(-3.2, 0.6)
        self._at(self._now + took, partial(self._finish, (self._run, number), result, text))

    def _finish(self, flight: tuple[int, int], result: str, text: str) -> None:
        job = self._flying.pop(flight, None)
        if job is None:
            return  # The power went meanwhile.
        self._count[job.channel] -= 1
        age = self._now - job.mail.birth
        if result == "deferral" and age > LIFETIME:
            result, text = "failure", text + TOO_LONG
        self._say(f"delivery {flight[1]}: {result}: {text}")
        job.tries += 1
        if job.destination is not None:
            self._learn(job.destination.name, missed="(#4.4.1)" in text)
        if result == "deferral":
            # qmail's schedule.
            skip = 20 if job.destination else 10
            self._at(job.mail.birth + (math.sqrt(age) + skip) ** 2, partial(self._offer, job))
        else:
            self._settle(job.mail, result == "failure")
        if not self._running:
            self._leave()

    # Destinations.

    def _learn(self, name: str, missed: bool) -> None:
        """After three misses in a row a destination counts as dead, until any other answer."""
        self._misses[name] = self._misses[name] + 1 if missed else 0
        dead = self._dead.get(name)
        if dead is None and self._misses[name] >= 3:
            parked = [job for job in self._ready[1] if job.destination is not None and job.destination.name == name]
            for job in parked:
                self._ready[1].remove(job)
            self._dead[name] = Dead(60, parked)
            self._say(f"dest {name} dead: probe in 60 s, {len(parked)} recipients deferred")
            self._at(self._now + 60, partial(self._probe, name))
        elif dead is not None and not missed:
            del self._dead[name]
            self._say(f"dest {name} alive: {len(dead.parked)} recipients were deferred without an attempt")
            self._ready[1].extend(dead.parked)

    def _probe(self, name: str) -> None:
        dead = self._dead.get(name)
        if dead is not None:
            if self._running and dead.parked:
                self._try(dead.parked.pop(0))
            dead.pause = min(dead.pause * 1.6, 1800)
            self._at(self._now + dead.pause, partial(self._probe, name))
