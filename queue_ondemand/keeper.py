"""What queue-ondemand does with jobs, reports, requests and times: attempts and runs.

A job of queue-send is tried once by queue-ondemand's own queue-remote, unless its domain is known to be unreachable and
it can be stored.
What is deferred is stored, and queue-send gets K with `stored for DOMAIN` for it once it is durable. If it cannot be
stored, queue-send gets the deferral, and tries again as for any other domain; so nothing is lost, whatever happens to
this process.

A domain that has stored mail is probed, unless control/ondemand says never, and a run delivers the mail when a probe, a
client's ETRN or the administrator wants it. There is one run of a domain at a time, and RUNS_MAX of all domains; more
wait. A run obeys the limits of its domain, destinationrate and the others, together with the attempts of jobs. While it
waits for them it keeps no other run waiting, and it gives way to an order of the administrator.

Mail for an `atrn` domain is stored without an attempt. A host that asks with ATRN gets the mail of its domains over its
own connection, which queue-remote is given: a run for each domain, one after the other. These runs wait for no others
and no others for them; there are REVERSALS_MAX such hosts at a time.

The mail of a domain that has no line in control/ondemand any more stays stored, until it expires or the administrator
wants something done with it: a domain that fetched its mail may have no host of its own, and a relay is not known.

The disk is used in the disk thread alone, so a slow disk delays neither reports nor probes.
"""

import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from queue_base.daemon.clock import CLOCK_FILE, Clock, read_spans
from queue_base.daemon.disk_thread import DiskThread, Result
from queue_base.daemon.lock import ShareWatch
from queue_base.errors import complain, reason
from queue_base.home import Home
from queue_base.queue.layout import Layout
from queue_ondemand.domain_run import EVERY_RECORD, ChosenRecords, DomainRun, Purpose
from queue_ondemand.domain_store import DomainStore, FoundOrder
from queue_ondemand.domain_times import DomainTimes, Wake
from queue_ondemand.job_storage import JobStorage, StoredJob
from queue_ondemand.ondemand_files import PROGRAM, OnDemandConfig, OnDemandFiles
from queue_ondemand.remote_link import RemoteLink
from queue_ondemand.returned_mail import FailedGroup, RequeuedIds, ReturnProcess, compose_return, read_header
from queue_ondemand.run_limits import LOOK_AGAIN, RunLimits
from queue_ondemand.run_requests import EtrnLimits
from queue_wire import logline
from queue_wire.address import domain_key, domain_of
from queue_wire.admin.ondemand_socket import (
    ATRN,
    BOUNCE,
    BROKEN,
    CLEAN,
    DELETE,
    EMPTY,
    ETRN,
    HOLDS,
    LATER,
    NO_LINE,
    ON_HOLD,
    ORDERS,
    REQUEUED,
    RUNNING,
    STARTED,
    UNKNOWN,
    WANTED,
    WHEN,
    RunAnswer,
    RunRequest,
)
from queue_wire.files.cluster import Cluster, ClusterRecord
from queue_wire.files.envelope import pack_enqueue
from queue_wire.files.stored_order import (
    BOUNCE_STORED,
    DELETE_STORED,
    REQUEUE_STORED,
    WHOLE,
    unpack_order,
)
from queue_wire.format_error import FormatError
from queue_wire.pipes.job import Job, ReversedHost
from queue_wire.pipes.report import (
    HOST_SCOPE,
    MESSAGE_SCOPE,
    PERMANENT,
    SUCCESS,
    TEMPORARY,
    Report,
    pack_log_line,
    pack_report,
)

RUNS_MAX = 50
LOADED_MAX = 50  # Runs that wait for their limits with the records of a cluster in memory.
REVERSALS_MAX = 100
# Of these, those of one user.
REVERSALS_A_USER = 10
EXPIRY_EVERY = 3600.0  # Seconds between two searches of a domain for expired mail, at least.
# At the start the domains are looked through within this time, not at once.
EXPIRY_SPREAD = 600.0
RETURNED = b"The administrator of this host has returned the message without another delivery. (#5.7.0)\n"
NOT_WHOLE = b"something of it could not be marked; the log says why"
DELETED = b"deleted by the administrator\n"
HELD_REASON = b"The administrator has put the mail of the domain on hold.\n"
NOT_HERE = b"not an on-demand domain here"
ASKS_ITSELF = b"its host has to ask for it with ATRN"
# Seconds of a turn for work that is done in steps, such as a request for all domains below one.
STEPS_A_TURN = 0.003
NAMES_A_STEP = 256
SHOWN_MAX = 3  # Domains that an alert names.
PURPOSES = {DELETE_STORED: Purpose.DELETION, BOUNCE_STORED: Purpose.RETURN, REQUEUE_STORED: Purpose.REQUEUE}
OVER_LIMIT = b"The limits of its domain allow no other delivery now.\n"
HOST_ASKS = b"Its host asks for it with ATRN.\n"
TOO_OLD = b"It was stored for too long, and nobody has taken it. (#4.4.7)\n"


class _HostRuns:
    """A host of a user that takes the mail of its domains over its own connection.

    `left`: those whose run has not begun. `ended` is called with the second answer, and with WANTED. `broken`: the
    connection can carry no more.
    """

    __slots__ = ("broken", "domains", "ended", "left", "user")

    def __init__(self, user: bytes, domains: list[bytes], ended: Callable[[RunAnswer], None]) -> None:
        self.user = user
        self.domains = domains
        self.left = deque(domains)
        self.ended = ended
        self.broken = False


class Keeper:
    """The state. `put` takes what is to be written to queue-send."""

    def __init__(
        self,
        home: Home,
        layout: Layout,
        store: DomainStore,
        files: OnDemandFiles,
        disk: DiskThread,
        remote: RemoteLink,
        put: Callable[[bytes], None],
    ) -> None:
        self._home = home
        self._layout = layout
        self._store = store
        self._files = files
        self._disk = disk
        self._remote = remote
        self._put = put
        self._clock = Clock(earlier=read_spans(f"{home.queue}/{CLOCK_FILE}"))  # For ages.
        self._limits = EtrnLimits()
        # Limits of deliveries, and runs that wait for them.
        self._run_limits = RunLimits()
        self._watch = ShareWatch(home)
        self._limited: dict[bytes, DomainRun] = {}
        # Domains whose run is to be followed by another one.
        self._followed: set[bytes] = set()
        self.times = DomainTimes()
        # Jobs of queue-send, runs and probes that queue-remote has, by its number. The domain of a job is None if its
        # mail is not to be stored.
        self._attempts: dict[int, tuple[Job, bytes | None]] = {}
        self._sent: dict[int, tuple[DomainRun, list[ClusterRecord]]] = {}
        self._probes: dict[int, bytes] = {}
        self._storing = JobStorage(layout, store, files, disk, self._end_storing)
        self._runs: dict[bytes, DomainRun] = {}
        self._waiting: deque[DomainRun] = deque()
        self._is_starting = False
        self._begun = 0  # How many runs have begun, without those of hosts that have asked with ATRN.
        # By each of their domains, which no other run may have meanwhile; and those whose connection is being closed.
        self._reversals: dict[bytes, _HostRuns] = {}
        self._releases: dict[int, _HostRuns] = {}
        self.returns: list[ReturnProcess] = []
        self._returned: dict[ReturnProcess, tuple[DomainRun, list[ClusterRecord]]] = {}
        self.leaving = False
        self._requeued = RequeuedIds()
        # Domains whose orders wait for the end of a run.
        self._ordered: set[bytes] = set()
        # What is to be told that the order of a run is carried out.
        self._awaited: dict[bytes, Callable[[RunAnswer], None]] = {}
        # Orders of which something is left, and what is no order and was reported.
        self._unfinished: dict[bytes, set[str]] = {}
        self._faulty_orders: set[tuple[bytes, str]] = set()
        # What is done in steps, the first one first.
        self._steps: deque[Iterator[None]] = deque()
        self._config = files.current
        # Domains that have stored mail and no line.
        self._lineless: set[bytes] = set()
        for domain in store.ordered:
            self._take_order(domain)
        self._steps.append(self._apply_lines(None, self._config))

    @property
    def busy(self) -> bool:
        """Whether mail is being sent by a run, or bounced."""
        return bool(self._sent or self.returns)

    def next_times(self) -> tuple[float | None, float | None]:
        """Return the times of the next probe or expiry, and of the next domain that has waited for its limits."""
        return self.times.next_time(), self._run_limits.resumes.next_time()

    @property
    def has_steps(self) -> bool:
        """Whether `wake` has something to do at once."""
        return bool(self._steps)

    # The control files.

    def reread(self) -> bytes:
        """Read the control files now; return what is in force (OnDemandFiles.reread)."""
        found = self._files.reread()
        self._take_config()
        return found

    def _look(self, now: float) -> OnDemandConfig:
        """Return the values of the control files, which are looked at once a second."""
        self._files.look(now)
        return self._take_config()

    def _take_config(self) -> OnDemandConfig:
        old, self._config = self._config, self._files.current
        if (old.lines, old.known) != (self._config.lines, self._config.known):
            self._steps.append(self._apply_lines(old, self._config))
        return self._config

    def _apply_lines(self, old: OnDemandConfig | None, new: OnDemandConfig) -> Iterator[None]:
        """Set the times of stored domains whose lines are new, and alert about those that have no line, in steps."""
        lineless: list[bytes] = []
        for domain in self._store.domains:
            if old is None or old.line(domain) != new.line(domain):
                self.times.forget(domain)
                self._expect(domain, time.monotonic(), spread=True)
            if new.known and domain not in new.lines:
                lineless.append(domain)
            yield
        if new is self._config and new.known:
            self._alert_of_lineless([domain for domain in lineless if domain not in self._lineless])
            self._lineless = set(lineless)

    def _alert_of_lineless(self, domains: list[bytes]) -> None:
        if domains:
            names = ", ".join(map(_shown, domains[:SHOWN_MAX]))
            more = f" and {len(domains) - SHOWN_MAX} more" if len(domains) > SHOWN_MAX else ""
            what = "what is stored for it stays until it expires" if len(domains) == 1 else "what is stored stays"
            mend = f"queuectl requeue --domain {_shown(domains[0])} sends it by normal routing"
            complain(PROGRAM, f"alert: control/ondemand has no line for {names}{more}; {what}; {mend}")

    def _lacks_line(self, domain: bytes) -> bool:
        return self._config.known and domain not in self._config.lines

    # Jobs of queue-send.

    def take_job(self, job: Job, now: float) -> None:
        """Try a job, or store it."""
        config = self._look(now)
        domains = {domain_of(recipient) for recipient in job.recipients}
        domain = next(iter(domains)) if len(domains) == 1 else None
        if domain not in config.lines or not job.path.startswith(b"mess/"):
            domain = None
        if domain is not None and WHOLE in self._store.held(domain):
            verdicts = [(TEMPORARY, HELD_REASON)] * len(job.recipients)
            self._storing.add(StoredJob(job, domain, verdicts, MESSAGE_SCOPE, tried=True))
        elif domain is not None and config.line(domain).turns:
            # Whether it can be stored or not, no attempt is made.
            verdicts = [(TEMPORARY, HOST_ASKS)] * len(job.recipients)
            self._storing.add(StoredJob(job, domain, verdicts, MESSAGE_SCOPE, tried=True))
        elif domain is not None and self.times.unreachable(domain, now):
            verdicts = [(TEMPORARY, b"The host could not be reached a short while ago.\n")] * len(job.recipients)
            self._storing.add(StoredJob(job, domain, verdicts, HOST_SCOPE, tried=False))
        elif domain is not None and not self._apply_limits(now).allows_job(domain):
            verdicts = [(TEMPORARY, OVER_LIMIT)] * len(job.recipients)
            self._storing.add(StoredJob(job, domain, verdicts, MESSAGE_SCOPE, tried=False, limited=True))
        else:
            self._try(job, domain)

    def _try(self, job: Job, domain: bytes | None) -> None:
        """Have queue-remote try a job; what is deferred is stored unless the domain is None."""
        number = self._remote.start(job.path, job.sender, job.nexthop, job.recipients)
        self._attempts[number] = job, domain
        if domain is not None:
            self._run_limits.begin(domain)

    def take_report(self, report: Report, now: float) -> None:
        """Take what became of an attempt, a probe, or a group of a run."""
        if report.number in self._attempts:
            job, domain = self._attempts.pop(report.number)
            self._end_attempt(job, domain, report, now)
        elif report.number in self._probes:
            self._end_probe(self._probes.pop(report.number), report, now)
        elif report.number in self._sent:
            run, group = self._sent.pop(report.number)
            self._end_group(run, group, report, now)
        elif report.number in self._releases:
            clean = bool(report.verdicts) and report.verdicts[0][0] == SUCCESS
            self._end_reversal(self._releases.pop(report.number), clean, now)
        else:
            complain(PROGRAM, "warning: internal error: delivery report out of range")

    def _end_attempt(self, job: Job, domain: bytes | None, report: Report, now: float) -> None:
        if domain is not None:
            self._run_limits.end(domain)
            if domain in self._limited:
                # Before the next job takes its place: else a run would wait as long as new mail comes.
                self._run_limits.resume(domain, now, self._run_limits.wait(domain))
        verdicts = report.verdicts
        whole = len(verdicts) == len(job.recipients)
        if domain is not None and self._lacks_line(domain):
            domain = None  # Its line was removed meanwhile.
        if domain is None or not whole or all(letter != TEMPORARY for letter, _ in verdicts):
            self._put(pack_report(report._replace(number=job.number)))
            if domain is not None and whole and self.times.reached(domain) and self._store.clusters(domain):
                self._start_run(domain, b"probe")
            return
        if report.scope == HOST_SCOPE:
            self.times.failed(domain, self._files.current.line(domain).probe, now)
        self._storing.add(StoredJob(job, domain, list(verdicts), report.scope, tried=True))

    def _end_storing(self, group: list[StoredJob], result: Result) -> None:
        """Report on jobs whose deferred recipients are stored; try those now that could not be, and were not tried."""
        now = time.monotonic()
        for item in group:
            trouble = result or item.trouble
            if trouble is not None and not item.tried:
                self._try(item.job, None)  # It stays in the queue, as other mail.
                continue
            scope = item.scope
            for place in item.deferred:
                letter, text = item.verdicts[place]
                if trouble is None:
                    item.verdicts[place] = SUCCESS, b"stored for %s\n%s" % (item.domain, text)
                    scope = MESSAGE_SCOPE
                else:
                    why = f"unable to store it: {reason(trouble)}\n".encode()
                    item.verdicts[place] = letter, text + (b"" if text.endswith(b"\n") else b"\n") + why
            if trouble is None and item.request is not None:
                for each in item.request.recipients:
                    line = logline.stored_on_demand(item.domain, each.long_id, each.size, each.sender, each.recipient)
                    self._put(pack_log_line(line))
                self._expect(item.domain, now)
                if item.limited:
                    self._follow(item.domain, now)
            self._put(pack_report(Report(item.job.number, scope, item.verdicts)))

    def _expect(self, domain: bytes, now: float, spread: bool = False) -> None:
        """Set the times of a domain that has stored mail. `spread`: at a random moment, since this is the start."""
        if not self._store.clusters(domain):
            return
        line = self._files.current.line(domain)
        if line.probe and not self.times.has(domain, Wake.PROBE):
            self.times.set(domain, Wake.PROBE, now + (random.uniform(0, line.probe) if spread else line.probe))
        if not self.times.has(domain, Wake.EXPIRY):
            soon = random.uniform(0, min(EXPIRY_SPREAD, line.expire))
            self.times.set(domain, Wake.EXPIRY, now + (soon if spread else line.expire))

    # Probes and requests.

    def wake(self, now: float) -> None:
        """Do what the time has come for, and the next steps of what is done in steps."""
        self._clock.look()
        until = time.perf_counter() + STEPS_A_TURN
        while self._steps and time.perf_counter() < until:
            if next(self._steps[0], self) is self:
                self._steps.popleft()
        until = time.perf_counter() + STEPS_A_TURN
        while time.perf_counter() < until and (waited := self._run_limits.take_due(now)) is not None:
            self._resume(waited, now)
        until = time.perf_counter() + STEPS_A_TURN
        while time.perf_counter() < until and (due := self.times.take_due(now)) is not None:
            domain = due.domain
            if due.wake is Wake.ORDER:
                self._unfinished.pop(domain, None)
                self._take_order(domain)
                continue
            config = self._look(now)
            if domain in self._runs or domain in self._reversals or not self._store.clusters(domain):
                continue  # The end of the run sets its times anew.
            if due.wake is Wake.EXPIRY:
                self._start_run(domain, b"expiry", Purpose.EXPIRY)
            elif not config.known:
                self.times.set(domain, Wake.PROBE, now + config.line(domain).probe)
            elif len(self._probes) >= RUNS_MAX:
                self.times.set(domain, Wake.PROBE, now + 1.0)
            elif config.line(domain).probe:
                self._probes[self._remote.probe(domain)] = domain

    def _end_probe(self, domain: bytes, report: Report, now: float) -> None:
        if report.verdicts and report.verdicts[0][0] == SUCCESS:
            self.times.reached(domain)
            self._start_run(domain, b"probe")
        else:
            self.times.failed(domain, self._files.current.line(domain).probe, now)

    def answer(self, request: RunRequest, later: Callable[[RunAnswer], None]) -> RunAnswer | None:
        """Answer a request for the mail of a domain. None: `later` is called with the answer."""
        if request.command == REQUEUED:
            lines = self._requeued.take(request.name.decode("ascii", "replace"))
            return RunAnswer(STARTED if lines else EMPTY, lines)
        now = time.monotonic()
        config = self._look(now)
        name = request.name
        domain = domain_key(name.lstrip(b"@#"))
        if request.command in (DELETE, BOUNCE):
            return self._order(request, domain)
        if request.command in (HOLDS, ORDERS, WHEN):
            if request.command == ORDERS and request.client:
                return self._order_given(domain, request.client, later)
            return self._tell(request.command, domain, now)
        limited = request.command == ETRN
        if limited and not self._limits.allows_client(request.client, config.interval, now):
            return RunAnswer(LATER, b"asked too often")
        if not config.known:
            return RunAnswer(LATER, b"control/ondemand cannot be read")
        ids = request.client.decode("ascii", "replace").split(",") if request.client and not limited else []
        interval, chosen = config.interval if limited else 0.0, ChosenRecords(frozenset(ids))
        begin = partial(self._begin, cause=request.command, chosen=chosen, interval=interval, now=now)
        if name.startswith(b"@"):
            self._steps.append(self._begin_below(domain, begin, later))
            return None
        if self._lacks_line(domain):
            return RunAnswer(UNKNOWN, NO_LINE if self._store.clusters(domain) else NOT_HERE)
        if config.line(domain).turns:
            return RunAnswer(UNKNOWN, ASKS_ITSELF)
        word = begin(domain)
        return RunAnswer(word, ON_HOLD if word == LATER and WHOLE in self._store.held(domain) else b"")

    def _begin_below(
        self, domain: bytes, begin: Callable[[bytes], bytes], later: Callable[[RunAnswer], None]
    ) -> Iterator[None]:
        """Start the runs of a domain and all below it, in steps; then answer."""
        lines = self._files.current.lines
        suffix = b"." + domain
        words: set[bytes] = set()
        held = known = False
        for number, each in enumerate(lines):
            if not number % NAMES_A_STEP:
                yield
            if each == domain or each.endswith(suffix):
                known = True
                if not lines[each].turns:
                    words.add(begin(each))
                    held = held or WHOLE in self._store.held(each)
                    yield
        if not words:
            later(RunAnswer(UNKNOWN, ASKS_ITSELF if known else NOT_HERE))
            return
        word = next(word for word in (STARTED, RUNNING, LATER, EMPTY) if word in words)
        later(RunAnswer(word, ON_HOLD if word == LATER and held else b""))

    def turn(self, request: RunRequest, descriptor: int, ended: Callable[[RunAnswer], None]) -> RunAnswer:
        """Answer ATRN: deliver over the connection that has this descriptor. `ended` is called if it has begun."""
        now = time.monotonic()
        config = self._look(now)
        domains = list(dict.fromkeys(map(domain_key, request.name.split(b","))))
        kept = [domain for domain in domains if self._store.clusters(domain)]
        stored = [domain for domain in kept if WHOLE not in self._store.held(domain)]
        answer = RunAnswer(STARTED)
        if not all(domain in config.lines and config.line(domain).turns for domain in domains):
            answer = RunAnswer(UNKNOWN, b"not an on-demand domain with atrn")
        elif any(domain in self._reversals or self._delivers(domain) for domain in domains):
            answer = RunAnswer(RUNNING)
            for each in {self._reversals[domain] for domain in domains if domain in self._reversals}:
                if each.user == request.user:
                    each.ended(RunAnswer(WANTED))
        elif not stored:
            answer = RunAnswer(LATER if kept else EMPTY, ON_HOLD if kept else b"")
        elif self.leaving or any(domain in self._runs for domain in stored):
            answer = RunAnswer(LATER)  # It is looked through for something else, which is over soon.
        elif self._has_all_places(request.user):
            answer = RunAnswer(LATER, b"too many hosts at once")
        if answer.word != STARTED:
            os.close(descriptor)
            return answer
        self._remote.reverse(ReversedHost(request.client or domains[0], stored), descriptor)
        reversal = _HostRuns(request.user, stored, ended)
        self._reversals.update(dict.fromkeys(stored, reversal))
        self._next_reversed(reversal)
        return answer

    def _has_all_places(self, user: bytes) -> bool:
        """Return whether another host of a user is to come later: no place is free, or none of the user's share."""
        users = [each.user for each in set(self._reversals.values())]
        return len(users) >= REVERSALS_MAX or users.count(user) >= REVERSALS_A_USER

    def _order(self, request: RunRequest, domain: bytes) -> RunAnswer:
        """Delete or return one stored message, whose long id is in the place of the client, or all of a domain."""
        if not self._store.clusters(domain):
            return RunAnswer(EMPTY)
        self._give_way(domain)
        if domain in self._runs or domain in self._reversals:
            return RunAnswer(RUNNING, b"a delivery is under way; try again when it is over")
        purpose = Purpose.DELETION if request.command == DELETE else Purpose.RETURN
        ids = frozenset([request.client.decode("ascii", "replace")] if request.client else [])
        chosen = ChosenRecords(ids, before=self._store.end_of(domain))
        self._start_run(domain, request.command, purpose, chosen)
        return RunAnswer(STARTED)

    def _order_given(self, domain: bytes, data: bytes, later: Callable[[RunAnswer], None]) -> RunAnswer | None:
        """Carry out an order for which the disk has no room; `later` is called when that is done."""
        if not self._store.clusters(domain):
            return RunAnswer(EMPTY)
        try:
            order = unpack_order(data)
        except FormatError as error:
            return RunAnswer(LATER, str(error).encode())
        self._give_way(domain)
        if domain in self._runs or domain in self._reversals:
            return RunAnswer(RUNNING)
        self._awaited[domain] = later
        self._start_run(domain, order.command, PURPOSES[order.command], ChosenRecords(order=order))
        return None

    def _delivers(self, domain: bytes) -> bool:
        """Return whether a run of a domain delivers its mail, or waits for that."""
        return domain in self._runs and self._runs[domain].purpose is Purpose.DELIVERY

    def _tell(self, command: bytes, domain: bytes, now: float) -> RunAnswer:
        """Read the marks or the orders of a domain anew, or say what it waits for."""
        if command == HOLDS:
            self._give_way(domain)
            self._disk.submit(partial(self._store.read_holds, domain), partial(self._have_read, domain), syncs=False)
        elif command == ORDERS:
            self._unfinished.pop(domain, None)
            self._take_order(domain)
        if domain in self._runs:
            return RunAnswer(RUNNING)
        if not self._store.clusters(domain):
            return RunAnswer(EMPTY)
        if self._lacks_line(domain):
            return RunAnswer(UNKNOWN, NO_LINE)
        when = self.times.probe_time(domain)
        return RunAnswer(LATER, b"" if when is None else b"%d" % max(0, when - now))

    def _have_read(self, domain: bytes, result: Result) -> None:
        if result is not None:
            complain(PROGRAM, f"warning: unable to read what is on hold of {_shown(domain)}: {reason(result)}")

    def _take_order(self, domain: bytes) -> None:
        """Begin to carry out the first order about a domain; if there is a run of it, when that is over."""
        self._give_way(domain)
        if domain in self._runs or domain in self._reversals:
            self._ordered.add(domain)
            return
        found: list[FoundOrder] = []
        passed = frozenset(self._unfinished.get(domain, ()))

        def have_read(result: Result) -> None:
            if result is not None:
                complain(PROGRAM, f"alert: unable to read the orders about {_shown(domain)}: {reason(result)}")
                self.times.order_failed(domain, time.monotonic())
                return
            name, order, faults = found[0]
            for faulty, why in faults:
                if (domain, faulty) not in self._faulty_orders:
                    self._faulty_orders.add((domain, faulty))
                    complain(PROGRAM, f"alert: {why}")
            if order is None:
                if not passed:
                    self.times.orders_done(domain)
                return
            if domain in self._runs or domain in self._reversals:
                self._ordered.add(domain)
            else:
                self._start_run(domain, order.command, PURPOSES[order.command], ChosenRecords(order=order), name)

        self._disk.submit(lambda: found.append(self._store.first_order(domain, self._age, passed)), have_read)

    def _begin(self, domain: bytes, cause: bytes, chosen: ChosenRecords, interval: float, now: float) -> bytes:
        """Start a run that somebody wants; return the word of the answer."""
        if self._delivers(domain):
            return RUNNING
        if not self._store.clusters(domain):
            return EMPTY
        if WHOLE in self._store.held(domain):
            return LATER
        if domain in self._runs:
            return LATER  # It is looked through for something else, which is over soon.
        # Counted last: only a delivery makes the next request wait.
        if interval and not self._limits.allows_domain(domain, interval, now):
            return LATER
        self._start_run(domain, cause, chosen=chosen)
        return STARTED

    # Runs.

    def _start_run(
        self,
        domain: bytes,
        cause: bytes,
        purpose: Purpose = Purpose.DELIVERY,
        chosen: ChosenRecords = EVERY_RECORD,
        order: str = "",
    ) -> None:
        if domain in self._runs or domain in self._reversals or self.leaving:
            return
        if purpose is Purpose.DELIVERY and self._files.current.line(domain).turns:
            return  # Its line has changed.
        if purpose is Purpose.DELIVERY and WHOLE in self._store.held(domain):
            self._expect(domain, time.monotonic())  # It may be released by the next probe.
            return
        self._waiting.append(self._make_run(domain, cause, purpose, chosen, order))
        self._start_waiting()

    def _make_run(
        self, domain: bytes, cause: bytes, purpose: Purpose, chosen: ChosenRecords = EVERY_RECORD, order: str = ""
    ) -> DomainRun:
        expired, clusters = partial(self._has_expired, domain), self._store.clusters(domain)
        run = self._runs[domain] = DomainRun(domain, cause, clusters, expired, purpose, chosen, order)
        return run

    def _has_expired(self, domain: bytes, birth: int) -> bool:
        """Return whether a message of a domain with this birth, in microseconds, has expired."""
        return self._age(birth // 1_000_000) > self._files.current.line(domain).expire

    def _age(self, when: int) -> float:
        """Return how long ago the system's time `when` was, by a clock that nobody sets."""
        return self._clock.now() - self._clock.birth_from_disk(when)

    def _start_waiting(self) -> None:
        """Have waiting runs begin or go on, as many as there may be; after a short time in steps: some end at once."""
        if self._is_starting:
            return  # A run has ended at once, or has to wait for its limits. The loop below goes on with the next one.
        self._is_starting = True
        until = time.perf_counter() + STEPS_A_TURN
        while self._waiting and self._begun < RUNS_MAX and time.perf_counter() < until:
            self._begun += 1
            run = self._waiting.popleft()
            if not run.number:
                self._begin_run(run)
            elif run.unloaded:
                self._next_cluster(run)
            else:
                self._advance(run)
        self._is_starting = False
        if self._waiting and self._begun < RUNS_MAX:
            self._steps.append(self._start_more())

    def _start_more(self) -> Iterator[None]:
        self._start_waiting()
        yield

    def _begin_run(self, run: DomainRun) -> None:
        if run.purpose is Purpose.DELIVERY:
            self._put(pack_log_line(logline.run_started(run.domain, run.cause)))
        self._advance(run)

    def _next_reversed(self, reversal: _HostRuns) -> None:
        """Begin the run of a host's next domain; after the last one, or once nothing more can be sent, close."""
        if self.leaving:
            return
        if reversal.left and not reversal.broken:
            self._begin_run(self._make_run(reversal.left.popleft(), ATRN, Purpose.DELIVERY))
        else:
            self._releases[self._remote.release(reversal.domains[0])] = reversal

    def _end_reversal(self, reversal: _HostRuns, clean: bool, now: float) -> None:
        """Forget a host whose connection is closed."""
        for domain in reversal.domains:
            del self._reversals[domain]
            self._expect(domain, now)
            if domain in self._ordered:
                self._ordered.discard(domain)
                self._take_order(domain)
        reversal.ended(RunAnswer(CLEAN if clean and not reversal.broken else BROKEN))

    def _advance(self, run: DomainRun) -> None:
        """Send the next group of a run, or go on to its next cluster, or end it."""
        if self.leaving:
            return  # The next process goes on.
        group = run.next_group()
        if not group:
            if run.touched:
                self._disk.submit(partial(self._store.settle, run.domain, run.number), partial(self._settled, run))
            else:
                self._next_cluster(run)
        elif run.purpose is Purpose.EXPIRY:
            self._return(run, group, [TOO_OLD] * len(group))
        elif run.purpose is Purpose.RETURN:
            self._return(run, group, [RETURNED] * len(group))
        elif run.purpose is Purpose.DELETION:
            for record in group:
                self._log_result(run, record, PERMANENT, DELETED)
            run.failed += len(group)
            self._mark(run, group, partial(self._advance, run))
        elif run.purpose is Purpose.REQUEUE:
            self._requeue(run, group)
        elif run.domain not in self._reversals and self._files.current.line(run.domain).turns:
            # Its line has changed: the way that it was to go is not the right one any more.
            run.keep(group)
            run.stop()
            self._advance(run)
        elif run.domain not in self._reversals and (wait := self._limit(run.domain)):
            if run.has_expired(group[0]):
                # Its turn may be years away, and no search for expired mail begins before the end of this run.
                self._return(run, group, [TOO_OLD] * len(group))
            else:
                self._wait_for_limits(run, wait)
        else:
            if run.domain not in self._reversals:
                self._run_limits.begin(run.domain, is_run=True)
            first = group[0].stored
            path = self._store.message_path(run.domain, run.number, first).encode()
            recipients = [record.stored.recipient for record in group]
            self._sent[self._remote.start(path, first.sender, run.domain, recipients)] = run, group

    # Limits of deliveries.

    def _apply_limits(self, now: float) -> RunLimits:
        """Return the limits, by the control files and the queues that run."""
        self._watch.look(now)
        self._run_limits.apply(self._look(now), self._watch.share)
        return self._run_limits

    def _limit(self, domain: bytes) -> float:
        """Return the seconds until a run of a domain is to look again whether its limits allow a delivery; 0.0: now."""
        return self._apply_limits(time.monotonic()).wait(domain)

    def _wait_for_limits(self, run: DomainRun, wait: float) -> None:
        """Have a run look again after some seconds whether it may send its last group."""
        run.put_back()
        self._limited[run.domain] = run
        self._run_limits.resume(run.domain, time.monotonic(), wait)
        self._begun -= 1
        if run.domain in self._ordered or run.held != self._store.held(run.domain):
            self._give_way(run.domain)  # It was ordered while a delivery was under way.
        elif len(self._limited) > LOADED_MAX:
            run.unload()  # Many runs may wait for a long time.
        self._start_waiting()

    def _resume(self, domain: bytes, now: float) -> None:
        """Go on with a run that has waited for its limits; or start one, for what is left or was stored meanwhile."""
        run = self._limited.get(domain)
        if run is not None:
            turns = self._look(now).line(domain).turns
            wait = 0.0 if turns or self._has_expired(domain, run.next_birth) else self._limit(domain)
            if wait:
                self._run_limits.resume(domain, now, wait)
                return
            self._waiting.append(self._limited.pop(domain))
            self._start_waiting()
        elif domain in self._runs or domain in self._reversals:
            self._run_limits.resume(domain, now, LOOK_AGAIN)
        elif self._store.clusters(domain) and not self._look(now).line(domain).turns:
            self._start_run(domain, b"probe")

    def _follow(self, domain: bytes, now: float) -> None:
        """Have a run begin when the limits of a domain allow it, and after the one that there is."""
        if domain in self._runs:
            self._followed.add(domain)
        else:
            self._run_limits.resume(domain, now, self._run_limits.wait(domain))

    def _give_way(self, domain: bytes) -> None:
        """End a run that waits for its limits: an order about its domain goes first. A later run does the rest."""
        run = self._limited.pop(domain, None)
        if run is None:
            return
        if run.chosen != EVERY_RECORD:
            self._run_limits.resumes.forget(domain)
        self._begun += 1
        run.stop()
        self._advance(run)

    def _next_cluster(self, run: DomainRun) -> None:
        number = run.next_cluster()
        if number is None:
            self._end_run(run)
            return
        found: list[Cluster] = []

        def read() -> None:
            if number in self._store.clusters(run.domain):
                found.append(self._store.read(run.domain, number))
                self._store.check_marks(run.domain, number)

        def loaded(result: Result) -> None:
            if result is not None and found:
                self._stop_unmarked(run, found[0].pending, result)
                self._next_cluster(run)
            elif result is not None:
                self._complain(run, f"unable to read cluster {number}", result)
                self._next_cluster(run)
            elif found:
                run.load(found[0].pending, self._store.held(run.domain), found[0].seed)
                self._advance(run)
            else:
                self._next_cluster(run)

        self._disk.submit(read, loaded, syncs=False)

    def _settled(self, run: DomainRun, result: Result) -> None:
        run.touched = False
        if result is not None:
            self._complain(run, f"unable to clean up cluster {run.number}", result)
        self._next_cluster(run)

    def _end_group(self, run: DomainRun, group: list[ClusterRecord], report: Report, now: float) -> None:
        if run.domain not in self._reversals:
            self._run_limits.end(run.domain, is_run=True)
        verdicts = report.verdicts
        if len(verdicts) != len(group):
            verdicts = [(TEMPORARY, b"report mangled\n")] * len(group)
        done: list[ClusterRecord] = []
        failed: list[ClusterRecord] = []
        kept: list[ClusterRecord] = []
        texts: list[bytes] = []
        for record, (letter, text) in zip(group, verdicts, strict=True):
            if letter not in (SUCCESS, PERMANENT) and run.has_expired(record):
                letter, text = PERMANENT, text + (b"" if text.endswith(b"\n") else b"\n") + TOO_OLD
            if letter == SUCCESS:
                done.append(record)
            elif letter == PERMANENT:
                failed.append(record)
                texts.append(text)
                continue  # It is logged when its bounce is queued.
            else:
                kept.append(record)
            self._log_result(run, record, letter, text)
        run.delivered += len(done)
        run.keep(kept)
        reversal = self._reversals.get(run.domain)
        if report.scope == HOST_SCOPE and kept:
            if reversal is None:
                self.times.failed(run.domain, self._files.current.line(run.domain).probe, now)
            else:
                reversal.broken = True
            run.stop()
        elif (done or failed) and reversal is None:
            self.times.reached(run.domain)
        if done:
            self._mark(run, done, None if failed else partial(self._advance, run))
        if failed:
            self._return(run, failed, texts)
        elif not done:
            self._advance(run)

    def _mark(self, run: DomainRun, records: Sequence[ClusterRecord], then: Callable[[], None] | None) -> None:
        offsets = [record.offset for record in records]
        run.touched = True

        def marked(result: Result) -> None:
            if result is not None:
                self._stop_unmarked(run, records, result)
            if then is not None:
                then()

        self._disk.submit(partial(self._store.mark, run.domain, run.number, offsets), marked, syncs=False)

    def _stop_unmarked(self, run: DomainRun, records: Sequence[ClusterRecord], error: OSError) -> None:
        """Stop a run whose records cannot be marked: the next one would deliver all that it still sends once more."""
        self._complain(run, f"trouble marking cluster {run.number}", error)
        if run.order or run.domain in self._awaited:
            run.keep(records)  # So the order stays, or its giver learns that something is left.
        run.stop()

    def _end_order(self, run: DomainRun) -> None:
        """Remove the order that a run has carried out, and take the next one.

        If something of it is left, it is tried again after some minutes, and after the next run of the domain.
        """
        if self.leaving:
            return
        if run.deferred:
            self._unfinished.setdefault(run.domain, set()).add(run.order)
            self.times.order_failed(run.domain, time.monotonic())
            self._take_order(run.domain)
            return

        def removed(result: Result) -> None:
            if result is not None:
                complain(PROGRAM, f"warning: unable to remove an order about {_shown(run.domain)}: {reason(result)}")
                self.times.order_failed(run.domain, time.monotonic())
            else:
                self._take_order(run.domain)

        self._disk.submit(partial(self._store.end_order, run.domain, run.order), removed)

    def _end_run(self, run: DomainRun) -> None:
        del self._runs[run.domain]
        awaited = self._awaited.pop(run.domain, None)
        if awaited is not None:
            awaited(RunAnswer(LATER, NOT_WHOLE) if run.deferred else RunAnswer(EMPTY))
        reversal = self._reversals.get(run.domain)
        if run.order:
            self._end_order(run)
        elif (run.domain in self._ordered or run.domain in self._unfinished) and reversal is None:
            self._unfinished.pop(run.domain, None)
            self._take_order(run.domain)
        if reversal is None:
            self._begun -= 1
            self._ordered.discard(run.domain)
        now = time.monotonic()
        if run.purpose is Purpose.DELIVERY or run.failed:
            self._put(pack_log_line(logline.run_ended(run.domain, run.delivered, run.failed, run.deferred)))
        line = self._files.current.line(run.domain)
        if not self._store.clusters(run.domain):
            self.times.forget(run.domain)
        else:
            if run.oldest is not None:
                left = line.expire - self._age(run.oldest // 1_000_000)
                self.times.set(run.domain, Wake.EXPIRY, now + max(min(EXPIRY_EVERY, line.expire), left + 1.0))
            self._expect(run.domain, now)
        if run.domain in self._followed:
            self._followed.discard(run.domain)
            self._follow(run.domain, now)
        if reversal is not None:
            self._next_reversed(reversal)
        self._start_waiting()

    # Failures.

    def _return(self, run: DomainRun, records: list[ClusterRecord], texts: list[bytes]) -> None:
        """Return mail to its sender; the run goes on when the bounce is queued."""
        path = f"{self._layout.queue}/{self._store.message_path(run.domain, run.number, records[0].stored)}"
        header: list[bytes] = []

        def have_read(result: Result) -> None:
            pairs = [(record.stored, text) for record, text in zip(records, texts, strict=True)]
            group = FailedGroup(run.domain, pairs, header[0] if header else b"")
            mail = compose_return(group, self._files.current, int(time.time()))
            if mail is None:
                self._put(pack_log_line(logline.on_demand_bounce(run.domain, records[0].stored.long_id, 0)))
                self._end_return(run, records, group)
                return
            try:
                process = ReturnProcess(self._home, group, mail)
            except OSError as error:
                self._complain(run, "trouble injecting a bounce", error)
                run.keep(records)
                self._advance(run)
                return
            self.returns.append(process)
            self._returned[process] = run, records

        self._disk.submit(lambda: header.append(read_header(path)), have_read, syncs=False)

    def _requeue(self, run: DomainRun, records: list[ClusterRecord]) -> None:
        """Have queue-enqueue queue a message for some of its recipients; the run goes on when it is in the queue."""
        path = f"{self._layout.queue}/{self._store.message_path(run.domain, run.number, records[0].stored)}"
        opened: list[int] = []

        def have_opened(result: Result) -> None:
            error = result
            if error is None:
                # The administrator wants an attempt, even if the last one has failed.
                self.times.reached(run.domain)
                recipients = [record.stored.recipient for record in records]
                try:
                    envelope = pack_enqueue(records[0].stored.sender, recipients)
                    process = ReturnProcess(self._home, None, (opened[0], envelope))
                except OSError as trouble:
                    error = trouble
            if error is not None:
                self._complain(run, "trouble requeueing mail", error)
                run.keep(records)
                self._advance(run)
                return
            self.returns.append(process)
            self._returned[process] = run, records

        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        self._disk.submit(lambda: opened.append(os.open(path, flags)), have_opened, syncs=False)

    def reap(self, process: ReturnProcess, code: int) -> None:
        """Take the exit code of a process of `returns`."""
        self.returns.remove(process)
        run, records = self._returned.pop(process)
        if code:
            why = f"queue-enqueue exited {code}; will try again later"
            what = "requeueing mail" if process.group is None else "injecting a bounce"
            complain(PROGRAM, f"warning: trouble {what} for {_shown(run.domain)}: {why}")
            run.keep(records)
            self._advance(run)
            return
        if process.group is None:
            # The new message is durable. If the mark is lost in a crash, they are requeued once more.
            self._requeued.note(run.order, run.domain, records[0].stored.long_id, process.long_id or "-")
            for record in records:
                line = logline.on_demand_requeue(
                    run.domain, record.stored.long_id, process.pid, record.stored.recipient
                )
                self._put(pack_log_line(line))
            self._mark(run, records, partial(self._advance, run))
            return
        line = logline.on_demand_bounce(run.domain, records[0].stored.long_id, process.pid)
        self._put(pack_log_line(line))
        self._end_return(run, records, process.group)

    def _end_return(self, run: DomainRun, records: list[ClusterRecord], group: FailedGroup) -> None:
        run.failed += len(records)
        for record, (_, text) in zip(records, group.recipients, strict=True):
            self._log_result(run, record, PERMANENT, text)
        self._mark(run, records, partial(self._advance, run))

    def _log_result(self, run: DomainRun, record: ClusterRecord, letter: bytes, text: bytes) -> None:
        stored = record.stored
        line = logline.on_demand_result(run.domain, stored.long_id, letter, stored.recipient, text)
        self._put(pack_log_line(line))

    def _complain(self, run: DomainRun, what: str, error: OSError) -> None:
        complain(PROGRAM, f"warning: {what} of {_shown(run.domain)}: {reason(error)}; will try again later")


def _shown(domain: bytes) -> str:
    return domain.decode("ascii", "replace")
