"""Asks the processes of queue-smtpd what they are doing, and has them reread (queue_wire.admin.smtpd_status).

Their sockets are found by their names. Anybody may make one with such a name: what is not root's, the queue owner's or
account queued's is passed by.
"""

import os
import socket
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from queue_base.accounts import queue_owner, trusted_users
from queue_base.daemon.unix_sockets import find_abstract, peer_of, status_prefix
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_wire.admin.settings import InForce, unpack_in_force
from queue_wire.admin.smtpd_status import (
    COUNTERS,
    LINE_MAX,
    REREAD,
    SESSIONS,
    SETTINGS,
    ProcessStatus,
    SessionStatus,
    unpack_process,
    unpack_session,
)
from queue_wire.format_error import FormatError

# Seconds for the answer of a process, and for those of all.
ANSWER_WAIT = 3.0
ALL_WAIT = 15.0

Answer = TypeVar("Answer")


class SmtpdReading(NamedTuple):
    """What the processes have said, in the order of their places; troubles: of those that said nothing."""

    processes: list[ProcessStatus]
    sessions: list[tuple[int, SessionStatus]]
    troubles: list[str]


def ask_processes(home: Home, with_sessions: bool, wait: float = ALL_WAIT) -> SmtpdReading:
    """Ask all processes, within `wait` seconds. The sessions are named by the pid of their process. Raises Temporary.
    """

    def status(connection: socket.socket, until: float) -> tuple[ProcessStatus, list[SessionStatus]]:
        connection.sendall(SESSIONS if with_sessions else COUNTERS)
        lines = _Lines(connection, until)
        process = unpack_process(lines.next())
        return process, [unpack_session(lines.next()) for _ in range(process.sessions if with_sessions else 0)]

    found, troubles = _ask_all(home, status, time.monotonic() + wait, ANSWER_WAIT)
    found.sort(key=lambda one: (one[0].place, one[0].pid))
    sessions = [(process.pid, each) for process, own in found for each in sorted(own)]
    return SmtpdReading([process for process, _ in found], sessions, troubles)


def ask_settings(home: Home, anew: bool) -> tuple[list[InForce], list[str]]:
    """Return what each process has in force of its control files, and troubles; `anew` has it reread them first.

    Raises Temporary.
    """

    def settings(connection: socket.socket, until: float) -> InForce:
        connection.sendall(REREAD if anew else SETTINGS)
        lines = _Lines(connection, until)
        return unpack_in_force(b"\n".join(iter(lines.next, b"")))

    # Certificates may be on a slow disk.
    return _ask_all(home, settings, time.monotonic() + ALL_WAIT, ALL_WAIT if anew else ANSWER_WAIT)


def _ask_all(
    home: Home, ask: Callable[[socket.socket, float], Answer], end: float, wait: float
) -> tuple[list[Answer], list[str]]:
    """Return the answers of all processes, each in `wait` seconds and until `end`, and who has not answered.

    Raises Temporary.
    """
    try:
        names = find_abstract(status_prefix(home.run))
    except FileNotFoundError:
        return [], []
    except OSError as error:
        raise Temporary(f"unable to find queue-smtpd: {reason(error)}") from error
    found: list[Answer] = []
    troubles: list[str] = []
    trusted = trusted_users(queue_owner(home)) if names else frozenset()
    for name in names:
        until = min(end, time.monotonic() + wait)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(max(0.001, until - time.monotonic()))
                connection.connect(b"\0" + name.encode())
                if peer_of(connection)[1] in trusted:
                    found.append(ask(connection, until))
        except (ConnectionRefusedError, FileNotFoundError):
            continue  # It has ended meanwhile.
        except (OSError, FormatError) as error:
            pid = _pid_of(name)
            if not _is_trusted(pid, trusted):
                continue
            why = reason(error) if isinstance(error, OSError) else str(error)
            troubles.append(f"process {pid} of queue-smtpd does not answer: {why}")
    return found, troubles


def listening_pids(home: Home) -> list[int]:
    """Return the pids of the processes. Raises Temporary."""
    trusted = trusted_users(queue_owner(home))
    try:
        pids = [_pid_of(name) for name in find_abstract(status_prefix(home.run))]
    except OSError as error:
        raise Temporary(f"unable to find queue-smtpd: {reason(error)}") from error
    return [int(pid) for pid in pids if _is_trusted(pid, trusted)]


def _pid_of(name: str) -> str:
    """Return what stands in the name of a socket as the pid of its process."""
    return name.rpartition("/")[2].partition(".")[0]


def _is_trusted(pid: str, trusted: frozenset[int]) -> bool:
    """Return whether a process is one of a trusted user; who has given a socket its name may have any pid in it."""
    try:
        return pid.isdecimal() and os.stat(f"/proc/{pid}").st_uid in trusted
    except OSError:
        return False


class _Lines:
    """Lines of a connection. Raises OSError, also TimeoutError, and FormatError at its end."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection = connection
        self._until = until
        self._rest = b""
        self._lines: list[bytes] = []

    def next(self) -> bytes:
        while not self._lines:
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError("it is stopped, or very busy")
            self._connection.settimeout(left)
            data = self._connection.recv(65536)
            if not data:
                raise FormatError("it has closed the connection")
            *whole, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > LINE_MAX:
                raise FormatError("a line without an end")
            self._lines = whole[::-1]
        return self._lines.pop()
