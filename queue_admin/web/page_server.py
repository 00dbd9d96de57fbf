"""A small HTTP server for pages that are only read, for clients that nobody knows.

It answers GET and HEAD, one request of each connection. A client has REQUEST_SECONDS for its request and WRITE_SECONDS
to take the answer. Until its request is whole a client costs a descriptor and its bytes, at most HEAD_MAX; so many as
WAITING_MAX are kept, and one more takes the place of the oldest. So thousands of silent clients keep nobody away who
asks at once. THREADS_MAX are answered at the same time, and others are turned away with 503. What is requested is
never logged, and an answer says nothing of the program's version.

With `hosts` a request must name this server as one of them, as `localhost` or by an address, so that a page from
elsewhere cannot read it through a browser by giving its own name our address (DNS rebinding).
"""

import contextlib
import io
import ipaddress
import re
import selectors
import socket
import threading
import time
from collections.abc import Callable, Collection
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple, cast

from queue_base.errors import Temporary, Usage, complain, reason

THREADS_MAX = 16
WAITING_MAX = 500
REQUEST_SECONDS = 5.0
WRITE_SECONDS = 30.0
HEAD_MAX = 1 << 16  # Bytes of a request.
BACKLOG = 1024  # Connections that the kernel keeps until they are accepted.
ACCEPTED_MAX = 100  # Connections that one turn of the loop accepts.
REST = 0.1  # Seconds without accepting, when no descriptor is left.
TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
_BLANK = re.compile(rb"\r?\n\r?\n")
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 5\r\n\r\n"


class Page(NamedTuple):
    """An answer. `policy` is its content security policy."""

    status: int
    kind: str
    body: bytes
    policy: str = "default-src 'none'; frame-ancestors 'none'"


# Returns the answer to a path with its query, and the value of the Accept header.
Answer = Callable[[str, str], Page]


def text_page(status: HTTPStatus, text: str) -> Page:
    """Return an answer of one line."""
    return Page(status, TEXT, f"{text}\n".encode())


def take_address(text: str) -> tuple[str, int]:
    """Return the host and port of `ADDRESS:PORT`; an IPv6 address stands in brackets. Raises Usage."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        ipaddress.ip_address(bare)
    except ValueError as error:
        raise Usage(f"unable to listen on {text!a}: it is ADDRESS:PORT, as in 127.0.0.1:8080 or [::1]:8080") from error
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 65536):
        raise Usage(f"unable to listen on {text!a}: the port is a number below 65536")
    return bare, int(port)


def names_us(host: str, hosts: Collection[str]) -> bool:
    """Return whether a Host header names this server: one of `hosts`, localhost, or an address."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
    name = name.removeprefix("[").removesuffix("]").lower().removesuffix(".")
    if name == "localhost" or name in hosts:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class _Handler(BaseHTTPRequestHandler):
    """Answers a request, of which `head` is what has come."""

    protocol_version = "HTTP/1.0"

    def __init__(self, connection: socket.socket, head: bytes, server: "PageServer") -> None:
        self._head = head
        self._pages = server
        super().__init__(connection, ("", 0), cast(Any, server))

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(cast(Any, io.BytesIO(self._head)))

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        if not _BLANK.search(self._head):
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return
        hosts = self._pages.hosts
        named = self.headers.get_all("Host") or []
        if hosts is not None and not (len(named) == 1 and names_us(named[0], hosts)):
            self._send(text_page(HTTPStatus.MISDIRECTED_REQUEST, "this server has another name; see --host"))
            return
        try:
            page = self._pages.answer(self.path, self.headers.get("Accept", ""))
        except Exception as error:
            complain(self._pages.program, f"warning: unable to answer: {type(error).__name__}: {error}")
            page = text_page(HTTPStatus.INTERNAL_SERVER_ERROR, "this cannot be shown now")
        self._send(page)

    def _send(self, page: Page) -> None:
        headers = {
            "Date": formatdate(usegmt=True),
            "Content-Type": page.kind,
            "Content-Length": str(len(page.body)),
            "Cache-Control": "no-store",
            "Content-Security-Policy": page.policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Connection": "close",
        }
        if page.status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = "GET, HEAD"
        # A request without a version, too, gets all headers.
        self.request_version = self.protocol_version
        self.send_response_only(page.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that cannot be read, or has another method."""
        status = HTTPStatus(code)
        if status == HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self.close_connection = True
        self._send(text_page(status, status.phrase))

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""


class _Client:
    """A client whose request is not whole."""

    __slots__ = ("data", "end")

    def __init__(self) -> None:
        self.data = b""
        self.end = time.monotonic() + REQUEST_SECONDS


class PageServer:
    """The server. `hosts` None: any name will do."""

    def __init__(self, program: str, where: tuple[str, int], answer: Answer, hosts: Collection[str] | None) -> None:
        """Listen. Raises Temporary."""
        self.program = program
        self.answer = answer
        self.hosts = None if hosts is None else {name.lower() for name in hosts}
        self._places = threading.BoundedSemaphore(THREADS_MAX)
        self._clients: dict[socket.socket, _Client] = {}  # In the order in which they came.
        self._selector = selectors.DefaultSelector()
        self._stop, self._stopped = socket.socketpair()
        family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
        try:
            # It looks at no names of this host, as HTTPServer does.
            self._listener = socket.create_server(where, family=family, backlog=BACKLOG)
        except OSError as error:
            raise Temporary(f"unable to listen on {where[0]} port {where[1]}: {reason(error)}") from error
        self.address: tuple[str, int] = self._listener.getsockname()[:2]

    @property
    def url(self) -> str:
        """The address of the first page."""
        host, port = self.address
        return f"http://{host if ':' not in host else f'[{host}]'}:{port}/"

    def serve(self) -> None:
        """Serve until `stop` is called, which another thread may do."""
        self._listener.setblocking(False)
        with self._selector as selector, self._listener as listener, self._stopped, self._stop:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(self._stopped, selectors.EVENT_READ)
            while True:
                oldest = next(iter(self._clients.values()), None)
                for key, _ in selector.select(None if oldest is None else max(0.0, oldest.end - time.monotonic())):
                    if key.fileobj is self._stopped:
                        return
                    if key.fileobj is listener:
                        self._accept()
                    else:
                        self._read(cast(socket.socket, key.fileobj))
                now = time.monotonic()
                for connection in [each for each, client in self._clients.items() if client.end <= now]:
                    self._drop(connection)

    def stop(self) -> None:
        """Let `serve` end."""
        self._stop.send(b"x")

    def _accept(self) -> None:
        for _ in range(ACCEPTED_MAX):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No descriptor is left, most likely.
                complain(self.program, f"warning: unable to accept a client: {reason(error)}")
                self._drop_oldest()
                time.sleep(REST)
                return
            if len(self._clients) >= WAITING_MAX:
                self._drop_oldest()
            connection.setblocking(False)
            self._clients[connection] = _Client()
            self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, connection: socket.socket) -> None:
        client = self._clients.get(connection)
        if client is None:
            return  # It was dropped in this turn.
        try:
            data = connection.recv(HEAD_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        client.data += data
        if not data:
            self._drop(connection)
        elif _BLANK.search(client.data) or len(client.data) > HEAD_MAX:
            self._selector.unregister(connection)
            del self._clients[connection]
            self._hand_over(connection, client.data)

    def _hand_over(self, connection: socket.socket, head: bytes) -> None:
        """Answer a request in a thread of its own, if there is a place."""
        if not self._places.acquire(blocking=False):
            with contextlib.suppress(OSError):
                connection.send(_BUSY)
            _close(connection)
            return
        try:
            threading.Thread(target=self._serve_client, args=(connection, head), daemon=True).start()
        except RuntimeError as error:
            self._places.release()
            _close(connection)
            complain(self.program, f"warning: unable to serve a client: {error}")

    def _serve_client(self, connection: socket.socket, head: bytes) -> None:
        try:
            connection.settimeout(WRITE_SECONDS)
            _Handler(connection, head, self)
        except OSError:
            pass  # A client that goes away, or takes too long, is no trouble of ours.
        except Exception as error:
            complain(self.program, f"warning: unable to serve a client: {type(error).__name__}: {error}")
        finally:
            _close(connection)
            self._places.release()

    def _drop_oldest(self) -> None:
        for connection in self._clients:
            self._drop(connection)
            return

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._clients[connection]
        _close(connection)


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        # If something is not read, the client gets a reset, and perhaps not the answer.
        connection.setblocking(False)
        for _ in range(16):
            if not connection.recv(HEAD_MAX):
                break
    connection.close()


def serve(server: PageServer) -> None:
    """Serve until an interrupt, or a signal that ends the process."""
    with contextlib.suppress(KeyboardInterrupt):
        server.serve()
