"""lock/control: the Unix socket for the orders and queries of queuectl (queue_wire.admin.socket).

Only root and the owner of the queue can connect (mode 0600, in a directory of mode 0700). Requests are processed one
after the other; meanwhile nothing is read. A connection that sends something else gets an error and is closed, as is
one that sends and reads nothing for IDLE seconds.

The home's monitor/ has another one, if somebody has made that directory: whoever may search it can ask for the counts,
which have no address and no name of a host, and for nothing else.
"""

import os
import select
import socket
import time

from queue_base.daemon.pipes import OutPipe, PeerLost, read_available
from queue_base.errors import reason
from queue_base.home import Home
from queue_send.admin.orders import Orders
from queue_send.admin.queries import Queries
from queue_send.admin.rereads import Rereads
from queue_send.log import Log
from queue_send.loop import Shutdown
from queue_wire.admin.socket import (
    FIGURES,
    QUERIES,
    REQUEST_MAX,
    REREAD,
    SETTINGS,
    Response,
    pack_response,
    unpack_request,
)
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader

CLIENTS_MAX = 8  # At once; more wait until one has gone.
IDLE = 30.0
_COUNTS = b"here are counts alone; root and the owner of the queue may ask for all"
_LEAVING = b"queue-send is about to end; try again"


class _AdminConnection:
    """A connection. working: a request of it is processed. closing: it is closed when the reply is written.

    unread: the bytes that it sent may hold another request.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.reader = NetstringReader(REQUEST_MAX)
        self.out = OutPipe(connection.fileno())
        self.working = False
        self.unread = False
        self.closing = False
        self.gone = False
        self.since = time.monotonic()

    def answer(self, reply: Response) -> None:
        """Send the reply to the request that is processed."""
        self.working = False
        self.since = time.monotonic()
        if not self.gone:
            self.out.put(pack_response(reply))

    def refuse(self, text: bytes) -> None:
        """Send an error and close the connection."""
        self.answer(Response(0, [], text))
        self.closing = True

    @property
    def listens(self) -> bool:
        """Whether another request may be taken: the client has read the last reply."""
        return not (self.working or self.closing or self.out.unwritten)

    @property
    def deadline(self) -> float:
        """When it is closed for being idle."""
        return float("inf") if self.working or self.unread else self.since + IDLE


class AdminSocket:
    """A part of the loop that listens from the start on. If it cannot, it logs an alert, and mail goes on.

    only_counts: it is the socket in monitor/.
    """

    def __init__(
        self,
        home: Home,
        orders: Orders,
        queries: Queries,
        rereads: Rereads,
        log: Log,
        shutdown: Shutdown,
        only_counts: bool = False,
    ) -> None:
        self._orders = orders
        self._queries = queries
        self._rereads = rereads
        self._shutdown = shutdown
        self._clients: list[_AdminConnection] = []
        self._listener: socket.socket | None = None
        self._only_counts = only_counts
        self._path = home.counts if only_counts else home.queue + "/lock/control"
        who = "no other account can ask for counts" if only_counts else "queuectl cannot reach this queue-send"
        try:
            if not only_counts:
                self._listen()
            elif os.path.isdir(above := os.path.dirname(self._path)):
                found = os.stat(above)
                # In a directory of others, a link could be put in the place of the socket before its mode is set.
                if found.st_uid == os.geteuid() and not found.st_mode & 0o022:
                    self._listen()
                else:
                    log.alert(f"unable to use {above}: it must be the queue owner's, and nobody else may write; {who}")
        except OSError as error:
            log.alert(f"unable to listen on {self._path}: {reason(error)}; {who}")

    def _listen(self) -> None:
        try:
            os.unlink(self._path)  # We hold sendmutex, so nobody listens on it.
        except FileNotFoundError:
            pass
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        # The path of a socket has at most 107 bytes. By the descriptor of its directory it is always short enough.
        directory = os.open(os.path.dirname(self._path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            listener.bind(f"/proc/self/fd/{directory}/{os.path.basename(self._path)}")
            os.chmod(self._path, 0o666 if self._only_counts else 0o600)
            listener.listen(64)
        finally:
            os.close(directory)
        self._listener = listener

    def prepare(self, poll: "select.poll", now: float) -> float:
        """Wait for clients, requests, room for replies, and idle connections."""
        if self._listener is not None and len(self._clients) < CLIENTS_MAX:
            poll.register(self._listener, select.POLLIN)
        if not self._clients:
            return 3600.0
        for client in self._clients:
            listens = client.listens and not self._is_working
            if listens and client.unread:
                return 0.0
            wanted = select.POLLOUT if client.out.unwritten else select.POLLIN if listens else 0
            if wanted:
                poll.register(client.connection, wanted)
        first = min([client.deadline for client in self._clients])
        return max(0.0, min(3600.0, first - time.monotonic(), self._orders.wait(now)))

    def run(self, ready: dict[int, int], now: float) -> None:
        """One turn: new clients, one request of each, replies."""
        if self._shutdown.begun:
            self._stop_listening()
        if self._listener is not None and self._listener.fileno() in ready and len(self._clients) < CLIENTS_MAX:
            self._accept()
        self._orders.look_again(now)
        if not self._clients:
            return
        served = None  # One request in a turn.
        for client in self._clients:
            try:
                asks = client.unread or client.connection.fileno() in ready
                if served is None and not self._is_working and client.listens and asks:
                    served = client
                    self._serve(client, now)
                client.out.flush()
            except PeerLost:
                client.gone = True
            done = client.closing and not client.out.unwritten
            if client.gone or done or client.deadline <= time.monotonic():
                client.gone = True
                client.connection.close()
        self._clients = [client for client in self._clients if not client.gone]
        if served in self._clients:
            self._clients.remove(served)
            self._clients.append(served)  # The others are served before its next request.

    @property
    def _is_working(self) -> bool:
        return any(client.working for client in self._clients)

    def _accept(self) -> None:
        try:
            assert self._listener is not None
            connection, _ = self._listener.accept()
        except OSError:
            return  # It is gone again; or there are no descriptors left, and it waits.
        self._clients.append(_AdminConnection(connection))

    def _serve(self, client: _AdminConnection, now: float) -> None:
        if not client.unread:
            client.reader.feed(read_available(client.connection.fileno(), REQUEST_MAX) or b"")
            client.since = time.monotonic()
            client.unread = True
        try:
            payload = client.reader.next()
            if payload is None:
                client.unread = False
                return
            request = unpack_request(payload)
        except FormatError as error:
            client.refuse(str(error).encode("utf-8", "replace").replace(b"\0", b"_"))
            return
        if self._only_counts:
            client.answer(self._queries.counts(now)) if request.command == FIGURES else client.refuse(_COUNTS)
            return
        if request.command == SETTINGS:
            client.working = True
            self._rereads.look(now, client.answer)
            return
        if request.command in QUERIES:
            client.answer(self._queries.answer(request, now))
            return
        if self._shutdown.begun:
            client.refuse(_LEAVING)
            return
        client.working = True
        if request.command == REREAD:
            self._rereads.reread(now, client.answer)
            return
        self._orders.carry_out(request, client.answer, now)

    def _stop_listening(self) -> None:
        if self._listener is None:
            return
        self._listener.close()
        self._listener = None
        try:
            os.unlink(self._path)
        except OSError:
            pass  # The next start replaces it.

    def close(self) -> None:
        """Stop listening, write what the clients take of their replies, and close the connections."""
        self._stop_listening()
        for client in self._clients:
            try:
                client.out.flush()
            except PeerLost:
                continue
            client.connection.close()
