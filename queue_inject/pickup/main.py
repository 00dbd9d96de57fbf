"""queue-pickup: copies mail that users left in maildrop/ into the queue, with its owner's uid.

See docs/design/injection.md. Descriptor 0 is a pipe that only ever ends; then it exits 0. Descriptor 1 takes log lines
for queue-send to print. maildrop/ is watched with inotify, and scanned at start, where names were lost,
and every 25 minutes; without inotify, every few seconds. Trouble leaves mail where it is, and it is
tried again; a crash may repeat a message, but never loses one. While the disk is short, or queue-todo refuses
mail, everything stays in maildrop/; while it slows injectors, one group of files is taken a second.
"""

import os
import select
import signal
import stat
import time

from queue_base.accounts import become_reader, queue_owner
from queue_base.errors import Failure, Permanent, complain, reason
from queue_base.home import Home, take_daemon_home
from queue_base.intake import SLOW_SECONDS
from queue_base.layout import open_layout
from queue_base.pipes import OutPipe, PeerLost, read_available
from queue_base.signals import ignore
from queue_base.watch import RENAMED, Watch
from queue_base.writer import QueueWriter
from queue_inject.pickup.bounded import BoundedLines
from queue_inject.pickup.copying import Rules
from queue_inject.pickup.corrupt import Aside
from queue_inject.pickup.maildrop import Maildrop
from queue_inject.pickup.scan import Scan
from queue_wire.logline import alert, warning
from queue_wire.notice import pack_log

PROGRAM = "queue-pickup"
USAGE = "usage: queue-pickup [--home HOME]"
HELP = f"""{USAGE}
Copies mail that users left in maildrop/ into the queue. It is started by queue-start.
"""
SCAN_SECONDS = 25 * 60
# A scan goes on for so long, then others have their turn; inotify's queue of 16,384 names must not run over meanwhile.
SCAN_SLICE = 0.05
# Where there is no inotify.
BLIND_SECONDS = 5
# After trouble: twice as long each time, until it is over.
RETRY_SECONDS = 5.0
RETRY_MOST = 600.0
# While nothing may be taken.
LOOK_SECONDS = 5.0
# One log line is at most 1,000 bytes, so this is more than 1,000 lines that queue-send has not read.
LOG_MOST = 1 << 20


class Pickup:
    """The loop's state: the drop, its watch, the log, and when to look again (monotonic seconds)."""

    def __init__(self, home: Home) -> None:
        owner = queue_owner(home)
        if os.geteuid() == 0 and owner.uid != 0:
            become_reader(owner)
        elif os.geteuid() != owner.uid:
            raise Permanent(f"unable to write to {home.queue}: it belongs to uid {owner.uid}; run as that user")
        self._log = OutPipe(1)
        directory = home.queue + "/maildrop"
        writer = QueueWriter(home, open_layout(home.queue), os.getuid())
        self._directory = directory
        self._intake = writer.intake
        self._lines = [BoundedLines(self.warn, "more warnings"), BoundedLines(self.alert, "more files were set aside")]
        aside = Aside(home.queue, directory, self._lines[1])
        rules = Rules(self._group_of_files(), owner.uid == 0)
        self._drop = Maildrop(directory, writer, rules, aside, self._lines[0])
        self._scan = Scan(directory, self._drop, aside, self.warn)
        self._watch = Watch([directory], RENAMED)
        self._scan_every = SCAN_SECONDS
        if self._watch.problem:
            self._scan_every = BLIND_SECONDS
            self.alert(f"unable to watch {directory}: {self._watch.problem}; it is scanned every {BLIND_SECONDS} s")
        self._retry = RETRY_SECONDS
        self._next_scan = self._next_try = self._next_take = 0.0
        self._closed = self._slow = False

    def _group_of_files(self) -> int | None:
        """Return the group that files made in maildrop/ get, whoever makes them: the set-group-id bit does that."""
        try:
            found = os.stat(self._directory)
            if not found.st_mode & stat.S_ISGID:
                # Who is not in the group may not set the bit; ours will do as well.
                os.chown(self._directory, -1, os.getegid())
                os.chmod(self._directory, stat.S_IMODE(found.st_mode) | stat.S_ISGID)
                found = os.stat(self._directory)
        except OSError as error:
            why = reason(error)
        else:
            if found.st_mode & stat.S_ISGID:
                return found.st_gid
            why = "its file system does not keep the bit"
        self.alert(f"unable to set the set-group-id bit of {self._directory}: {why}; whose mail it is is not certain")
        return None

    def warn(self, text: str) -> None:
        """Have queue-send print a warning."""
        self._say(warning(f"{PROGRAM}: {text}"))

    def alert(self, text: str) -> None:
        """Have queue-send print an alert."""
        self._say(alert(f"{PROGRAM}: {text}"))

    def _say(self, line: bytes) -> None:
        if self._log.held < LOG_MOST:
            self._log.put(pack_log(line))

    def poll(self) -> None:
        """Wait until there is something to do. Raises PeerLost when queue-send has gone."""
        due = [self._next_scan, *(lines.due for lines in self._lines if lines.due is not None)]
        if self._scan.running or self._watch.lost:
            due.append(0.0)
        if self._drop.waiting:
            due.append(self._next_take)
        if self._drop.troubled:
            due.append(max(self._next_try, self._next_take))
        poller = select.poll()
        poller.register(0, select.POLLIN)
        if self._watch.descriptor is not None:
            poller.register(self._watch.descriptor, select.POLLIN)
        if self._log.held:
            poller.register(1, select.POLLOUT)
        ready = {descriptor for descriptor, _ in poller.poll(max(0.0, min(due) - time.monotonic()) * 1000)}
        if 0 in ready:
            read_available(0)
        if self._watch.descriptor in ready:
            for name in self._watch.take():
                self._drop.add(name)

    def run(self) -> None:
        """Do what is due. Raises PeerLost."""
        now = time.monotonic()
        self._look(now)
        wanted = self._drop.waiting or (self._drop.troubled and now >= self._next_try)
        if wanted and now >= self._next_take and self._is_open(now):
            self._take(now)
        for lines in self._lines:
            lines.run()
        self._log.flush()

    def _look(self, now: float) -> None:
        """Go through a part of maildrop/."""
        # What could not be kept is found again when what was kept is done.
        missed = self._drop.missed and not self._drop.waiting and now >= self._next_try
        if not self._scan.running and (now >= self._next_scan or self._watch.lost or missed):
            self._watch.lost = False
            self._next_scan = now + self._scan_every
            self._scan.begin()
        if self._scan.running:
            self._scan.run(SCAN_SLICE)

    def _is_open(self, now: float) -> bool:
        """Return whether mail may be taken; set when to look again where it may not, or may only slowly."""
        why = self._intake.closed()
        self._slow = self._intake.slow
        if why and not self._closed:
            self.alert(f"unable to queue mail: {why}; it stays in {self._directory} until then")
        if self._closed and not why:
            self._retry, self._next_try = RETRY_SECONDS, 0.0
        self._closed = why is not None
        if self._closed or (self._slow and self._intake.refused):
            self._next_take = now + LOOK_SECONDS
            return False
        self._next_take = now + SLOW_SECONDS if self._slow else 0.0
        return True

    def _take(self, now: float) -> None:
        if self._drop.troubled and now >= self._next_try:
            self._drop.retry()
        if not self._drop.take() and now >= self._next_try:
            self._next_try = now + self._retry
            self._retry = min(self._retry * 2, RETRY_MOST)
        elif not self._drop.troubled:
            self._retry = RETRY_SECONDS


def serve(home: Home) -> None:
    """Run until descriptor 0 ends. Raises a Failure."""
    pickup = Pickup(home)
    try:
        while True:
            pickup.run()
            pickup.poll()
    except PeerLost:
        pass  # queue-send has gone: the end, as intended.


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
