"""What the parts of queue-send that deal with mail have in common, made once at the start."""

from typing import NamedTuple

from queue_base.daemon.clock import Clock
from queue_base.daemon.disk_thread import DiskThread
from queue_send.config import ConfigFiles
from queue_send.counters import Counters
from queue_send.disk_retry import DiskRetry
from queue_send.events import Events
from queue_send.log import Log
from queue_send.loop import Shutdown, TimeBudget
from queue_send.messages.message_files import Store


class SharedParts(NamedTuple):
    """The queue's files, the log, the control files, the threads and times of the loop, and the events of messages."""

    store: Store
    log: Log
    clock: Clock
    config: ConfigFiles
    disk: DiskThread
    retry: DiskRetry
    budget: TimeBudget
    shutdown: Shutdown
    events: Events
    counters: Counters
