"""The state of a queue and its daemons at one moment: queue-send's figures, its processes, the disk, the marks.

A reading asks queue-send once, and looks at a handful of files. It never looks at the messages. The processes of
queue-smtpd and the queue-intake in front of several queues, which all share, are looked for apart from it.
"""

import os
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from queue_admin.messages.admin_client import NoAnswer, SchedulerQueries, may_ask_counts_alone
from queue_admin.metrics.oldest_walk import Walked
from queue_admin.metrics.smtpd_client import ask_processes
from queue_admin.metrics.system_facts import DiskSpace, ProcessFacts, disk_space, find_intake, find_processes
from queue_base.accounts import queue_owner
from queue_base.errors import Failure
from queue_base.home import Home
from queue_base.queue.inflow import refuse_mark, slow_mark
from queue_wire.admin.figure import Figure
from queue_wire.admin.smtpd_status import ProcessStatus


class Reading(NamedTuple):
    """What is known at the time `at`, in seconds since the epoch.

    `figures` is empty if queue-send did not answer, and `trouble` says why then. `slow` and `refused` are the marks of
    in-flow control. `walked` is None if no walk has ended yet. `silent`: the reading itself takes long, so nothing is
    known. `smtpd` are the processes of queue-smtpd that answer, where they were asked, too. `reasons` has, by channel
    and nexthop, why the dead destinations of the figures could not be reached last, where that was asked. With
    `only_counts` whoever asks may not read the queue, and knows neither the marks nor the destinations.
    """

    at: float
    figures: list[Figure]
    trouble: str
    processes: list[ProcessFacts]
    disk: DiskSpace | None
    slow: bool
    refused: bool
    walked: Walked | None
    silent: bool = False
    smtpd: Sequence[ProcessStatus] = ()
    reasons: Mapping[tuple[bytes, ...], bytes] = {}
    only_counts: bool = False

    def number(self, name: bytes, *labels: bytes) -> float:
        """Return the sum of the figures of a name whose first labels are these."""
        return sum(each.number for each in self.figures if each.name == name and each.labels[: len(labels)] == labels)


def take_reading(home: Home, walked: Walked | None, reasons: bool = False) -> Reading:
    """Return what is known now. `reasons`: also ask why destinations are dead.

    Raises Temporary if this process may not even ask for counts.
    """
    figures: list[Figure] = []
    processes: list[ProcessFacts] = []
    trouble = ""
    known: dict[tuple[bytes, ...], bytes] = {}
    only_counts = may_ask_counts_alone(home)
    try:
        with SchedulerQueries(home, only_counts) as queries:
            processes = find_processes(queries.pid) if queries.pid else []
            figures = queries.figures()
            dead = [each.labels for each in figures if reasons and each.name == b"suspended"]
            for channel in dict.fromkeys(labels[0] for labels in dead):
                names = [os.fsdecode(labels[1]) for labels in dead if labels[0] == channel]
                found = queries.destinations(channel.decode("ascii"), names)
                known |= {(channel, each.nexthop): each.reason for each in found if each.reason}
    except NoAnswer as error:
        trouble = str(error)
    try:
        disk = disk_space(home.queue)
    except OSError:
        disk = None
    marks = slow_mark(home).holds(), refuse_mark(home).holds()
    at = time.time()
    return Reading(at, figures, trouble, processes, disk, *marks, walked, reasons=known, only_counts=only_counts)


def silent_reading(at: float, seconds: float) -> Reading:
    """Return what is known if a reading has not come after some seconds."""
    trouble = f"the queue has not answered for {seconds:.0f} s: its disk or its queue-send hangs"
    return Reading(at, [], trouble, [], None, False, False, None, silent=True)


class SharedReading(NamedTuple):
    """What is known of the services that all queues of a home share, at the time `at`.

    `smtpd` are the processes of queue-smtpd that answer, None if this process may not ask them. With several queues,
    `listening` is whether the queue-intake in front of them listens, and `intake` what is known of its process, None
    for nothing.
    """

    at: float
    smtpd: Sequence[ProcessStatus] | None = ()
    several: bool = False
    listening: bool = False
    intake: ProcessFacts | None = None


def take_shared(home: Home) -> SharedReading:
    """Return what is known now of what all queues share."""
    smtpd: Sequence[ProcessStatus] | None = ()
    try:
        may_ask = os.geteuid() in (0, queue_owner(home).uid)
        smtpd = ask_processes(home, False).processes if may_ask else None
    except Failure:
        pass
    listening, intake = find_intake(home) if home.several else (False, None)
    return SharedReading(time.time(), smtpd, home.several, listening, intake)
