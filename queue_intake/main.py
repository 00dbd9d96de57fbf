"""queue-intake: takes messages by QMTP and QMQP, for queue-smtpd, local programs and null clients.

Descriptor 0 is a pipe from queue-send: H rereads the control files, and its end ends queue-intake. Descriptor 1 takes
log lines for queue-send to print, and answers each H with what is in force. One thread serves all connections and never
waits for a sync; others do. All messages that are complete when a commit begins share it, whichever connections they
came over, and are answered K after it.

Where a home has several queues, queue-intake is a service of its own, which spreads messages over them (entrance).
Descriptor 1 is its log then, and HUP rereads the control files. Each queue has a thread that commits, so that a slow
disk delays only the messages that it has.

At TERM, or when queue-send has gone, it takes no more mail, commits what it has received whole, answers, and exits. A
message whose connection ends before it is complete is dropped; one that was not answered may be in the queue all the
same. A client that sends or reads nothing delays nobody, and is disconnected after a minute.
"""

import os
import resource
import select
import signal
import time
from collections.abc import Callable
from functools import partial

from queue_base.accounts import Owner, become_queue_owner, queue_owner
from queue_base.control import read_me, read_value
from queue_base.control_files import kept_by, read_contents
from queue_base.daemon.inherited_sockets import take_inherited
from queue_base.daemon.lock import take_intakemutex
from queue_base.daemon.log_limit import LimitedLog
from queue_base.daemon.pipes import OutPipe, PeerLost, read_available
from queue_base.daemon.signals import Signals, ignore
from queue_base.errors import Failure, Temporary, Usage, complain, reason
from queue_base.home import Home, take_daemon_home
from queue_base.queue import hold_marks, postman
from queue_base.queue.layout import open_layout, queue_in_memory
from queue_base.queue.writer import QueueWriter
from queue_intake.acceptance import Acceptance
from queue_intake.client_connection import ClientConnection, IntakeClient, Memory
from queue_intake.commit_group import GROUP, accepted_text, copy_trouble, is_large
from queue_intake.commit_lane import CommitLane, LargeMessage
from queue_intake.entrance import Door, Entrance
from queue_intake.listener import NotAllowed, TcpListener, UnixListener
from queue_intake.sharing import Turns, UsageCounts, limits_for
from queue_wire import ids
from queue_wire.admin.settings import in_force, pack_in_force
from queue_wire.control.places import ListeningPlace
from queue_wire.control.registry import INTAKE
from queue_wire.logline import alert, warning
from queue_wire.pipes.notice import REREAD, Reread, pack_log, pack_reread

PROGRAM = "queue-intake"
USAGE = "usage: queue-intake [--home HOME]"
HELP = f"""{USAGE}
Takes messages by QMTP and QMQP, and puts them into the queue. It is started by queue-start.
"""
DESCRIPTORS = 8192  # What it asks for, within the limit of its process.
EVENTS = 2048  # Descriptors of one poll: those of all clients, so that they can have turns.
TURN = 0.008  # Seconds of a turn for connections; the others have their turn next.
ACCEPTING = 0.005  # Seconds of a turn for new connections: users may open and close them all the time.
PAUSE = 1.0  # Seconds without new connections when no descriptors are left for them.
CHECK = 1.0  # Seconds between looks for silent clients.
CLOSING = 30.0  # Seconds for the last commits and answers. A disk that hangs must not prevent the exit.
KEPT = 256  # Directories of the queue that stay open.
LOG_MAX = 1 << 20  # Bytes of log lines that queue-send has not read; others are dropped.

# The writer imports these for the first message that needs them. Descriptors may be short then, or another version of
# the suite installed.
NEEDED_LATER = (hold_marks, postman, ids)

_IN, _OUT = select.EPOLLIN, select.EPOLLOUT


class LogPipe:
    """The log lines: a pipe to queue-send, which may have gone; or if `plain` to a logger, as they are to be read."""

    def __init__(self, descriptor: int, plain: bool) -> None:
        self._pipe = OutPipe(descriptor)
        self._plain = plain
        self.descriptor = descriptor
        self.lost = False

    def warn(self, text: str) -> None:
        """Have queue-send print a warning."""
        self._say(warning(f"{PROGRAM}: {text}"))

    def alert(self, text: str) -> None:
        """Have queue-send print an alert."""
        self._say(alert(f"{PROGRAM}: {text}"))

    def _say(self, line: bytes) -> None:
        if not self.lost and self._pipe.unwritten < LOG_MAX:
            self._pipe.put(line + b"\n" if self._plain else pack_log(line))

    def answer(self, settings: bytes) -> None:
        """Answer a command of queue-send to reread: it counts the answers, so none is dropped."""
        if not self.lost:
            self._pipe.put(pack_reread(Reread(settings, True)))

    @property
    def unwritten(self) -> bool:
        """Whether lines wait until the pipe takes them."""
        return not self.lost and self._pipe.unwritten > 0

    def flush(self) -> None:
        """Write what the pipe takes."""
        try:
            if not self.lost:
                self._pipe.flush()
        except PeerLost:
            self.lost = True


class Intake:
    """The daemon: a listener, the connections, the messages that wait for a commit, and the threads."""

    def __init__(self, home: Home) -> None:
        owner = become_queue_owner(home)
        if home.name:
            raise Usage("queue-intake serves all queues of a home")
        # With several queues it is a service, which lives on while the queue-send of any of them is stopped.
        self._alone = home.several
        self._mutex = take_intakemutex(home) if self._alone else -1
        self._signals = Signals(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        self._log = LogPipe(1, self._alone)
        self._troubles = LimitedLog(self._log.warn, "more failures")
        descriptors = raise_limit(DESCRIPTORS)
        self._counts = UsageCounts(limits_for(descriptors))
        # A group that held more of them would be synced early, by the loop.
        most = max(1, min(GROUP, descriptors // 8))
        self._pid = os.getpid()
        doors = [Door(one.name, partial(reopen, one, owner, self._log.warn)) for one in home.each()]
        in_memory = False
        if not self._alone:
            layout = open_layout(home.queue)
            writer = QueueWriter(home, layout, os.getuid(), kept_most=min(KEPT, descriptors // 16))
            in_memory = queue_in_memory(layout)
            doors[0].acceptance = Acceptance(home, writer, self._log.warn)
        self._entrance = Entrance(doors, self._log.warn, self._log.alert)
        self._lanes = {door.name: CommitLane(door, most, in_memory, self._alone) for door in doors}
        self._memory = Memory()
        self._connections: dict[int, ClientConnection] = {}
        self._delayed: set[ClientConnection] = set()
        self._ready: Turns[ClientConnection] = Turns()
        self._events: dict[ClientConnection, int] = {}  # Of those that are ready.
        self._accept_at = self._check_at = 0.0
        self._closing_by: float | None = None
        self._epoll = select.epoll()
        threads = [thread.descriptor for lane in self._lanes.values() for thread in (lane.commits, lane.syncs)]
        for descriptor in (*(() if self._alone else (0,)), self._signals.descriptor, *threads):
            self._epoll.register(descriptor, _IN)
        self._log_registered = False
        self._home = home
        self._strangers = LimitedLog(self._log.warn, "more connections were closed at once")
        # What control/databytes and control/intake had when they were read last and could be used. Without the latter,
        # a line of it names a port that is not open.
        self._contents: dict[str, bytes | None] = {}
        self._deaf: set[ListeningPlace] = set()
        self._listeners: dict[int, UnixListener | TcpListener] = {}
        try:
            self._add_listener(UnixListener(home, owner))
        except OSError as error:
            self._log.alert(f"unable to listen in {home.run}/intake: {reason(error)}; no mail is taken there")
        for inherited in take_inherited():
            self._add_listener(TcpListener(inherited, os.getuid()))
        self._reread()
        self._accepting = False

    def _add_listener(self, listener: UnixListener | TcpListener) -> None:
        self._listeners[listener.socket.fileno()] = listener

    def _reread(self) -> bytes:
        """Read the control files; return what is in force, and why they were refused (queue_wire.admin.settings)."""
        try:
            contents = read_contents(self._home, kept_by("queue-intake"))
        except Temporary:
            contents = self._contents  # The readers below say why.
        fault = self._entrance.reread()
        fault = self._read_lines() or fault
        if not fault:
            self._contents = {name: contents[name] for name in contents if name != "intake" or not self._deaf}
        return pack_in_force(in_force(self._contents, fault))

    def _read_lines(self) -> str:
        """Read control/intake and control/me, and give each TCP listener its line.

        If that fails the old ones stay, and it returns why.
        """
        try:
            lines = {line.place: line for line in read_value(self._home, INTAKE)}
            me = read_me(self._home) if lines else b""
        except Temporary as error:
            self._log.alert(f"{error}; what was read before stays in force")
            return str(error)
        for listener in self._listeners.values():
            if isinstance(listener, TcpListener):
                listener.line, listener.me = lines.pop(listener.place, None), me
        for place in lines.keys() - self._deaf:
            self._log.alert(f"nothing listens on {place}: queue-start opens what control/intake names when it starts")
        self._deaf = set(lines)
        return ""

    def turn(self) -> None:
        """Make one turn of the loop: wait, serve connections for a while, begin and end commits."""
        self._register()
        found = self._epoll.poll(self._wait(time.monotonic()), EVENTS)
        now = time.monotonic()
        ready: dict[int, int] = {}
        for descriptor, events in found:
            connection = self._connections.get(descriptor)
            if connection is not None and events & select.EPOLLHUP:
                # Nobody will read an answer, so what was sent and not yet read is not worth the time of others.
                connection.close()
                self._settle(connection)
            elif connection is not None:
                self._plan(connection, events)
            else:
                ready[descriptor] = events
        self._obey(ready)
        for descriptor in self._listeners.keys() & ready.keys():
            self._accept(self._listeners[descriptor], now)
        for lane in self._lanes.values():
            lane.run(ready, now)
            if lane.committing:
                self._commit(lane, now)
        self._resume(now)
        self._serve_ready(now)
        for lane in self._lanes.values():
            lane.begin_sync()
            if not lane.committing and len(lane.turns):
                self._commit(lane, now)
        if now >= self._check_at:
            self._check_at = now + CHECK
            self._end_late(now)
        self._troubles.run()
        self._strangers.run()
        self._log.flush()

    def _wait(self, now: float) -> float:
        """Return the seconds to wait at most."""
        if len(self._ready) or any(lane.has_results or lane.wants_turn for lane in self._lanes.values()):
            return 0.0
        if any(each.yields for each in self._delayed):
            return 0.0
        due = [now + 3600.0, *(each.waits for each in self._delayed if each.waits and not each.blocked)]
        if self._connections:
            due.append(self._check_at)
        due += [log.due for log in (self._troubles, self._strangers) if log.due is not None]
        if self._accept_at > now:
            due.append(self._accept_at)
        if self._closing_by is not None:
            due.append(self._closing_by)
        return max(0.0, min(due) - now)

    def _register(self) -> None:
        """Register what changes: the listener, which pauses, and the log, if it has lines."""
        accepting = time.monotonic() >= self._accept_at
        if accepting != self._accepting:
            for descriptor in self._listeners:
                self._change(descriptor, self._accepting, accepting, _IN)
            self._accepting = accepting
        if self._log.unwritten != self._log_registered:
            self._change(self._log.descriptor, self._log_registered, self._log.unwritten, _OUT)
            self._log_registered = not self._log_registered

    def _change(self, descriptor: int, was: bool, wanted: bool, events: int) -> None:
        if wanted and not was:
            self._epoll.register(descriptor, events)
        elif was and not wanted:
            self._epoll.unregister(descriptor)

    def _obey(self, ready: dict[int, int]) -> None:
        """Carry out signals and commands."""
        numbers = self._signals.take() if self._signals.descriptor in ready else set()
        commands = 0
        ends = bool(numbers & {signal.SIGTERM, signal.SIGINT}) or self._log.lost
        if 0 in ready and not self._alone:
            try:
                commands = (read_available(0) or b"").count(REREAD)
            except PeerLost:
                ends = True
                self._epoll.unregister(0)
        if commands or signal.SIGHUP in numbers:
            settings = self._reread()
            for _ in range(commands):
                self._log.answer(settings)
        if ends and self._closing_by is None:
            self._begin_closing()

    def _accept(self, listener: UnixListener | TcpListener, now: float) -> None:
        until = time.monotonic() + ACCEPTING
        while time.monotonic() < until:
            try:
                found, client, protocol = listener.accept()
            except BlockingIOError:
                return
            except NotAllowed as error:
                self._strangers.add(f"{error}; it was closed")
                continue
            except OSError as error:
                # A client that has gone again, or a lack of descriptors.
                self._accept_at = now + PAUSE
                self._troubles.add(f"unable to accept a connection: {reason(error)}; trying again")
                return
            usage = self._counts.connect(client.name, client.trusted)
            if usage is None and self._make_room(client):
                usage = self._counts.connect(client.name, client.trusted)
            if usage is None:
                found.close()
                continue
            connection = ClientConnection(
                found, client, protocol, usage, self._counts, self._entrance, self._memory, now
            )
            self._connections[connection.descriptor] = connection
            self._settle(connection)

    def _make_room(self, client: IntakeClient) -> bool:
        """Close a connection of the client that has most, so that another one can have it; return whether one was."""
        name = None if client.trusted else self._counts.evicted_for(client.name)
        theirs = [each for each in self._connections.values() if each.client.name == name and not each.busy]
        if not theirs:
            return False
        evicted = min(theirs, key=lambda each: each.eviction_order)
        evicted.close()
        self._settle(evicted)
        return True

    def _plan(self, connection: ClientConnection, events: int = 0) -> None:
        """Serve a connection when it is the turn of its client."""
        if connection in self._events:
            self._events[connection] |= events
        else:
            self._events[connection] = events
            self._ready.add(connection.client.name, connection)

    def _serve_ready(self, now: float) -> None:
        """Serve connections, by turns of their clients, for a while."""
        until = time.monotonic() + TURN
        while len(self._ready) and time.monotonic() < until:
            (connection,) = self._ready.take(1)
            events = self._events.pop(connection)
            if not connection.closed:
                self._serve(connection, events, now)

    def _serve(self, connection: ClientConnection, events: int, now: float) -> None:
        if connection.writes:
            connection.send(now)
        if events & ~_OUT and connection.reads:
            connection.receive(now)
        self._advance(connection, now)

    def _advance(self, connection: ClientConnection, now: float) -> None:
        """Carry out what a connection has read, and send what it has to send."""
        complete = connection.advance(now)
        # First the parts: the last one of a message is synced before the whole.
        for part in connection.take_parts():
            self._lanes[part.acceptance.name].large.add(connection.client.name, part)
        for message in complete:
            lane = self._lanes[message.acceptance.name]
            if is_large(message):
                lane.large.add(message.client, LargeMessage(connection, message))
            else:
                lane.turns.add(message.client, (connection, message))
        connection.check_memory()
        connection.send(now)
        self._settle(connection)

    def _settle(self, connection: ClientConnection) -> None:
        """Wait for what the connection waits for; forget it if it has ended."""
        if connection.over:
            connection.close()
        if connection.closed:
            # Its descriptor left the epoll when it was closed, and a new connection may have it by now.
            if self._connections.get(connection.descriptor) is connection:
                del self._connections[connection.descriptor]
            self._delayed.discard(connection)
            return
        if connection.delayed:
            self._delayed.add(connection)
        else:
            self._delayed.discard(connection)
        wanted = (_IN if connection.reads else 0) | (_OUT if connection.writes else 0)
        if wanted == connection.interest:
            return
        # With no event wanted, epoll would still report the end of the connection in every turn.
        if not wanted:
            self._epoll.unregister(connection.descriptor)
        elif connection.interest:
            self._epoll.modify(connection.descriptor, wanted)
        else:
            self._epoll.register(connection.descriptor, wanted)
        connection.interest = wanted

    def _commit(self, lane: CommitLane, now: float) -> None:
        """Go on with the commit of a queue, or begin one of the messages that wait; answer those of one that ended."""
        ended = lane.go_on(now)
        if ended is None:
            return
        members, group = ended
        acceptance = lane.door.acceptance
        if acceptance is not None and group.trouble:
            self._entrance.fail(acceptance, group.trouble, now)
        elif acceptance is not None:
            self._entrance.succeed(acceptance, lane.begun_at)
        if group.trouble:
            self._troubles.add(f"{group.trouble}; its clients were told to try again later")
        if uncopied := copy_trouble(group.messages):
            self._troubles.add(f"no copy for the postmaster was made: {uncopied}; the message is queued without it")
        touched: dict[ClientConnection, None] = {}
        for connection, message in zip(members, group.messages, strict=True):
            text = b"" if message.refusal is not None else accepted_text(message, self._pid)
            connection.decide(message, text, now)
            touched[connection] = None
        for connection in touched:
            if not connection.closed:
                connection.send(now)
                self._settle(connection)
        self._unblock()

    def _unblock(self) -> None:
        """Let connections go on that were blocked, if they may by now."""
        for connection in self._delayed:
            if connection.blocked:
                self._plan(connection)

    def _resume(self, now: float) -> None:
        """Let connections go on whose time or turn has come."""
        for connection in self._delayed:
            if connection.yields or (not connection.blocked and 0 < connection.waits <= now):
                self._plan(connection)

    def _end_late(self, now: float) -> None:
        for connection in [each for each in self._connections.values() if each.is_late(now)]:
            # What it has sent or read may not have been seen yet, if there is much to do.
            self._serve(connection, _IN, now)
            if not connection.closed and connection.is_late(now):
                connection.close()
                self._settle(connection)
        self._unblock()

    def _begin_closing(self) -> None:
        """Take no more mail."""
        self._closing_by = time.monotonic() + CLOSING
        for listener in self._listeners.values():
            listener.close()
        self._listeners = {}
        for connection in list(self._connections.values()):
            connection.end_input()
            self._settle(connection)

    @property
    def over(self) -> bool:
        """Whether it is to exit, and everything was answered, or takes too long."""
        if self._closing_by is None:
            return False
        waiting = self._connections or any(lane.busy for lane in self._lanes.values())
        return not waiting or time.monotonic() >= self._closing_by


def reopen(home: Home, owner: Owner, warn: Callable[[str], None], former: Acceptance | None) -> Acceptance | str:
    """Return the acceptance of one of several queues, `former` if its queue is as before; or why there is none."""
    try:
        if queue_owner(home).uid != owner.uid:
            return f"{home.queue} belongs to another account than {home.run}"
        layout = open_layout(home.queue)
    except Failure as failure:
        return str(failure)
    if former is not None and former.writer.has_layout(layout):
        return former
    return Acceptance(home, QueueWriter(home, layout, os.getuid()), warn)


def raise_limit(wanted: int) -> int:
    """Ask for so many descriptors; return how many there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return most
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):
        return soft
    return most


def main(argv: list[str]) -> int:
    """Return 0, 100 or 111."""
    os.umask(0o027)
    ignore(signal.SIGPIPE)
    try:
        home = take_daemon_home(argv, USAGE, HELP)
        if home is None:
            return 0
        try:
            intake = Intake(home)
        except OSError as error:
            raise Temporary(f"unable to start: {error}") from error
        while not intake.over:
            intake.turn()
    except Failure as failure:
        complain(PROGRAM, f"fatal: {failure}")
        return failure.exit_code
    return 0
