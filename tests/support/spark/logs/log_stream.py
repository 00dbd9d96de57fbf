"""A simulated queue-send: its clock, its log, the runs that it begins and ends, its deliveries and their rows."""

import random

from support.spark.logs.log_mail import SUCCESSES, TROUBLES, Flight, Mail
from support.spark.logs.log_rows import IntervalRow, Truth

SECOND = 1_000_000_000
Sample = tuple[int, int, int, int]


class SimulatedRun:
    """What World does with a message goes through here.

    lines: (stamp in Unix nanoseconds, text), in order. truth: the rows of what has ended so far.
    """

    def __init__(self, seed: int, host: str = "alpha", queue: str = "main", begin: int = 1_700_000_000) -> None:
        self.host, self.queue = host, queue
        self.lines: list[tuple[int, str]] = []
        self.truth = Truth()
        self._rng = random.Random(f"{seed} {host} {queue}")
        self._now = begin * SECOND + self._rng.randrange(SECOND)
        self._said: set[tuple[int, str]] = set()
        self._flights: list[Flight] = []
        self._delivery = 0
        self._limits = (10, 20)
        self._open: tuple[int, Sample] | None = None
        self._leaving = False
        self._each = self._rng.random() < 0.5  # As qmail-send: a status line after each start and each end.

    def _say(self, text: str, mail: Mail | None = None) -> int:
        """Log a line; return its stamp. Two lines are never the same in both stamp and text."""
        self._now += self._rng.choice((0, 0, 0, 1, 40, 3_000, 900_000, 50_000_000, SECOND, 77 * SECOND))
        while (self._now, text) in self._said:
            self._now += 1
        self._said.add((self._now, text))
        self.lines.append((self._now, text))
        if mail is not None and not mail.first_ns:
            mail.first_ns = self._now
        return self._now

    def _status(self) -> None:
        local = sum(flight.channel == "local" for flight in self._flights)
        sample = (local, self._limits[0], len(self._flights) - local, self._limits[1])
        self._sample(sample)

    def _sample(self, sample: Sample) -> None:
        leaving = " exitasap" if self._leaving else ""
        at = self._say("status: local {}/{} remote {}/{}".format(*sample) + leaving)
        if self._open is None or self._open[1] != sample:
            self._close_interval(at)
            self._open = (at, sample)

    def _close_interval(self, until: int) -> None:
        if self._open is not None:
            self.truth.intervals.append(IntervalRow(self.host, self.queue, self._open[0], until, *self._open[1]))
            self._open = None

    def _begin(self) -> None:
        self._delivery = 0
        self._leaving = False
        self._now += 1  # No process writes in the nanosecond in which another ends.
        self._status()

    def _crash(self) -> None:
        if self._flights:
            self._close_interval(self.lines[-1][0])
        for flight in self._flights:
            flight.mail.flying -= 1
            flight.mail.waiting.append((flight.channel, flight.recipient))
            self.truth.deliveries.append(flight.row(self.host, self.queue, None, "lost", None))
        self._flights = []
        self._begin()

    def _stop(self) -> None:
        self._leaving = True
        self._status()
        while self._flights:
            self._finish()
        self._status()
        self._close_interval(self._say("status: exiting"))
        self._begin()

    def _step_clock(self) -> None:
        self._now += self._rng.choice((-3600, -40, -1, 5, 3600, 30 * 86400)) * SECOND

    def _change_limits(self) -> None:
        self._limits = (self._rng.randrange(5, 15), self._rng.randrange(8, 300))
        self._status()

    def _fly(self, mail: Mail) -> Flight:
        channel, recipient = mail.waiting.pop(self._rng.randrange(len(mail.waiting)))
        self._delivery += 1
        at = self._say(f"starting delivery {self._delivery}: msg {mail.id} to {channel} {recipient}", mail)
        flight = Flight(mail, self._delivery, channel, recipient, at)
        mail.flying += 1
        mail.tried.add((channel, recipient))
        self._flights.append(flight)
        return flight

    def _finish(self) -> None:
        if self._flights:
            result = self._rng.choices(("success", "failure", "deferral", "mangled"), (5, 3, 2, 0.5))[0]
            reasons = SUCCESSES if result == "success" else TROUBLES
            self._land(self._rng.choice(self._flights), result, self._rng.choice(reasons))
            self._after_delivery()

    def _land(self, flight: Flight, result: str, reason: str) -> None:
        mail = flight.mail
        mangled = result == "mangled"
        text = "report mangled, will defer" if mangled else f"{result}: {reason}"
        at = self._say(f"delivery {flight.number}: {text}")
        self._flights.remove(flight)
        mail.flying -= 1
        mail.successes += result == "success"
        mail.failures += result == "failure"
        if result in ("deferral", "mangled"):
            mail.deferrals += 1
            mail.waiting.append((flight.channel, flight.recipient))
        row = flight.row(self.host, self.queue, at, result, None if mangled else reason)
        self.truth.deliveries.append(row)

    def _after_delivery(self) -> None:
        if self._each or self._leaving or self._rng.random() < 0.4:
            self._status()
