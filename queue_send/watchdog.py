"""The watchdog: mail that is due and not tried for ten times its interval, or past its lifetime, is an alert.

Every ROUND seconds it makes a round of both channels (queue_send.patrol), a piece in a turn of the loop. So
nothing that queue-send has can be forgotten in silence, whatever the reason: it is named with its cause.
"""

import os
import select
import time
from collections.abc import Iterator
from functools import partial

from queue_base.marks import birth_of
from queue_send.alerts import Alerts
from queue_send.channel import Channel
from queue_send.messages import Messages
from queue_send.overdue import Dates, Rule
from queue_send.patrol import Patrol
from queue_send.retry import SKIP_LOCAL, SKIP_REMOTE
from queue_send.run import Run
from queue_wire.admin.cause import Cause, describe
from queue_wire.format_error import FormatError
from queue_wire.ids import pack_long_id
from queue_wire.logline import moment

ROUND = 60.0  # Seconds between rounds; QUEUE_WATCHDOG_ROUND is another number, for tests.
# Seconds for which a job may be in flight; QUEUE_WATCHDOG_FLIGHT is another number. The slowest peer that keeps
# within timeoutremote for each of its replies takes some hours for a job of 50 recipients.
FLIGHT = 21600.0
PAUSE = 0.02  # Seconds between pieces, so that a round over a million messages takes a small part of the time.
WORK = 0.002  # Seconds of a turn of the loop for a piece: some steps, of a fraction of a millisecond each.
_OVER = object()


class Watchdog:
    """A part of the loop."""

    def __init__(self, run: Run, messages: Messages, channels: list[Channel]) -> None:
        self._run = run
        self._messages = messages
        self._channels = channels
        self._round = _number("QUEUE_WATCHDOG_ROUND", ROUND)
        self._flight = _number("QUEUE_WATCHDOG_FLIGHT", FLIGHT)
        self._begun = run.clock.now()
        self._alerts = Alerts()
        self._patrols = {channel.kind: self._patrol(channel.kind) for channel in channels}
        self._steps: Iterator[None] | None = None
        self._next = time.monotonic() + self._round

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for the next round, or the next piece of this one."""
        return 3600.0 if self._run.leaving else max(0.0, self._next - time.monotonic())

    def run(self, ready: dict[int, int], now: float) -> None:
        """Do a piece of a round, if it is time."""
        if self._run.leaving or time.monotonic() < self._next:
            return
        if self._steps is None:
            self._steps = self._rounds(now)
        until = self._run.until(WORK)
        while self._steps is not None:
            if next(self._steps, _OVER) is _OVER:
                self._steps = None
            elif time.monotonic() >= until:
                break
        self._next = time.monotonic() + (PAUSE if self._steps else self._round)

    def _rounds(self, now: float) -> Iterator[None]:
        may_speak = self._alerts.begin(now)
        for channel in self._channels:
            patrol = self._patrols[channel.kind]
            patrol.rule = self._rule(channel.kind)
            steps = patrol.round(channel.flights, channel.stopped, now) if may_speak else patrol.quiet_round(now)
            for _ in steps:
                self._messages.decisions[channel.kind].apply()
                yield None
            self._messages.decisions[channel.kind].apply()  # What was given up has failed.
        if may_speak and (others := self._alerts.end(now)):
            self._run.log.alert(
                f"up to {others} more messages are overdue; queuectl destinations, and queuectl show ID, tell why"
            )

    def _patrol(self, kind: str) -> Patrol:
        return Patrol(
            kind, self._messages.schedulers[kind], self._rule(kind), self._flight, partial(self._look, kind),
            self._alerts, self._alert,
        )  # fmt: skip

    def _rule(self, kind: str) -> Rule:
        return Rule(self._run.controls.retry, SKIP_LOCAL if kind == "local" else SKIP_REMOTE, self._begun)

    def _look(self, kind: str, message: int, stamp: int | None = None) -> Dates | None:
        """Return what the disk says of a message that is to be tried; None for any other.

        `stamp` is the next attempt that its file should have; where it has another one, that has an entry of its own.
        """
        messages, clock = self._messages, self._run.clock
        if message in messages.held or message in messages.parked:
            return None
        try:
            due = messages.store.due(message, kind)
            if due is None or (stamp is not None and stamp not in clock.all_from_disk(due)):
                return None
            sender, birth = messages.store.load(message)
        except (OSError, FormatError):
            return None  # It has ended meanwhile; or its next attempt says what is wrong with it.
        birth = clock.from_disk(birth)
        due = clock.from_disk(due) if stamp is None else stamp
        return Dates(birth, due, birth + self._run.controls.lifetime(sender))

    def _alert(self, message: int, dates: Dates, cause: Cause, past: bool) -> None:
        try:
            birth = birth_of(self._messages.store.layout, message)
        except OSError:
            birth = None
        clock = self._run.clock
        name = pack_long_id(message, clock.to_disk(dates.birth) * 1_000_000 if birth is None else birth)
        when = moment(clock.to_disk(dates.expires if past else dates.due))
        since = f"past its lifetime since {when}" if past else f"due since {when}"
        cause = cause._replace(time=cause.time and clock.to_disk(cause.time))
        self._run.log.alert(f"msg {message} ({name}) has been {since}: {describe(cause)}")


def _number(name: str, default: float) -> float:
    """Return a number of seconds that the environment has."""
    try:
        return max(0.01, float(os.environ.get(name, default)))
    except ValueError:
        return default
