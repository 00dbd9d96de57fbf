"""The clients of queue-send and queue-ondemand, which take orders and answer queries from queuectl on sockets.

A client sends one request at a time and returns its answer: `AdminClient` those of lock/control, queue-send's socket,
`OnDemandClient` those of intake/ondemand. `SchedulerQueries` asks only for what queue-send has in memory: it changes
nothing, needs no lock, and waits at most QUERY_WAIT seconds. `connect_or_lock` is for orders: if queue-send does not
run, it takes the queue's lock and returns an OfflineQueue, which carries them out on disk.

queue-smtpd has a client of queue-ondemand of its own (queue_smtpd.mail_request): it serves others while it waits.
"""

import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from queue_admin.messages.detail import CHANNELS, Detail
from queue_admin.messages.offline import OfflineQueue
from queue_admin.printable import visible
from queue_base.accounts import become, queue_owner
from queue_base.daemon.lock import take_sendmutex
from queue_base.daemon.unix_sockets import connect_to
from queue_base.errors import Failure, Permanent, Temporary, reason
from queue_base.home import Home
from queue_base.queue.layout import Layout
from queue_base.safe_open import open_below
from queue_wire.address import domain_of
from queue_wire.admin.cause import Cause, unpack_cause
from queue_wire.admin.facts import RELAY, ChannelFact, DestinationFact, unpack_channel, unpack_destination
from queue_wire.admin.figure import Figure, unpack_figure
from queue_wire.admin.ondemand_socket import REQUEST_MAX as RUN_ANSWER_MAX
from queue_wire.admin.ondemand_socket import SOCKET, RunAnswer, RunRequest, pack_run_request, unpack_run_answer
from queue_wire.admin.socket import (
    DESTINATIONS,
    FIGURES,
    IDS_MAX,
    NEWS,
    REMOVALS,
    REQUEST_MAX,
    RESPONSE_MAX,
    TOTALS,
    WHY,
    Request,
    Response,
    pack_request,
    unpack_response,
)
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader

Fact = TypeVar("Fact")

START_WAIT = 10.0  # Seconds to wait for a queue-send that is starting or ending.
ORDER_WAIT = 120.0  # Seconds to wait for the response to an order: a disk may be slow.
RUN_WAIT = 30.0  # Seconds to wait for an answer of queue-ondemand.
QUERY_WAIT = 3.0  # Seconds to wait for the response to a query, which is answered from memory.


class NoAnswer(Exception):
    """A query has no answer; the text gives the reason."""


def _exchange(connection: socket.socket, reader: NetstringReader, request: bytes) -> bytes:
    """Send a request; return the payload of the answer. Raises OSError, EOFError if there is none, FormatError."""
    connection.sendall(request)
    while (payload := reader.next()) is None:
        data = connection.recv(65536)
        if not data:
            raise EOFError
        reader.feed(data)
    return payload


class AdminClient:
    """A connection to queue-send."""

    def __init__(self, connection: socket.socket, wait: float) -> None:
        self._connection = connection
        self._wait = wait
        self._reader = NetstringReader(RESPONSE_MAX)

    def ask(self, request: Request) -> Response:
        """Send a request and return the response. Raises Temporary if queue-send refuses or fails, Permanent."""
        try:
            response = unpack_response(_exchange(self._connection, self._reader, pack_request(request)))
        except EOFError as error:
            raise Temporary("unable to reach queue-send: it closed the connection; try again") from error
        except TimeoutError as error:
            pid = self.peer_pid()
            raise Temporary(
                f"unable to reach queue-send{f', pid {pid}' if pid else ''}: no answer in {self._wait:.0f} s;"
                " it is stopped, or waits for a disk"
            ) from error
        except OSError as error:
            raise Temporary(f"unable to reach queue-send: {reason(error)}; try again") from error
        except FormatError as error:
            raise Permanent(f"unable to understand queue-send: {error}; is it of another version?") from error
        if response.error:
            raise Temporary(f"queue-send refuses: {visible(response.error)}")
        return response

    def peer_pid(self) -> int:
        """Return the pid of queue-send; 0 if it is not visible from here (another pid namespace)."""
        size = struct.calcsize("3i")
        pid, _, _ = struct.unpack("3i", self._connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        return int(pid)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def connect(home: Home, wait: float | None = None, only_counts: bool = False) -> AdminClient | None:
    """Return a client that waits so many seconds for each response, or None if nobody listens. Raises Temporary.

    By default it waits ORDER_WAIT seconds. With `only_counts` it can ask for the figures that name no destination.
    """
    wait = ORDER_WAIT if wait is None else wait
    path = home.counts if only_counts else f"{home.queue}/lock/control"
    above, name = os.path.split(path)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(wait)
    try:
        # The path of a socket has at most 107 bytes; that of a descriptor is always short enough.
        directory = open_below(*os.path.split(above), os.O_PATH | os.O_DIRECTORY)
        try:
            connection.connect(f"/proc/self/fd/{directory}/{name}")
        finally:
            os.close(directory)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError as error:
        connection.close()
        raise Temporary(f"unable to use {path}: {reason(error)}") from error
    return AdminClient(connection, wait)


class OnDemandClient:
    """A connection to the queue-ondemand of a queue. Use it as a context manager. Methods raise Temporary."""

    def __init__(self, home: Home, wait: float = RUN_WAIT) -> None:
        """Connect. An answer is waited for as long as `wait`."""
        self._wait = wait
        self._path = f"{home.queue}/{SOCKET}"
        self._reader = NetstringReader(RUN_ANSWER_MAX)
        try:
            self._connection = connect_to(self._path)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            why = "it does not run; start the suite"
            raise Temporary(f"unable to ask queue-ondemand at {self._path}: {why}") from error
        except OSError as error:
            raise Temporary(f"unable to ask queue-ondemand at {self._path}: {reason(error)}; try again") from error
        self._connection.settimeout(wait)

    def ask(self, request: RunRequest) -> RunAnswer:
        """Send a request and return the answer."""
        try:
            return unpack_run_answer(_exchange(self._connection, self._reader, pack_run_request(request)))
        except TimeoutError as error:
            why = f"no answer in {self._wait:.0f} s; it is stopped, or waits for a disk"
            raise Temporary(f"unable to ask queue-ondemand at {self._path}: {why}") from error
        except EOFError as error:
            why = "it closed the connection; ask as root or the owner of the queue"
            raise Temporary(f"unable to ask queue-ondemand at {self._path}: {why}") from error
        except OSError as error:
            raise Temporary(f"unable to ask queue-ondemand at {self._path}: {reason(error)}; try again") from error
        except FormatError as error:
            raise Temporary(f"unable to understand queue-ondemand: {error}; is it of another version?") from error

    def __enter__(self) -> "OnDemandClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def ask_for_runs(home: Home, requests: Sequence[RunRequest], wait: float = RUN_WAIT) -> list[RunAnswer]:
    """Return the answers of queue-ondemand, each waited for as long as `wait`. Raises Temporary."""
    if not requests:
        return []
    with OnDemandClient(home, wait) as client:
        return [client.ask(request) for request in requests]


def runs(home: Home) -> bool:
    """Return whether a queue-send takes orders now. Raises Temporary."""
    client = connect(home)
    if client is not None:
        client.close()
    return client is not None


def connect_or_lock(home: Home, layout: Layout) -> AdminClient | OfflineQueue:
    """Return a client of queue-send, or the locked queue if queue-send does not run.

    With the lock, root becomes the owner of the queue for the rest of the process, because the files that it makes must
    belong to the owner. Raises Temporary if neither is possible within START_WAIT seconds.
    """
    end = time.monotonic() + START_WAIT
    while True:
        client = connect(home)
        if client is not None:
            return client
        try:
            lock = take_sendmutex(home)
        except Temporary as error:
            if time.monotonic() > end:
                raise Temporary(f"{error}, and does not listen on lock/control; try again, or stop it first") from error
        else:
            owner = queue_owner(home)
            if os.geteuid() == 0 and owner.uid != 0:
                become(owner)
            os.umask(0o027)
            return OfflineQueue(layout, lock)
        time.sleep(0.1)


def may_ask_counts_alone(home: Home) -> bool:
    """Return whether this process may not ask queue-send for more than the counts. Raises Temporary if not for these.
    """
    above = os.path.dirname(home.counts)
    if os.access(f"{home.queue}/lock", os.X_OK) or not os.path.isdir(home.queue):
        return False
    if not os.access(above, os.X_OK):
        raise Temporary(
            f"unable to use {home.queue}: permission denied; run as root or its owner, or see {above}: who may search"
            " that directory may read counts"
        )
    return True


class SchedulerQueries:
    """Queries to a running queue-send. Use it as a context manager. Every method raises NoAnswer."""

    def __init__(self, home: Home, only_counts: bool = False) -> None:
        """Connect; with `only_counts`, for `figures` without the names of destinations."""
        try:
            client = connect(home, QUERY_WAIT, only_counts)
        except Failure as error:
            raise NoAnswer(f"not known: {error}") from error
        if client is None:
            if _is_locked(home):
                raise NoAnswer("not known: queue-send does not listen: it starts or ends, or its log says why")
            raise NoAnswer("queue-send does not run; nothing is tried")
        self._client = client

    @property
    def pid(self) -> int:
        """The pid of queue-send; 0 if it is not visible from here."""
        return self._client.peer_pid()

    def __enter__(self) -> "SchedulerQueries":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def why(self, name: str, detail: Detail) -> list[Cause]:
        """Return why the message with this long id waits, or what is being done with it; empty if it is gone."""
        names = [name.encode("ascii"), *recipient_places(detail)]
        return self._facts(Request(WHY, b"", names), unpack_cause)[0]

    def totals(self) -> tuple[list[ChannelFact], bool]:
        """Return the totals of each channel, and whether the backlog has been read."""
        found, count = self._facts(Request(TOTALS, b"", []), unpack_channel)
        return found, bool(count)

    def removals(self) -> tuple[int, int]:
        """Return how many finished messages wait for queue-clean, and for how many seconds the oldest has waited."""
        seconds, count = self._facts(Request(REMOVALS, b"", []), int)
        return count, sum(seconds)

    def figures(self) -> list[Figure]:
        """Return what queue-send has counted since its start, and what it has in memory."""
        return self._facts(Request(FIGURES, b"", []), unpack_figure)[0]

    def destinations(self, channel: str, names: Iterable[str]) -> list[DestinationFact]:
        """Return the named destinations and relays of a channel, or all if no names are given; each once."""
        nexthops = [os.fsencode(name) for name in names]
        found: dict[tuple[bytes, bool], DestinationFact] = {}
        batches = [nexthops[at : at + IDS_MAX // 2] for at in range(0, len(nexthops), IDS_MAX // 2)] or [[]]
        for batch in batches:
            place = b""
            while True:
                fields = [channel.encode("ascii"), place, *batch]
                page, further = self._facts(Request(DESTINATIONS, b"", fields), unpack_destination)
                found.update(((each.nexthop, each.state == RELAY), each) for each in page)
                if not further:
                    break
                place = b"%d" % further
        return list(found.values())

    def _facts(self, request: Request, unpack: Callable[[bytes], Fact]) -> tuple[list[Fact], int]:
        try:
            response = self._client.ask(request)
            return [unpack(note.text) for note in response.notes if note.letter == NEWS], response.touched
        except Failure as error:
            raise NoAnswer(f"not known: {error}") from error
        except (FormatError, ValueError) as error:
            raise NoAnswer(f"not known: unable to understand queue-send: {error}; is it of another version?") from error


def recipient_places(detail: Detail) -> list[bytes]:
    """Return the destinations of the pending recipients, as `why` takes them; as many as fit in a request."""
    found: dict[bytes, None] = {}
    room = REQUEST_MAX // 2
    for place in _places(detail):
        if place not in found:
            room -= len(place) + 1
            if room < 0 or len(found) == IDS_MAX - 1:
                break
            found[place] = None
    return list(found)


def _places(detail: Detail) -> Iterator[bytes]:
    for name in CHANNELS:
        channel = detail.channels.get(name)
        for done, address in channel.recipients if channel else []:
            if not done:
                yield b"L" + address if name == "local" else b"R" + domain_of(address)


def _is_locked(home: Home) -> bool:
    """Return whether a process holds lock/sendmutex.

    The kernel's list of locks is read instead of trying to take the lock, which could keep a queue-send from starting.
    """
    try:
        inode = str(os.stat(f"{home.queue}/lock/sendmutex").st_ino)
        with open("/proc/locks", encoding="ascii") as locks:
            # proc_locks(5): 1: FLOCK ADVISORY WRITE pid major:minor:inode 0 EOF
            return any(" FLOCK " in line and line.split()[-3].rpartition(":")[2] == inode for line in locks)
    except (OSError, IndexError):
        return False
