"""One channel: its scheduler, its delivery daemons (queue-local or queue-remotes), and the verdicts of its deliveries.

A turn of the loop takes reports until VERDICTS_A_TURN verdicts have come, and starts at most STARTS_A_TURN jobs, both
within a time limit, so that neither channel delays the other parts. A turn also starts no more jobs after LOADS_A_TURN
messages were loaded without a start, so that mail for dead hosts does not delay the reports of others. Messages with
many recipients are loaded in steps. If a daemon is gone, or its reports are not netstrings, queue-send exits when the
jobs of the others have ended.
"""

import random
import select
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import assert_never

from queue_base.daemon.pipes import PeerLost
from queue_base.errors import reason
from queue_send.cleaner import Cleaner
from queue_send.delivery.delivery_daemon import DeliveryDaemon, choose_daemon
from queue_send.delivery.loading import AT_ONCE, Loader, NotRead, Step
from queue_send.delivery.result_writer import ResultWriter
from queue_send.delivery.verdicts import Verdicts
from queue_send.events import Happened
from queue_send.messages.message_files import Piece
from queue_send.messages.transitions import MessageEvent
from queue_send.notify.delay import DelayNotifier
from queue_send.scheduler.model import (
    Action,
    Alive,
    Attempt,
    Dead,
    Defer,
    Entry,
    Expire,
    Finish,
    Start,
    Suspended,
    Withdrawn,
)
from queue_send.scheduler.retry import AGAIN_AFTER, SKIPS, next_attempt, within_lifetime
from queue_send.scheduler.scheduler import Scheduler
from queue_send.shared_parts import SharedParts
from queue_wire import logline
from queue_wire.address import domain_of, verp_sender
from queue_wire.admin.cause import DAEMON_FULL, DISK_FAILED, EXITING, LOG_BLOCKED, REMOVALS_BEHIND
from queue_wire.admin.returning import RecipientSelector
from queue_wire.control.localroutes import is_route_name
from queue_wire.format_error import FormatError
from queue_wire.pipes.job import Job, pack_job
from queue_wire.pipes.notice import Notice
from queue_wire.pipes.report import (
    MESSAGE_SCOPE,
    TEMPORARY,
    LogLine,
    PartialReport,
    Ready,
    Report,
    SettingsReport,
    SlowJob,
    unpack_report,
)

STARTS_A_TURN = 100
LOADS_A_TURN = 25  # Some 25 microseconds each.
VERDICTS_A_TURN = 200  # Some 30 microseconds each, with what follows from them. The last report may have 1,000 more.
KEPT_BACK_MAX = 100_000  # Messages that are tried as soon as queue-ondemand runs again; others wait as usual.
STARTING = 0.003  # Seconds of a turn for loading short messages and starting jobs,
LOADING = 0.001  # for loading long messages,
READING = 0.002  # and for reading reports.
_CHANNEL_DONE = MessageEvent.CHANNEL_DONE


class Channel:
    """A part of the loop. `kind` is local or remote.

    Mail of local recipients that control/localroutes routes goes to `lenders`: the daemons of the remote channel, which
    reads and writes their pipes. Mail for the domains of control/ondemand goes to `keeper`, queue-ondemand, if it runs.
    """

    def __init__(
        self,
        kind: str,
        daemons: Sequence[DeliveryDaemon],
        parts: SharedParts,
        delays: DelayNotifier,
        results: ResultWriter,
        cleaner: Cleaner,
        lenders: Sequence[DeliveryDaemon] = (),
        keeper: DeliveryDaemon | None = None,
    ) -> None:
        self.kind = kind
        self.scheduler = Scheduler(parts.config.settings(kind), parts.store.classes)
        self._daemons = daemons
        self._keeper = keeper
        self.keeper_returns = False  # Whether somebody starts the keeper again when it is lost.
        self._kept_back: dict[int, None] = {}
        self._all_daemons = daemons if keeper is None else [*daemons, keeper]
        self._reading = deque(self._all_daemons)  # The first one is read first.
        self._lenders = lenders
        self._all_greeted = False
        self._name = kind.encode()
        self._store, self._log, self._clock, self._config = parts.store, parts.log, parts.clock, parts.config
        self._budget, self._shutdown, self._events = parts.budget, parts.shutdown, parts.events
        self._delays = delays
        self._results = results
        self._cleaner = cleaner
        self._loader = Loader(kind, parts.store, parts.clock, parts.config)
        self._verdicts = Verdicts(kind, parts, delays, results)
        # Messages with many recipients: the attempt, the first piece if it was read, the offsets that were tried.
        # `_steps` loads the first of them.
        self._long: deque[tuple[Attempt, Piece | None, Collection[int]]] = deque()
        self._steps: Iterator[Step] | None = None
        self._flushes = 0  # How often everything was made due.
        # Of announced messages: the attempt that has ended, when, and what _flushes was then.
        self._unclassified: dict[int, tuple[Attempt, float, int]] = {}
        self._none_left: set[int] = set()  # Messages of which this turn has reported that no recipient is left.
        self._keep_places()

    @property
    def busy(self) -> bool:
        """Whether jobs are in flight."""
        if any(daemon.lent and not daemon.lost for daemon in self._lenders):
            return True
        return any(daemon.in_flight and not daemon.lost for daemon in self._all_daemons)

    @property
    def greeted(self) -> bool:
        """Whether every daemon has said how many jobs it takes."""
        return self._all_greeted

    def failure(self, nexthop: bytes) -> bytes:
        """Return why a nexthop could not be reached last, in one line; empty if that is not known."""
        return self._verdicts.failure(nexthop)

    @property
    def in_flight(self) -> Collection[Entry]:
        """The entries whose jobs the daemons have not reported on."""
        lent = [entry for daemon in self._lenders for entry in daemon.lent.values()]
        return [entry for daemon in self._all_daemons for entry in daemon.in_flight.values()] + lent

    @property
    def stopped(self) -> bytes:
        """Why no job may start on this channel (queue_wire.admin.cause); empty if jobs may be started."""
        if self._shutdown.begun:
            return EXITING
        if self._log.full:
            return LOG_BLOCKED
        if self._store.disk.failed:
            return DISK_FAILED
        if self._cleaner.behind:
            return REMOVALS_BEHIND
        return DAEMON_FULL if self._daemons_full else b""

    @property
    def _daemons_full(self) -> bool:
        """Whether no daemon takes a job, or not all have greeted."""
        if self._lenders and self._config.current.localroutes and all(each.full_of_lent for each in self._lenders):
            return True
        if self._all_greeted:
            for daemon in self._daemons:
                if not daemon.full:
                    return False
        return True

    @property
    def _may_load(self) -> bool:
        """Whether messages may be loaded. Not while the log is full: one may fail without a job, which is logged."""
        return not (self._shutdown.begun or self._log.full)

    def apply_config(self) -> None:
        """Set the limits of the control files, after HUP."""
        self.scheduler.apply_settings(self._config.settings(self.kind))
        self._keep_places()

    def _keep_places(self) -> None:
        """Have the lenders leave places for as many jobs as this channel may have in flight, if it may give any."""
        config = self._config.current
        for daemon in self._lenders:
            daemon.keep_places(config.concurrencylocal if config.localroutes else 0)

    def add_new(self, notice: Notice) -> None:
        """Add a new message."""
        self.scheduler.add_new(notice.message, *self._loader.destination(notice))

    def flush(self, now: float) -> None:
        """Make everything due."""
        self._flushes += 1
        self._loader.flushes.widen_all()
        self.scheduler.flush(now)

    def make_due(self, message: int, due: int) -> bool:
        """Make a message due now, whose file has the next attempt `due`; return False if it is being tried."""
        follows = self._loader.flushes.widen(message)
        if self.scheduler.holds(message):
            return follows
        # Doing this twice makes one attempt: the second entry is not valid after the first attempt.
        self.scheduler.add_deferred(message, due, flushed=True)
        return True

    def make_some_due(self, message: int, due: int, selector: RecipientSelector, now: float) -> bool:
        """Make some recipients of a message due now; the others wait for its next attempt, `due`, as before.

        Returns False if all are being tried. To be called if `takes_partial_flushes`.
        """
        flushes = self._loader.flushes
        held = self.scheduler.holds(message)
        if flushes.is_trying(message):
            if flushes.add(message, selector) and not held:
                self.scheduler.add_deferred(message, due, flushed=True)
            return True
        if held or self._loader.is_between_slices(message):
            return False
        if due <= now:
            return self.make_due(message, due)
        if flushes.add(message, selector):
            self.scheduler.add_deferred(message, due, flushed=True)
        return True

    @property
    def takes_partial_flushes(self) -> bool:
        """Whether `make_some_due` may add a message."""
        return not self._loader.flushes.full

    def withdraw(self, message: int, now: float) -> None:
        """Prevent further starts of a message. If it is loaded, WITHDRAWN follows."""
        self._carry_out(self.scheduler.withdraw(message, now), now)

    def forget(self, message: int) -> None:
        """Remove what is kept for a message that has ended, or is on hold or corrupt."""
        self._loader.forget(message)
        self.scheduler.forget(message)

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for reports, for room in the pipes of jobs, and until the scheduler has something to do."""
        unread = False
        for daemon in self._all_daemons:
            daemon.prepare(poll)
            unread = unread or (daemon.unread and not daemon.lost)
        for daemon in self._lenders:
            unread = unread or bool(daemon.lent_reports)
        loads = bool(self._long) and self._may_load
        expires = self._verdicts.may_expire and not self._shutdown.begun
        lost = self._keeper is not None and self._keeper.lost and self._keeper.in_flight
        if unread or loads or expires or lost or self._may_bring_back or self._verdicts.has_results:
            return 0.0
        times = [3600.0]
        if not self._shutdown.begun and (expiry := self.scheduler.next_expiry(now)) is not None:
            times.append(max(0.0, expiry - now))
        if not self.scheduler.idle and not self.stopped and (due := self.scheduler.next_time(now)) is not None:
            times.append(max(0.0, due - now))
        return min(times)

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn: reports, expiry, loading, starts."""
        self._none_left.clear()  # Those of the last turn have been dealt with.
        self._take_reports(ready, now)
        self._take_lent_reports(now)
        self._defer_lost(VERDICTS_A_TURN, now)
        self._bring_back()
        if not self._shutdown.begun:
            self._carry_out(self.scheduler.expire(now), now)
        if self._may_load:
            self._load_long(now)
        self._start_jobs(now)
        self._apply_verdicts()

    def write(self) -> None:
        """Write jobs, and the last results."""
        self._results.write()
        for daemon in self._all_daemons:
            if not daemon.lost:
                try:
                    daemon.write(last=self._shutdown.begun)
                except PeerLost:
                    if daemon is not self._keeper or not self.keeper_returns:
                        self._shutdown.lose(daemon.name)  # Its reports are read to their end.

    def _lose(self, daemon: DeliveryDaemon) -> None:
        """Begin the exit. What the daemon has not reported on is tried again by the next run.

        queue-ondemand is started again, and only the mail for its domains waits.
        """
        daemon.lost = True
        if daemon is self._keeper and self.keeper_returns:
            daemon.close()
            self._log.alert(f"oh no! lost {daemon.name} connection! mail for its domains waits until it runs again")
            self._look_at_greetings()
        else:
            self._shutdown.lose(daemon.name)

    def lose_guard(self) -> None:
        """Nobody starts queue-ondemand again any more: its end is like that of any other daemon."""
        self.keeper_returns = False
        if self._keeper is not None and self._keeper.lost:
            self._shutdown.lose(self._keeper.name)

    def renew_keeper(self, jobs: int, reports: int, now: float) -> None:
        """queue-ondemand was started again: take its pipes."""
        if self._keeper is not None:
            self._keeper.lost = True
            self._defer_lost(len(self._keeper.in_flight), now)
            self._keeper.renew(jobs, reports)

    def _defer_lost(self, most: int, now: float) -> None:
        """Defer up to `most` jobs that a lost queue-ondemand has not reported on."""
        if self._keeper is not None and self._keeper.lost:
            for number, entry in list(islice(self._keeper.in_flight.items(), most)):
                self._keep_back(entry.attempt.message)
                self._end_job(self._keeper, _without_keeper(number, entry), now)

    def _keep_back(self, message: int) -> None:
        """Remember a message that is deferred because queue-ondemand does not run, to be tried when it does."""
        if len(self._kept_back) < KEPT_BACK_MAX:
            self._kept_back[message] = None

    @property
    def _may_bring_back(self) -> bool:
        keeper = self._keeper
        return bool(self._kept_back) and keeper is not None and not keeper.lost and keeper.capacity is not None

    def _bring_back(self) -> None:
        """Make some messages due that were kept back."""
        for message in list(islice(self._kept_back, LOADS_A_TURN)) if self._may_bring_back else ():
            del self._kept_back[message]
            with suppress(OSError):  # Its next attempt says what is wrong.
                due = self._store.due(message, self.kind)
                if due is not None:
                    self.make_due(message, self._clock.from_disk(due))

    def _look_at_greetings(self) -> None:
        needed = [each for each in self._all_daemons if not (each is self._keeper and each.lost)]
        self._all_greeted = all(each.capacity is not None for each in needed)

    # Loading and starting

    def _start_jobs(self, now: float) -> None:
        """Load messages and start jobs until there are no more, or the limits of the turn are reached."""
        if self.scheduler.idle or self.stopped:
            return
        without_start = 0
        until = self._budget.until(STARTING)
        for _ in range(STARTS_A_TURN):
            if self._log.full or without_start >= LOADS_A_TURN or self._daemons_full:
                return
            loaded = self._load(now)
            started = self._carry_out(self.scheduler.start(now), now)
            if not (loaded or started):
                return
            without_start += not started
            if time.monotonic() >= until:
                return

    def _load(self, now: float) -> bool:
        """Load the next message, if one may be loaded; return whether there was one."""
        found = self.scheduler.next_load(now)
        if found is None:
            return False
        message, stamp = found
        if message in self._none_left:
            # It ends in this turn. If the disk has refused a DONE mark, its file shows a recipient that has the
            # message.
            self.scheduler.cancel_load(message)
            return True
        try:
            read = self._loader.read(message, stamp)
        except FormatError as error:
            self.scheduler.cancel_load(message)
            self._report_corrupt(message, str(error))
            return True
        except OSError as error:
            self._log.warning(f"unable to open {error.filename or message}: {reason(error)}; will try again later")
            self._loader.flushes.forget(message)
            self.scheduler.retry_at(message, int(now) + AGAIN_AFTER)
            return True
        if isinstance(read, NotRead):
            self.scheduler.cancel_load(message)
            if read is NotRead.ENDED:
                self.scheduler.forget(message)
            return True
        attempt, piece = read
        tried = self.scheduler.tried(message, stamp)
        if piece.next is None and len(piece.recipients) <= AT_ONCE:
            groups = self._loader.group(attempt, piece.recipients, tried)
            self._carry_out(self.scheduler.load(attempt, groups, now), now)
        else:
            # Only the first one keeps the piece that was read. To save memory, the others are read again in their turn.
            self._long.append((attempt, None if self._long else piece, tried))
            self.scheduler.begin_load(attempt, now)
        return True

    def _report_corrupt(self, message: int, why: str) -> None:
        """Report a message with a malformed file, once; neither channel starts anything of it from now on."""
        if message not in self._store.malformed:
            self._store.malformed.add(message)
            self._events.append(Happened(MessageEvent.CORRUPT, message, why))

    def _load_long(self, now: float) -> None:
        """Do some steps of loading messages that have many recipients."""
        if not self._long:
            return
        until = self._budget.until(LOADING)
        while self._long:
            self._load_step(now)
            if time.monotonic() >= until:
                return

    def _load_step(self, now: float) -> None:
        attempt, first, tried = self._long[0]
        if self._steps is None:
            self._steps = self._loader.steps(attempt, first, tried)
        try:
            step = next(self._steps, None)
            if step is not None:
                for entry in step.entries:
                    self._carry_out(self.scheduler.add_entry(entry, step.whole, now), now)
                return
        except FormatError as error:
            self._report_corrupt(attempt.message, str(error))
            attempt.withdrawn = True
        except OSError as error:
            path = error.filename or attempt.message
            self._log.warning(f"unable to read {path}: {reason(error)}; will try again later")
            self.scheduler.fail_load(attempt, int(now) + AGAIN_AFTER)
        self._long.popleft()
        self._steps = None
        self._carry_out(self.scheduler.end_load(attempt, now), now)

    def _start(self, entry: Entry) -> None:
        addresses = [address for _, address in entry.recipients]
        message, lost = entry.attempt.message, None
        first = self._log.number_deliveries(len(addresses))
        self._store.announced.started(message, len(addresses))
        if self._lenders and self._is_routed(entry):
            self._start_lent(first, entry)
        else:
            sender = verp_sender(entry.attempt.sender, addresses[0])
            # The entry's nexthop may name a relay; queue-remote looks up the route by the domain.
            nexthop = addresses[0] if self.kind == "local" else domain_of(addresses[0])
            job = pack_job(Job(first, self._store.job_path(message), sender, nexthop, addresses))
            daemons = self._daemons
            if self._keeper is not None and entry.nexthop in self._config.current.ondemand:
                daemon = self._keeper
            else:
                daemon = daemons[0] if len(daemons) == 1 else choose_daemon(daemons, self.scheduler.host(entry))
            if daemon is not self._keeper or not daemon.lost:
                daemon.start(first, entry, job)
            else:
                self._keep_back(message)
                lost = _without_keeper(first, entry)
        for delivery, address in enumerate(addresses, first):
            self._log.put(logline.starting_delivery(delivery, message, self._name, address))
        if lost is not None:
            self._verdicts.add(entry, first, lost, self._clock.now())

    def _is_routed(self, entry: Entry) -> bool:
        """Return whether an LMTP server takes the mail of an entry, or did when it was loaded."""
        if is_route_name(entry.nexthop):
            return True
        config = self._config.current
        return bool(config.localroutes) and config.local_route(entry.recipients[0][1]) is not None

    def _start_lent(self, number: int, entry: Entry) -> None:
        """Give a job to a queue-remote. Recipients are as people know them; one of them as nexthop says that all are
        local, and queue-remote looks up their routes.
        """
        shown = [self._config.current.shown(self.kind, address) for _, address in entry.recipients]
        sender = verp_sender(entry.attempt.sender, shown[0])
        job = pack_job(Job(number, self._store.job_path(entry.attempt.message), sender, shown[0], shown))
        choose_daemon(self._lenders, entry.nexthop, lent=True).start_lent(number, entry, job)

    # Actions of the scheduler

    def _carry_out(self, actions: Sequence[Action], now: float) -> bool:
        """Carry out the actions of the scheduler; return whether a job was started."""
        started = False
        for action in actions:
            if isinstance(action, Start):
                self._start(action.entry)
                started = True
            elif isinstance(action, Defer):
                self._defer(action.attempt, now)
            elif isinstance(action, Finish):
                self._finish(action.attempt, now)
            elif isinstance(action, Expire):
                self._verdicts.expire(action.entry)
            elif isinstance(action, Suspended):
                self._verdicts.suspend(action.entry, now)
            elif isinstance(action, Withdrawn):
                self._loader.forget(action.attempt.message)
                self._delays.forget(action.attempt.message)
                self._events.append(Happened(MessageEvent.WITHDRAWN, action.attempt.message, self.kind))
            elif isinstance(action, Dead):
                self._log.put(logline.destination_dead(action.nexthop, action.interval, action.suspended))
            elif isinstance(action, Alive):
                self._verdicts.forget_failure(action.nexthop)
                self._log.put(logline.destination_alive(action.nexthop, action.suspended))
            else:
                assert_never(action)
        return started

    def _defer(self, attempt: Attempt, now: float) -> None:
        """Have the next slice of a message loaded; if there is none, set the next attempt."""
        if self._loader.next_slice(attempt):
            self.scheduler.make_due(attempt.message)
        else:
            self._set_next_attempt(attempt, now, self._flushes)

    def _finish(self, attempt: Attempt, now: float) -> None:
        """Have the next slice of a message loaded. After the last one, set the next attempt if an earlier slice has
        deferred recipients; else reports that no recipient is left on the channel.
        """
        deferred = self._loader.has_deferred(attempt.message)
        if self._loader.next_slice(attempt):
            self.scheduler.make_due(attempt.message)
        elif deferred:
            self._set_next_attempt(attempt, now, self._flushes)
        else:
            self._none_left.add(attempt.message)
            self._events.append(Happened(_CHANNEL_DONE, attempt.message, self.kind))

    def classified(self, message: int, exists: bool) -> None:
        """Do what has waited for the files of a message. It has them now, or is gone."""
        self._verdicts.classified(message, exists)
        ended = self._unclassified.pop(message, None)
        if ended is not None and exists:
            self._set_next_attempt(*ended)

    def _set_next_attempt(self, attempt: Attempt, now: float, since: int) -> None:
        """Set the next attempt in the message's file. `since` is what self._flushes was when the attempt ended."""
        message = attempt.message
        if attempt.chosen:
            due = self._clock.from_disk(attempt.others_due)
            whole, more = self._loader.flushes.end(message, over=attempt.overflow is None)
            self._wait_until(attempt, due, attempt.others_due, whole, now)
            if more:
                self.scheduler.add_deferred(message, due, flushed=True)
            return
        self._loader.flushes.forget(message)
        if self._store.classify_first(message, MessageEvent.DEFERRED):
            self._unclassified[message] = attempt, now, since
            return
        schedule = self._config.current.retry
        due = next_attempt(schedule, attempt.birth, int(now), SKIPS[self.kind], random.random)
        due = within_lifetime(due, int(now), attempt.expires)
        self._wait_until(attempt, due, self._clock.to_disk(due), since != self._flushes, now)

    def _wait_until(self, attempt: Attempt, due: int, on_disk: int, flushed: bool, now: float) -> None:
        """Have a message wait for its next attempt, which is `on_disk` by the disk's clock."""
        message = attempt.message
        try:
            self._store.set_due(message, self.kind, on_disk)
            self.scheduler.add_deferred(message, due, flushed=flushed)
        except OSError as error:
            self._log.warning(f"unable to change {error.filename or message}: {reason(error)}; mail goes on")
            self.scheduler.retry_at(message, due)
        self._delays.deferred(attempt, now)

    # Reports

    def _apply_verdicts(self) -> None:
        """Record the verdicts and report them to the scheduler; then fail some expired recipients."""
        self._report_results()
        if self._verdicts.may_expire:
            self._verdicts.expire_some()
            self._report_results()

    def _report_results(self) -> None:
        results = self._verdicts.apply()
        if not results:
            return
        now = self._clock.now()
        for result in results:
            if result.started:
                deferred = len(result.entry.recipients) - result.done
                self._carry_out(self.scheduler.end_job(result.entry, deferred, result.host_failed, now), now)
            else:
                self._carry_out(self.scheduler.end_expired(result.entry, now), now)

    def _take_reports(self, ready: dict[int, int], now: float) -> None:
        """Take reports until there are no more, or the limits of the turn are reached."""
        daemons = [each for each in self._reading if not each.lost and (each.unread or each.reports in ready)]
        if not daemons:
            return
        room, until = VERDICTS_A_TURN, self._budget.until(READING)
        for daemon in daemons:
            room = self._take_from(daemon, room, until, now)
            if room <= 0 or time.monotonic() >= until:
                break
        self._reading.rotate(-1)
        self._apply_verdicts()

    def _take_lent_reports(self, now: float) -> None:
        """Take the reports that the remote channel has read in a turn; it bounds their number."""
        for daemon in self._lenders:
            while daemon.lent_reports:
                report = daemon.lent_reports.popleft()
                entry = daemon.lent.pop(report.number, None)
                if entry is None:
                    self._log.warning("internal error: delivery report out of range")
                else:
                    self._verdicts.add(entry, report.number, report, now)

    def _take_from(self, daemon: DeliveryDaemon, room: int, until: float, now: float) -> int:
        """Take reports of one daemon, up to `room` verdicts; return the room that is left."""
        try:
            if not daemon.unread:
                daemon.read()
            while room > 0 and (payload := daemon.next_report()) is not None:
                room -= max(1, self._take_report(daemon, payload, now))
                if time.monotonic() >= until:
                    break
        except FormatError as error:
            self._log.warning(f"internal error: {daemon.name} sent something impossible: {error}")
            self._lose(daemon)
        except PeerLost:
            self._lose(daemon)
        return room

    def _take_report(self, daemon: DeliveryDaemon, payload: bytes, now: float) -> int:
        """Take one report; return how many verdicts it has."""
        try:
            report = unpack_report(payload)
        except FormatError as error:
            self._log.warning(f"internal error: {daemon.name} sent something impossible: {error}")
            number = payload.split(b"\0", 1)[0]
            if number.isdigit() and len(number) <= 18 and daemon.is_running(int(number)):
                # Without this the job would be in flight for ever. A report without verdicts defers all recipients.
                self._end_job(daemon, Report(int(number), MESSAGE_SCOPE, []), now)
            return 0
        if isinstance(report, Ready):
            daemon.capacity = report.jobs
            self._look_at_greetings()
            return 0
        if isinstance(report, SettingsReport):
            daemon.take_settings(report.lines)
            return 0
        if isinstance(report, LogLine):
            self._log.put(report.line)
            return 0
        if isinstance(report, SlowJob):
            entry = daemon.in_flight.get(report.number)
            if entry is not None:  # Not the local channel's: who it is for holds its share.
                self.scheduler.note_address(entry, report.address)
            return 0
        if isinstance(report, PartialReport):
            entry = daemon.in_flight.get(report.number)
            if entry is not None:  # Not the local channel's, whose jobs end soon.
                self._verdicts.add_successes(entry, report.number, report.verdicts)
            return len(report.verdicts)
        self._end_job(daemon, report, now)
        return len(report.verdicts)

    def _end_job(self, daemon: DeliveryDaemon, report: Report, now: float) -> None:
        entry = daemon.in_flight.pop(report.number, None)
        if entry is None and report.number in daemon.lent:
            daemon.lent_reports.append(report)  # The local channel takes it in the next turn.
            return
        if entry is None:
            self._log.warning("internal error: delivery report out of range")
            return
        self._verdicts.add(entry, report.number, report, now)


def _without_keeper(number: int, entry: Entry) -> Report:
    """Return the report on a job for queue-ondemand, which does not run: all recipients are deferred."""
    text = b"queue-ondemand does not run at the moment; will try again.\n"
    return Report(number, MESSAGE_SCOPE, [(TEMPORARY, text)] * len(entry.recipients))
