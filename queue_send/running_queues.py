"""Which queues of the home have a running queue-send: the limits that hold over all queues are divided among these."""

import select
import time
from collections.abc import Sequence

from queue_base.daemon.lock import hold_running, is_running
from queue_base.errors import reason
from queue_base.home import Home
from queue_send.config import ConfigFiles, seconds_in_environment
from queue_send.delivery.channel import Channel
from queue_send.log import Log
from queue_send.scheduler.limits import QueueShare

# Seconds between looks. QUEUE_SHARES_ROUND sets another number.
LOOK_SECONDS = 3.0


class RunningQueues:
    """A part of the loop: looks at the other queues, every LOOK_SECONDS, and divides the limits anew."""

    def __init__(self, home: Home, config: ConfigFiles, channels: Sequence[Channel], log: Log) -> None:
        self._home = home
        self._others = [home.choose(name) for name in home.queues]
        self._config = config
        self._channels = channels
        self._look_at = 0.0
        self._round = seconds_in_environment("QUEUE_SHARES_ROUND", LOOK_SECONDS)
        try:
            self._handle = hold_running(home)
        except OSError as error:
            what = f"unable to lock {home.run}/lock/{home.name}.running: {reason(error)}"
            log.alert(f"{what}; the other queues do not leave this one its part of the limits")
        self._look()

    def _look(self) -> None:
        self._look_at = time.monotonic() + self._round
        running = [one.name for one in self._others if one.name == self._home.name or is_running(one)]
        share = QueueShare(running.index(self._home.name), len(running))
        if share != self._config.share:
            self._config.share = share
            for channel in self._channels:
                channel.apply_config()

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Waits until the next look."""
        return max(0.0, self._look_at - time.monotonic())

    def run(self, ready: dict[int, int], now: float) -> None:
        """Looks, if it is time."""
        if time.monotonic() >= self._look_at:
            self._look()
