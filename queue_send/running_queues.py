"""Which queues of the home have a running queue-send: the limits that hold over all queues are divided among these."""

import select
import time
from collections.abc import Sequence

from queue_base.daemon.lock import LOOK_SECONDS, ShareWatch, hold_running
from queue_base.errors import reason
from queue_base.home import Home
from queue_send.config import ConfigFiles, seconds_in_environment
from queue_send.delivery.channel import Channel
from queue_send.log import Log


class RunningQueues:
    """A part of the loop: looks at the other queues, and divides the limits anew.

    It looks every LOOK_SECONDS, or as the environment variable QUEUE_SHARES_ROUND says.
    """

    def __init__(self, home: Home, config: ConfigFiles, channels: Sequence[Channel], log: Log) -> None:
        self._config = config
        self._channels = channels
        self._watch = ShareWatch(home, seconds_in_environment("QUEUE_SHARES_ROUND", LOOK_SECONDS))
        try:
            self._handle = hold_running(home)
        except OSError as error:
            what = f"unable to lock {home.run}/lock/{home.name}.running: {reason(error)}"
            log.alert(f"{what}; the other queues do not leave this one its part of the limits")
        self._look()

    def _look(self) -> None:
        if self._watch.look(time.monotonic()):
            self._config.share = self._watch.share
            for channel in self._channels:
                channel.apply_config()

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait until the next look."""
        return max(0.0, self._watch.look_at - time.monotonic())

    def run(self, ready: dict[int, int], now: float) -> None:
        """Look, if it is time."""
        self._look()
