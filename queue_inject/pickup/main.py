"""queue-pickup: moves mail that users left in maildrop/ into the queue, with the uids of its owners.

Descriptor 0 is a pipe from queue-send; nothing is written to it, and queue-pickup exits 0 when it ends. Descriptor 1
takes log lines for queue-send to print. maildrop/ is watched with inotify. It is scanned at start, when names were
lost, and every 25 minutes; without inotify, every few seconds.

After a failure mail stays where it is and is tried again. A crash may repeat a message but never loses one. While the
disk is short, or queue-todo refuses mail, everything stays in maildrop/. While queue-todo slows injectors, one group of
files is taken a second.

Where the home has several queues, mail is spread over all of them, and goes to the others if the disk of this one is
full.
"""

import os
import select
import signal
import stat
import time

from queue_base.accounts import Owner, become_queue_owner, trusted_users
from queue_base.daemon.log_limit import LimitedLog
from queue_base.daemon.pipes import OutPipe, PeerLost, read_available
from queue_base.daemon.signals import ignore
from queue_base.daemon.watch import RENAMED, Watch
from queue_base.errors import Failure, complain, reason
from queue_base.home import Home, take_daemon_home
from queue_base.queue.inflow import SLOW_SECONDS
from queue_base.queue.layout import open_layout
from queue_base.queue.writer import QueueWriter
from queue_inject.pickup.collector import Collector
from queue_inject.pickup.corrupt import CorruptMail
from queue_inject.pickup.failed_files import RETRY_MAX, RETRY_SECONDS
from queue_inject.pickup.file_checks import OriginRules
from queue_inject.pickup.scan import MaildropScan
from queue_inject.pickup.untrusted_directory import Directory
from queue_wire.logline import alert, warning
from queue_wire.pipes.notice import pack_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from queue_inject.pickup.copying import PickupWriter

PROGRAM = "queue-pickup"
USAGE = "usage: queue-pickup [--home HOME] [--queue NAME]"
HELP = f"""{USAGE}
Moves mail that users left in maildrop/ into the queue. It is started by queue-start.
"""
SCAN_SECONDS = 25 * 60
# The length of a slice of a scan. inotify's queue of 16,384 names must not overflow meanwhile.
SCAN_SLICE = 0.05
# The time between scans without inotify.
BLIND_SECONDS = 5
# The time between looks at the disk and the marks while no mail may be taken.
LOOK_SECONDS = 5.0
# A log line is at most 1,000 bytes, so these are over 1,000 lines that queue-send has not read. Others are dropped.
LOG_MAX = 1 << 20


def is_same_disk(one: str, other: str) -> bool:
    """Return whether two directories are on one file system."""
    try:
        return os.stat(one).st_dev == os.stat(other).st_dev
    except OSError:
        return False


class Pickup:
    """The daemon: a collector, a scan, a watch, a log, and the times of what is to be done next (monotonic clock)."""

    def __init__(self, home: Home) -> None:
        owner = become_queue_owner(home)
        self._log = OutPipe(1)
        self._maildrop = home.queue + "/maildrop"
        writer = self._open_writer(home, owner)
        self._spreads = home.several
        self._inflow = writer.inflow
        self._inflow.moves = not self._spreads and is_same_disk(self._maildrop, home.queue + "/mess")
        self._warnings = LimitedLog(self.warn, "more warnings")
        self._alerts = LimitedLog(self.alert, "more files were set aside")
        directory = Directory(self._maildrop)
        corrupt = CorruptMail(home.queue, self._maildrop, self._alerts)
        rules = OriginRules(self._group_of_files(), owner.uid == 0, trusted_users(owner))
        self._collector = Collector(directory, writer, rules, corrupt, self._warnings)
        self._scan = MaildropScan(directory, self._collector, corrupt, self.warn)
        self._watch = Watch([self._maildrop], RENAMED)
        self._scan_every = SCAN_SECONDS
        if self._watch.problem:
            self._scan_every = BLIND_SECONDS
            problem = self._watch.problem
            self.alert(f"unable to watch {self._maildrop}: {problem}; it is scanned every {BLIND_SECONDS} s")
        self._retry = RETRY_SECONDS
        self._next_scan = self._next_try = self._next_take = 0.0
        self._closed = self._slow = False

    def _open_writer(self, home: Home, owner: Owner) -> "PickupWriter":
        """Return a writer to the queue, or to all that the home has. Raises a Failure."""
        if not home.several:
            return QueueWriter(home, open_layout(home.queue), os.getuid())
        # Imported here because most homes have one queue.
        from queue_base.queue.spreading import open_spread

        return open_spread(home, owner, os.getuid())

    def _why_closed(self) -> str | None:
        """Return why no mail may be taken, None if it may.

        From a disk that is read-only files cannot be removed: after a restart they would be queued again.
        """
        if self._spreads:
            try:
                if os.statvfs(self._maildrop).f_flag & os.ST_RDONLY:
                    return f"{self._maildrop} is on a disk that is read-only"
            except OSError as error:
                return f"unable to use {self._maildrop}: {reason(error)}"
        return self._inflow.why_closed()

    def _group_of_files(self) -> int | None:
        """Return the group that maildrop/ gives to files created in it, by its set-group-id bit, or None."""
        try:
            found = os.stat(self._maildrop)
            if not found.st_mode & stat.S_ISGID:
                # A process that is not in the group may not set the bit. Our own group serves as well.
                os.chown(self._maildrop, -1, os.getegid())
                os.chmod(self._maildrop, stat.S_IMODE(found.st_mode) | stat.S_ISGID)
                found = os.stat(self._maildrop)
        except OSError as error:
            why = reason(error)
        else:
            if found.st_mode & stat.S_ISGID:
                return found.st_gid
            why = "its file system does not keep the bit"
        self.alert(f"unable to set the set-group-id bit of {self._maildrop}: {why}; whose mail it is is not certain")
        return None

    def warn(self, text: str) -> None:
        """Have queue-send print a warning."""
        self._say(warning(f"{PROGRAM}: {text}"))

    def alert(self, text: str) -> None:
        """Have queue-send print an alert."""
        self._say(alert(f"{PROGRAM}: {text}"))

    def _say(self, line: bytes) -> None:
        if self._log.unwritten < LOG_MAX:
            self._log.put(pack_log(line))

    def poll(self) -> None:
        """Wait until there is something to do. Raises PeerLost when queue-send has gone."""
        due = [self._next_scan, *(log.due for log in (self._warnings, self._alerts) if log.due is not None)]
        if self._scan.running or self._watch.lost:
            due.append(0.0)
        if self._collector.waiting:
            due.append(self._next_take)
        if self._collector.failed.due is not None:
            due.append(max(self._collector.failed.due, self._next_take))
        if self._collector.has_queued:
            due.append(max(self._next_try, self._next_take))
        poller = select.poll()
        poller.register(0, select.POLLIN)
        if self._watch.descriptor is not None:
            poller.register(self._watch.descriptor, select.POLLIN)
        if self._log.unwritten:
            poller.register(1, select.POLLOUT)
        ready = {descriptor for descriptor, _ in poller.poll(max(0.0, min(due) - time.monotonic()) * 1000)}
        if 0 in ready:
            read_available(0)
        if self._watch.descriptor in ready:
            for name in self._watch.take():
                self._collector.add(name)

    def run(self) -> None:
        """Do what is due. Raises PeerLost."""
        now = time.monotonic()
        self._continue_scan(now)
        if self._wants_turn(now) and now >= self._next_take and self._is_open(now):
            self._take(now)
        self._warnings.run()
        self._alerts.run()
        self._log.flush()

    def _wants_turn(self, now: float) -> bool:
        """Return whether there is mail to take, to try again, or to remove."""
        due = self._collector.failed.due
        again = (due is not None and now >= due) or (self._collector.has_queued and now >= self._next_try)
        return self._collector.waiting or again

    def _continue_scan(self, now: float) -> None:
        """Scan a part of maildrop/, if a scan is due or running."""
        # Names that were not kept are found again when those that were kept are done.
        missed = self._collector.missed and not self._collector.waiting and now >= self._next_try
        if not self._scan.running and (now >= self._next_scan or self._watch.lost or missed):
            self._watch.lost = False
            self._next_scan = now + self._scan_every
            self._scan.begin()
        if self._scan.running:
            self._scan.run(SCAN_SLICE)

    def _is_open(self, now: float) -> bool:
        """Return whether mail may be taken, and set when the next group may be taken."""
        why = self._why_closed()
        self._slow = self._inflow.slow
        if why and not self._closed:
            self.alert(f"unable to queue mail: {why}; it stays in {self._maildrop} until then")
        if self._closed and not why:
            self._retry, self._next_try = RETRY_SECONDS, 0.0
            self._collector.failed.retry_all()
        self._closed = why is not None
        if self._closed or (self._slow and self._inflow.refused):
            self._next_take = now + LOOK_SECONDS
            return False
        self._next_take = now + SLOW_SECONDS if self._slow else 0.0
        return True

    def _take(self, now: float) -> None:
        self._collector.retry()
        good = self._collector.take()
        if good or self._collector.progress:
            self._retry = RETRY_SECONDS
        if not good and now >= self._next_try:
            self._next_try = now + self._retry
            self._retry = min(self._retry * 2, RETRY_MAX)


def serve(home: Home) -> None:
    """Run until descriptor 0 ends. Raises a Failure."""
    pickup = Pickup(home)
    try:
        while True:
            pickup.run()
            pickup.poll()
    except PeerLost:
        pass  # queue-send has exited, which ends this daemon.


def main(argv: list[str]) -> int:
    """Return 0, 100 or 111."""
    os.umask(0o027)
    ignore(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)
    try:
        home = take_daemon_home(argv, USAGE, HELP)
        if home is None:
            return 0
        serve(home)
    except Failure as failure:
        complain(PROGRAM, f"fatal: {failure}")
        return failure.exit_code
    return 0
