"""queue-start: makes the pipes, starts the daemons, and becomes queue-send.

`queue-start [--home HOME]` is run by daemontools' supervise or runit's runsv. Since it execs queue-send last, the
supervised pid is the scheduler and its stdout is the log. The owner of queue/ decides which accounts the daemons run as
(queue_admin.home.daemon_accounts). Everything is checked before the first daemon is started; if a check fails, the exit
code is 100 or 111 and one line on stderr says why, which systemd is also told.

A home with several queues has a set of daemons for each, which `--queue` names, and one queue-intake, which lives on
while a set is stopped: `queue-start --intake` opens its sockets, and becomes it.
"""

import errno
import fcntl
import os
import signal
import socket
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from queue_admin.checks.file_system import check_file_system
from queue_admin.checks.queue_stamp import check_stamp
from queue_admin.home.daemon_accounts import DaemonAccounts, check_code, choose_accounts
from queue_admin.home.modes import ONDEMAND
from queue_admin.restarts import keep_running
from queue_base.accounts import Owner, become, queue_owner
from queue_base.control import check_modes, read_control, read_me, read_value
from queue_base.daemon import inherited_sockets, processes
from queue_base.daemon.init_process import leave_process_one
from queue_base.daemon.lock import take_sendmutex
from queue_base.daemon.processes import command
from queue_base.daemon.signals import reset_signals
from queue_base.daemon.supervisor import DESCRIPTOR, Supervisor, take_variables
from queue_base.errors import Failure, Permanent, Temporary, Usage, complain, reason
from queue_base.home import Home, take_help, take_home, take_queue
from queue_base.queue.layout import open_layout
from queue_wire.control.control_file import ControlFile
from queue_wire.control.registry import INTAKE, PROCESSESREMOTE

USAGE = "usage: queue-start [--home HOME] [--queue NAME] [--intake]"
HELP = f"""{USAGE}
Starts the whole suite and becomes queue-send; run it under supervise or runsv.
Where control/queues names several queues, --queue starts the daemons of one, and --intake the queue-intake of all.
"""
NOTHING: Mapping[int, int] = {}
# Our pipe ends are kept above this number, so that they do not collide with the numbers that the daemons expect.
HIGH = 64
# Above that number: pipes, sockets, and what is open for a moment.
FILES_MIN = 2 * HIGH


class DaemonSpec(NamedTuple):
    """A daemon: its program and account, queue-send's ends of its two pipes, and whether it inherits sendmutex.

    sockets: descriptors of listening sockets that it inherits. takes_connections: its input is a Unix socket, so that
    connections can be passed to it.
    """

    program: str
    owner: Owner | None
    to_it: int
    from_it: int
    holds_lock: bool
    sockets: tuple[int, ...] = ()
    takes_connections: bool = False


def daemons(accounts: DaemonAccounts, remotes: int, sockets: tuple[int, ...] | None) -> list[DaemonSpec]:
    """Return the daemons in the order in which they start. `sockets` are those of control/intake.

    They are None where queue-intake is a service of its own, because there are several queues.
    """
    intake = DaemonSpec(
        "queue-intake", accounts.queue, processes.INTAKE_COMMANDS, processes.INTAKE_NOTICES, False, sockets or ()
    )
    return [
        DaemonSpec("queue-local", None, processes.LOCAL_JOBS, processes.LOCAL_REPORTS, False),
        *(
            DaemonSpec("queue-remote", accounts.remote, jobs, reports, False)
            for jobs, reports in processes.remote_pipes(remotes)
        ),
        DaemonSpec("queue-clean", accounts.queue, processes.CLEAN_IDS, processes.CLEAN_ANSWERS, True),
        DaemonSpec("queue-todo", accounts.queue, processes.TODO_COMMANDS, processes.TODO_NOTICES, True),
        DaemonSpec("queue-pickup", accounts.queue, processes.PICKUP_LIFE, processes.PICKUP_NOTICES, False),
        *([intake] if sockets is not None else []),
    ]


def on_demand_daemons(home: Home, accounts: DaemonAccounts) -> list[DaemonSpec]:
    """Return queue-ondemand and its own queue-remote, if a domain is on demand, or mail is stored; else nothing.

    The pipes of that queue-remote are queue-ondemand's.
    """
    try:
        if read_control(home, "ondemand") is None and not os.listdir(f"{home.queue}/{ONDEMAND}"):
            return []
    except FileNotFoundError:
        return []
    except (OSError, Temporary):
        pass  # queue-ondemand says what is wrong.
    return [
        DaemonSpec("queue-remote", accounts.remote, processes.KEEPER_JOBS, processes.KEEPER_REPORTS, False, (), True),
        DaemonSpec("queue-ondemand", accounts.queue, processes.ONDEMAND_JOBS, processes.ONDEMAND_REPORTS, True),
    ]


def start(
    words: list[str], daemon: DaemonSpec, lock: int, given: Mapping[int, int] = NOTHING
) -> tuple[int, dict[int, int]]:
    """Fork and exec one daemon; return its pid, and queue-send's ends of its pipes as {final number: present
    descriptor}.

    `given` are more descriptors of the daemon, in the same form.
    """
    its_input, to_it = _socket_pair() if daemon.takes_connections else _pipe()
    from_it, its_output = _pipe()
    pid = os.fork()
    if pid == 0:
        _child(words, daemon, its_input, its_output, lock, given)
    os.close(its_input)
    os.close(its_output)
    return pid, {daemon.to_it: to_it, daemon.from_it: from_it}


def start_on_demand(words: Mapping[str, list[str]], specs: Sequence[DaemonSpec], lock: int) -> tuple[int, list[int]]:
    """Start queue-ondemand and its queue-remote; return its pid, and queue-send's ends of its pipes: jobs, reports."""
    pid, given = 0, dict(NOTHING)
    for daemon in specs:
        between = given
        pid, given = start(words[daemon.program], daemon, lock, between)
        for end in between.values():
            os.close(end)
    return pid, [given[processes.ONDEMAND_JOBS], given[processes.ONDEMAND_REPORTS]]


def guard_on_demand(words: Mapping[str, list[str]], specs: Sequence[DaemonSpec], lock: int) -> dict[int, int]:
    """Fork a process that starts queue-ondemand, and starts it again when it ends; return queue-send's descriptors, as
    `start` does. That process keeps our account, because those of the daemons differ. Raises OSError.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        if os.fork() == 0:
            kept = lock, theirs.fileno()

            def start_both() -> tuple[int, list[int]]:
                try:
                    return start_on_demand(words, specs, lock)
                except OSError:
                    close_inherited(kept)  # The pipes of what was started: it ends.
                    raise

            try:
                close_inherited(kept)
                nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                for number in (0, 1):
                    os.dup2(nothing, number)
                keep_running(start_both, theirs)
            except OSError as error:
                complain("queue-start", f"alert: unable to run queue-ondemand: {reason(error)}; its mail waits")
            finally:
                os._exit(0)
        theirs.close()
        _, ends, _, _ = socket.recv_fds(ours, 1, 2)
        if len(ends) != 2:
            raise OSError(errno.ECHILD, os.strerror(errno.ECHILD), "queue-ondemand")
        numbers = (processes.ONDEMAND_JOBS, processes.ONDEMAND_REPORTS, processes.ONDEMAND_AGAIN)
        moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, HIGH) for end in (*ends, ours.fileno())]
        for end in ends:
            os.close(end)
        return dict(zip(numbers, moved, strict=True))


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, HIGH) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


def _socket_pair() -> tuple[int, int]:
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    moved = _move(ends[0]), _move(ends[1])
    for end in ends:
        end.close()
    return moved


def _child(
    words: list[str], daemon: DaemonSpec, its_input: int, its_output: int, lock: int, given: Mapping[int, int]
) -> None:
    """Become the daemon; never returns."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, processes.KEPT_SIGNALS)
        os.dup2(its_input, 0)
        os.dup2(its_output, 1)
        os.closerange(3, HIGH)
        for number, end in given.items():
            os.dup2(end, number)
        if daemon.holds_lock:
            os.dup2(lock, processes.SENDMUTEX)
        hand_on(daemon.sockets)
        if daemon.owner is not None:
            become(daemon.owner)
        os.execv(words[0], words)
    except (OSError, Failure) as error:
        complain("queue-start", f"alert: unable to run {daemon.program}: {error}")
    finally:
        os._exit(111)


def hand_on(sockets: tuple[int, ...]) -> None:
    """Give sockets the numbers at which the program that is executed next looks for them."""
    if sockets:
        for place, number in enumerate(sockets, inherited_sockets.FIRST):
            os.dup2(number, place)
        os.environ.update(inherited_sockets.pass_on(len(sockets)))


def guard_descriptors() -> None:
    """Open 0 and 2 if they are closed, so that no file of the queue gets their numbers. Raises Permanent for 1."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError as error:
            if number == 1:
                raise Permanent("descriptor 1, which takes the log, is not open") from error
            # open returns the lowest free number, which is this one.
            os.open("/dev/null", os.O_RDWR)
            os.set_inheritable(number, True)


def count_processes(home: Home, file: ControlFile[int]) -> int:
    """Return how many processes a control file wants: 1 if it is wrong, which queue-send logs."""
    try:
        return read_value(home, file)
    except Temporary:
        return 1


def open_sockets(home: Home) -> tuple[int, ...]:
    """Return the descriptors of sockets that listen where control/intake says; complain of what is not possible.

    The suite starts all the same: mail that is in the queue does not wait for a port.
    """
    found: list[int] = []
    try:
        for line in read_value(home, INTAKE):
            try:
                with inherited_sockets.listen(line.place) as listener:
                    found.append(_move(listener))
            except OSError as error:
                why = f"unable to listen on {line.place}: {reason(error)}; no mail is taken there"
                complain("queue-start", f"alert: {why}")
    except Temporary as error:
        complain("queue-start", f"alert: {error}; no mail is taken from the network")
    return tuple(found)


def _move(end: socket.socket) -> int:
    return fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, HIGH)


def keep_notification(variables: dict[str, str]) -> dict[int, int]:
    """Return the descriptor of s6's notification-fd as {final number: present descriptor}, empty if there is none.

    `variables` then has the final number.
    """
    number = variables.pop(DESCRIPTOR, "")
    if not number.isdigit():
        return {}
    try:
        kept = fcntl.fcntl(int(number), fcntl.F_DUPFD_CLOEXEC, HIGH)
    except (OSError, OverflowError):
        return {}
    variables[DESCRIPTOR] = str(processes.NOTIFICATION)
    return {processes.NOTIFICATION: kept}


def close_inherited(kept: Collection[int]) -> None:
    """Close what the caller left open except 0, 1, 2 and `kept`; else the daemons would keep it open."""
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number > 2 and number not in kept:
            with suppress(OSError):  # The list itself was one of them.
                os.close(number)


def run(home: Home, notification: dict[str, str]) -> None:
    """Check everything, start the daemons, and become queue-send. Does not return. Raises Failure.

    notification: the variables that name the supervisor to queue-send.
    """
    guard_descriptors()
    processes.require_files(FILES_MIN)
    accounts = choose_accounts(home)
    check_same_owner(home)
    read_me(home)
    check_modes(home)
    layout = open_layout(home.queue)
    check_file_system(home)
    check_code(accounts)
    kept = keep_notification(notification)
    forget_inherited(kept.values())
    lock = fcntl.fcntl(take_sendmutex(home), fcntl.F_DUPFD_CLOEXEC, HIGH)
    check_stamp(home, layout)
    os.environ["QUEUE_HOME"] = home.path
    # Before chdir, because the programs are found from our own name, which may be a relative path.
    remotes = count_processes(home, PROCESSESREMOTE)
    specs = daemons(accounts, remotes, None if home.several else open_sockets(home))
    on_demand = on_demand_daemons(home, accounts)
    words = {spec.program: command(spec.program, home) for spec in [*specs, *on_demand]}
    options = ["--remotes", str(remotes)] if remotes > 1 else []
    send = command("queue-send", home, *options, *(["--ondemand"] if on_demand else []))
    try:
        os.chdir(home.queue)
        ends: dict[int, int] = {}
        for daemon in specs:
            ends.update(start(words[daemon.program], daemon, lock)[1])
        if on_demand:
            ends.update(guard_on_demand(words, on_demand, lock))
        ends[processes.SENDMUTEX] = lock
        ends.update(kept)
        os.closerange(3, HIGH)
        for number, end in ends.items():
            os.dup2(end, number)
        if accounts.queue is not None:
            become(accounts.queue)
        os.environ.update(notification)
        os.execv(send[0], send)
    except OSError as error:
        raise Temporary(f"unable to start {error.filename or 'the daemons'}: {reason(error)}") from error


def check_same_owner(home: Home) -> None:
    """Raise Permanent if run/, which all queues share, has another owner than the queue. Raises Temporary."""
    if home.several and queue_owner(home).uid != queue_owner(Home(home.path)).uid:
        raise Permanent(f"unable to use {home.queue}: its owner is not that of {home.run}; queuectl check says more")


def forget_inherited(kept: Collection[int]) -> None:
    """Close what the caller left open, except `kept`, and forget its sockets."""
    close_inherited(kept)
    for name in (inherited_sockets.COUNT, inherited_sockets.PID):
        os.environ.pop(name, None)


def run_intake(home: Home) -> None:
    """Check everything, and become the queue-intake of a home with several queues. Raises Failure."""
    guard_descriptors()
    if not home.several:
        raise Usage(f"{home.path} has one queue, whose queue-start starts queue-intake too; {USAGE}")
    processes.require_files(FILES_MIN)
    accounts = choose_accounts(home)
    read_me(home)
    check_modes(home)
    check_code(accounts)
    forget_inherited(())
    os.environ["QUEUE_HOME"] = home.path
    sockets = open_sockets(home)
    words = command("queue-intake", home)
    try:
        os.chdir(home.run)
        os.closerange(3, HIGH)
        hand_on(sockets)
        if accounts.queue is not None:
            become(accounts.queue)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, processes.KEPT_SIGNALS)
        os.execv(words[0], words)
    except OSError as error:
        raise Temporary(f"unable to start {error.filename or 'queue-intake'}: {reason(error)}") from error


def main(argv: list[str]) -> int:
    """Become queue-send, or return an exit code."""
    leave_process_one()
    # The daemons must not inherit ignored or blocked signals: they wait for children and react to signals.
    reset_signals(processes.KEPT_SIGNALS)
    try:
        return prepare(argv)
    finally:
        # Reached only if queue-send was not started.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, processes.KEPT_SIGNALS)


def prepare(argv: list[str]) -> int:
    """Read the command line and run; return an exit code if queue-send was not started."""
    notification = take_variables()
    try:
        home, rest = take_home(argv[1:])
        if take_help(rest, HELP):
            return 0
        if rest == ["--intake"]:
            run_intake(home)
        home, rest = take_queue(home, rest)
        if rest:
            raise Usage(f"{rest[-1]} is not an option, or not with the others; {USAGE}")
        run(home, dict(notification))
    except Failure as error:
        complain("queue-start", f"alert: cannot start: {error}")
        Supervisor(notification).status(f"cannot start: {error}")
        return error.exit_code
    return 0
