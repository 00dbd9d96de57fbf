"""The recipient checker: answers questions on the socket intake/recipients (queue_wire.pipes.recipient_question).

queue-local forks it at its start, and again after it has died. Each lookup is a process of its own (recipient_check,
queue_local.deliveries), because a home may hang, and only a process can become the user and be killed. So the checker
itself never waits, and costs what is bounded here: lookups at once, and at once for one user; questions that wait;
connections; verdicts that are kept. A question that is asked twice at the same time is looked up once. A verdict is
kept for some seconds, that of an LMTP server for minutes; Z is not kept. While a server cannot tell, a recipient that
it had within a day exists.

A question that is not decided in time is Z, and so are those for which there is no room. Only root, the queue's owner
and queue-smtpd's account may ask.
"""

import fcntl
import functools
import gc
import itertools
import os
import select
import socket
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from queue_base.accounts import Owner, queue_owner, trusted_users
from queue_base.daemon.log_limit import LimitedLog
from queue_base.daemon.pipes import OutPipe, PeerLost, read_available
from queue_base.daemon.unix_sockets import accept_with_uid, listen_at
from queue_base.errors import Failure, Temporary, complain, reason
from queue_base.home import Home
from queue_local.deliveries import Deliveries, Ended
from queue_local.rcpt.recipient_check import check_question
from queue_local.result import Outcome
from queue_wire.address import address_key
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.job import Job
from queue_wire.pipes.recipient_question import (
    CHECK_SOCKET,
    EXISTS,
    QUESTION_MAX,
    UNDECIDED,
    UNKNOWN,
    RecipientQuestion,
    RecipientVerdict,
    pack_verdict,
    unpack_question,
)

LOOKUPS_MAX = 20
# Lookups at once for addresses that begin alike, up to a `-`: they may be one user's, whose home may hang. And at once
# of the same LMTP servers.
LOOKUPS_ALIKE = 4
# Lookups that are started in a turn of the loop; each costs a fork, of about a millisecond.
STARTED_IN_A_TURN = 4
# Seconds after which a lookup ends itself, and more until it is killed.
LOOKUP_SECONDS = 5
KILL_SECONDS = 1.0
# Seconds after which a question is Z, whether its lookup has begun or not.
QUESTION_SECONDS = 10.0
QUESTIONS_MAX = 20_000
CONNECTIONS_MAX = 1000
# How long a verdict is kept, in seconds, and how many of each letter are.
KEPT_SECONDS = {EXISTS: 30.0, UNKNOWN: 5.0}
SERVED_SECONDS = {EXISTS: 600.0, UNKNOWN: 60.0}
KEPT_MAX = 10_000
# How long an LMTP server's yes counts while it cannot be asked.
LAST_SECONDS = 86_400.0
_KEPT_ADDRESS_MAX = 320
# Bytes that are read at once from a connection, and bytes of verdicts that wait for one that does not read.
_READ_MAX = 8192
_UNREAD_MAX = 1 << 20
_ACCEPTED_IN_A_TURN = 16
_LATE_IN_A_TURN = 1000
# Seconds between two starts of a checker that dies.
PAUSE = 5.0

_HANGS = b"The lookup takes over %d s: a home directory, or the user database, hangs. (#4.3.0)"
_SLOW = b"The lookup takes over %d s: the LMTP server is slow, or too many ask it. (#4.3.0)"
Work = Callable[[RecipientQuestion], None]


class _KeptVerdict(NamedTuple):
    letter: bytes
    text: bytes
    at: float


class KeptVerdicts:
    """Verdicts by address, each for the seconds of its letter, at most KEPT_MAX of a letter; the oldest is forgotten
    first. So whoever asks about unknown recipients makes nobody forget those that exist.
    """

    def __init__(self, seconds: Mapping[bytes, float] = KEPT_SECONDS) -> None:
        self._seconds = seconds
        self._kept: dict[bytes, OrderedDict[bytes, _KeptVerdict]] = {letter: OrderedDict() for letter in seconds}

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def get(self, address: bytes, now: float) -> _KeptVerdict | None:
        """Return the verdict on an address, None if there is none, or it is too old."""
        for letter, kept in self._kept.items():
            found = kept.get(address)
            if found is not None and now < found.at + self._seconds[letter]:
                return found
        return None

    def existed(self, address: bytes, now: float) -> bool:
        """Return whether the last verdict was that there is such a mailbox, within LAST_SECONDS."""
        found = self._kept[EXISTS].get(address)
        return found is not None and now < found.at + LAST_SECONDS

    def put(self, address: bytes, letter: bytes, text: bytes, now: float) -> None:
        """Keep a verdict, unless it is Z, or the address is very long."""
        if letter not in self._kept or len(address) > _KEPT_ADDRESS_MAX:
            return
        for kept in self._kept.values():
            kept.pop(address, None)
        kept = self._kept[letter]
        kept[address] = _KeptVerdict(letter, text, now)
        if len(kept) > KEPT_MAX:
            kept.popitem(last=False)


class _Asker:
    """A connection of queue-smtpd."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.verdicts = OutPipe(connection.fileno())
        self.reader = NetstringReader(QUESTION_MAX)
        self.lost = False

    def answer(self, verdict: RecipientVerdict) -> None:
        if not self.lost:
            self.verdicts.put(pack_verdict(verdict))


class _Lookup:
    """A question that is looked up, or waits for it; `askers` wait for the verdict, until `until`.

    `key` is that of its verdict.
    """

    __slots__ = ("alike", "askers", "key", "number", "question", "started", "until")

    def __init__(self, number: int, key: bytes, question: RecipientQuestion, until: float) -> None:
        self.number = number
        self.key = key
        self.question = question
        self.alike = question.servers or key.rpartition(b"@")[0].partition(b"-")[0]
        self.until = until
        self.started = 0.0
        self.askers: list[tuple[_Asker, int]] = []

    def late(self, seconds: float) -> bytes:
        """Return the text of a verdict that takes too long."""
        return (_SLOW if self.question.servers else _HANGS) % seconds


def _key(question: RecipientQuestion) -> bytes:
    """Return the key of a question's verdict: queue-local ignores case. Another server may have other recipients."""
    if question.servers:
        return question.servers + b"\0" + question.address
    return address_key(question.address)


class RecipientLookups:
    """The questions that are open, by the keys of their verdicts.

    `work` is called with a question in a process of its own. It returns, or raises Permanent or Temporary.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._processes = Deliveries(LOOKUPS_MAX, KILL_SECONDS)
        self._open: dict[bytes, _Lookup] = {}
        self._waiting: deque[_Lookup] = deque()
        self._running: dict[int, _Lookup] = {}
        # Processes, also those that nobody waits for any more.
        self._alike: Counter[bytes] = Counter()
        self._asked = 0
        self._count = 0
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.kept = KeptVerdicts()
        self._served = KeptVerdicts(SERVED_SECONDS)

    def __len__(self) -> int:
        return len(self._processes)

    def ask(self, asker: _Asker, question: RecipientQuestion, now: float) -> None:
        """Take a question; answer it now or later."""
        key = _key(question)
        kept = self._verdicts(question).get(key, now)
        if kept is not None:
            asker.answer(RecipientVerdict(question.number, kept.letter, kept.text))
            return
        lookup = self._open.get(key)
        if lookup is None:
            self._count += 1
            lookup = _Lookup(self._count, key, question, now + QUESTION_SECONDS)
        if self._asked >= QUESTIONS_MAX:
            text = b"%d recipients wait for their lookup already. (#4.3.2)" % self._asked
            asker.answer(RecipientVerdict(question.number, *self._last_resort(lookup, UNDECIDED, text, now)))
            return
        if key not in self._open:
            self._open[key] = lookup
            self._waiting.append(lookup)
        lookup.askers.append((asker, question.number))
        self._asked += 1

    def _verdicts(self, question: RecipientQuestion) -> KeptVerdicts:
        return self._served if question.servers else self.kept

    def _last_resort(self, lookup: _Lookup, letter: bytes, text: bytes, now: float) -> tuple[bytes, bytes]:
        """Return a verdict, or what an LMTP server said before if it is that it cannot be told now."""
        if letter == UNDECIDED and lookup.question.servers and self._served.existed(lookup.key, now):
            return EXISTS, b""
        return letter, text

    def prepare(self, poll: select.poll, now: float) -> float | None:
        """Register the processes; return the seconds until something must be done, None for never."""
        times = [self._processes.prepare(poll)]
        # They are in the order of their times.
        first = next(iter(self._open.values()), None)
        times.append(None if first is None else max(0.0, first.until - now))
        if self._may_start():
            times.append(0.0)
        return min((seconds for seconds in times if seconds is not None), default=None)

    def run(self, ready: set[int], now: float) -> None:
        """Start lookups, take what they have found, and give up those that are late."""
        for ended in self._processes.run(ready):
            self._take(ended, now)
        for late in list(itertools.islice(self._open.values(), _LATE_IN_A_TURN)):
            if now < late.until:
                break
            self._decide(late, UNDECIDED, late.late(QUESTION_SECONDS), now)
        for _ in range(STARTED_IN_A_TURN):
            lookup = self._next()
            if lookup is None:
                break
            self._start(lookup, now)

    def _may_start(self) -> bool:
        return bool(self._processes.room) and any(self._alike[each.alike] < LOOKUPS_ALIKE for each in self._waiting)

    def _next(self) -> _Lookup | None:
        """Return the next lookup to start, and take it from those that wait."""
        if not self._processes.room:
            return None
        for place, lookup in enumerate(self._waiting):
            if self._alike[lookup.alike] < LOOKUPS_ALIKE:
                del self._waiting[place]
                return lookup
        return None

    def _start(self, lookup: _Lookup, now: float) -> None:
        address = lookup.question.address
        job = Job(lookup.number, b"", b"", address, [address])

        def work(message: int) -> Outcome:
            self._work(lookup.question)
            return Outcome("")

        try:
            self._processes.start(job, work, self._null, LOOKUP_SECONDS)
        except Temporary as error:
            self._decide(lookup, UNDECIDED, _encode(error), now)
            return
        lookup.started = now
        self._running[lookup.number] = lookup
        self._alike[lookup.alike] += 1

    def _take(self, ended: Ended, now: float) -> None:
        lookup = self._running.pop(ended.job.number)
        self._alike[lookup.alike] -= 1
        if not self._alike[lookup.alike]:
            del self._alike[lookup.alike]
        text = ended.text.strip()
        if ended.letter == UNDECIDED and now - lookup.started >= LOOKUP_SECONDS:
            # It has interrupted itself, or was killed.
            text = lookup.late(LOOKUP_SECONDS)
        self._verdicts(lookup.question).put(lookup.key, ended.letter, text, now)
        self._decide(lookup, ended.letter, text, now)

    def _decide(self, lookup: _Lookup, letter: bytes, text: bytes, now: float) -> None:
        """Answer everybody who waits. The process may still run."""
        letter, text = self._last_resort(lookup, letter, text, now)
        if self._open.get(lookup.key) is lookup:
            del self._open[lookup.key]
            if lookup.number not in self._running and lookup in self._waiting:
                self._waiting.remove(lookup)
        for asker, number in lookup.askers:
            asker.answer(RecipientVerdict(number, letter, text))
        self._asked -= len(lookup.askers)
        lookup.askers = []


class CheckService:
    """The socket, its connections, and the lookups. `step` is one turn of the loop."""

    def __init__(self, listening: socket.socket, trusted: Iterable[int], work: Work) -> None:
        self._listening = listening
        self._trusted = frozenset(trusted)
        self.lookups = RecipientLookups(work)
        self._askers: dict[int, _Asker] = {}
        say = functools.partial(complain, "queue-local")
        self._refusals = LimitedLog(say, "more connections to the recipient checker were refused")

    def __len__(self) -> int:
        return len(self._askers)

    def step(self, others: Iterable[int] = ()) -> set[int]:
        """Wait for something and do it; return those of `others`, descriptors, that are ready."""
        poll = select.poll()
        for other in others:
            poll.register(other, select.POLLIN)
        if len(self._askers) < CONNECTIONS_MAX:
            poll.register(self._listening, select.POLLIN)
        for descriptor, asker in self._askers.items():
            poll.register(descriptor, select.POLLIN | (select.POLLOUT if asker.verdicts.unwritten else 0))
        seconds = self.lookups.prepare(poll, time.monotonic())
        ready = {descriptor for descriptor, _ in poll.poll(None if seconds is None else seconds * 1000 + 1)}
        now = time.monotonic()
        if self._listening.fileno() in ready:
            self._accept()
        for descriptor in ready & self._askers.keys():
            self._read(self._askers[descriptor], now)
        self.lookups.run(ready, now)
        for asker in list(self._askers.values()):
            self._write(asker)
        return ready.intersection(others)

    def close(self) -> None:
        """Close all connections."""
        for asker in list(self._askers.values()):
            self._drop(asker)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_IN_A_TURN):
            try:
                connection, uid = accept_with_uid(self._listening)
            except OSError:
                # There are no more, or the client is gone, or there are too many descriptors.
                return
            if uid not in self._trusted:
                connection.close()
                self._refusals.add(f"warning: uid {uid} may not ask the recipient checker; run queue-smtpd as queued")
                continue
            asker = _Asker(connection)
            self._askers[connection.fileno()] = asker

    def _read(self, asker: _Asker, now: float) -> None:
        try:
            data = read_available(asker.connection.fileno(), _READ_MAX)
            if data is None:
                return
            asker.reader.feed(data)
            while (payload := asker.reader.next()) is not None:
                self.lookups.ask(asker, unpack_question(payload), now)
        except (FormatError, PeerLost) as error:
            if isinstance(error, FormatError):
                complain("queue-local", f"warning: unable to understand queue-smtpd: {error}; its connection is closed")
            self._drop(asker)

    def _write(self, asker: _Asker) -> None:
        if asker.verdicts.unwritten:
            try:
                asker.verdicts.flush()
            except PeerLost:
                self._drop(asker)
                return
            if asker.verdicts.unwritten > _UNREAD_MAX:
                self._drop(asker)

    def _drop(self, asker: _Asker) -> None:
        if not asker.lost:
            asker.lost = True
            del self._askers[asker.connection.fileno()]
            asker.connection.close()


def _encode(error: Exception) -> bytes:
    return str(error).encode("utf-8", "surrogateescape")


def open_socket(home: Home, owner: Owner) -> socket.socket:
    """Return the listening socket, made as the queue's owner, who may replace what is there. Raises OSError."""
    changed = not os.geteuid() and bool(owner.uid)
    if not changed:
        return listen_at(f"{home.queue}/{CHECK_SOCKET}", CONNECTIONS_MAX)
    gid = os.getegid()
    os.setegid(owner.gid)
    os.seteuid(owner.uid)
    try:
        return listen_at(f"{home.queue}/{CHECK_SOCKET}", CONNECTIONS_MAX)
    finally:
        os.seteuid(0)
        os.setegid(gid)


def run_checker(home: Home, life: int) -> None:
    """Run the checker in a process of its own, until the pipe `life` ends. Never returns."""
    code = 1
    try:
        # The pipes of queue-local must not stay open here.
        life = fcntl.fcntl(life, fcntl.F_DUPFD_CLOEXEC, 4)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor, kept in ((null, 0), (null, 1), (life, 3)):
            os.dup2(descriptor, kept, inheritable=kept < 3)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        # The lookups share the memory of this process. Garbage collection would write to all of it, and so copy it.
        gc.freeze()
        owner = queue_owner(home)
        service = CheckService(open_socket(home, owner), trusted_users(owner), functools.partial(check_question, home))
        while not service.step([3]):
            pass
        code = 0
    except (OSError, Failure) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        complain("queue-local", f"alert: unable to run the recipient checker: {why}; recipients get 451 at RCPT")
    except BaseException as error:
        complain("queue-local", f"alert: internal error in the recipient checker: {error!r}; recipients get 451")
    finally:
        os._exit(code)


class RecipientChecker:
    """The checker's process, as queue-local sees it. `prepare` and `run` are the loop's pair."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._life = -1
        self._pid = 0
        self._handle = -1
        self._start_at = 0.0
        self._start()

    def prepare(self, poll: select.poll) -> float | None:
        """Register the process; return the seconds until it is to be started, None for never."""
        if self._pid:
            poll.register(self._handle, select.POLLIN)
            return None
        return max(0.0, self._start_at - time.monotonic())

    def run(self, ready: set[int]) -> None:
        """Note that it has ended, or start it again."""
        if self._pid and self._handle in ready:
            code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
            self._forget()
            how = f"signal {-code}" if code < 0 else f"code {code}"
            complain("queue-local", f"alert: the recipient checker ended with {how}; it starts again")
        elif not self._pid and time.monotonic() >= self._start_at:
            self._start()

    def close(self) -> None:
        """Let the checker end."""
        if self._pid:
            self._forget()

    def _forget(self) -> None:
        os.close(self._life)
        os.close(self._handle)
        self._pid = 0

    def _start(self) -> None:
        self._start_at = time.monotonic() + PAUSE
        try:
            life, self._life = os.pipe()
        except OSError:
            return
        try:
            pid = os.fork()
            if not pid:
                os.close(self._life)
                run_checker(self._home, life)
            self._handle = os.pidfd_open(pid)
            self._pid = pid
        except OSError as error:
            os.close(self._life)
            complain("queue-local", f"alert: unable to start the recipient checker: {reason(error)}")
        finally:
            os.close(life)
