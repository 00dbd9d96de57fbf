"""A real receiving SMTP server (aiosmtpd) on a loopback port, with scripted answers and a record of what came."""

import asyncio
import socket
import ssl
import threading
import warnings
from typing import Any, NamedTuple, Self

from aiosmtpd.smtp import SMTP, AuthResult

# What the server says when no answer is scripted.
TAKEN = "250 ok"
SIZE_LIMIT = 100_000_000
# Connections that wait to be accepted; the kernel drops those beyond, whose clients try again a second or more later.
BACKLOG = 1024


class Received(NamedTuple):
    """One message: envelope as text, content with CRLF line ends, dots unstuffed."""

    sender: str
    recipients: list[str]
    content: bytes

    @property
    def stored(self) -> bytes:
        """The content as a queue file would hold it, with LF line ends."""
        return self.content.replace(b"\r\n", b"\n")


class SmtpServer:
    """Listens from `with` on; `port` is its port, `received` the messages taken so far.

    `recipient_answers` and `message_answers` script replies: for RCPT by address, for the end of DATA by
    the first recipient. A list is used up one reply at a time, TAKEN after it; a str stays. With `tls`, STARTTLS is
    offered, and nothing is taken without it. With `passwords` nobody gets further than AUTH without one of them;
    `mechanisms` are those that it offers, and `logins` has who came in.
    """

    def __init__(self, address: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.received: list[Received] = []
        self.mail_options: list[list[str]] = []
        self.recipient_answers: dict[str, list[str] | str] = {}
        self.message_answers: dict[str, list[str] | str] = {}
        self.hello_names: list[str] = []
        self.passwords: dict[bytes, bytes] = {}
        self.mechanisms = ["LOGIN", "PLAIN"]
        self.logins: list[tuple[str, bytes]] = []
        self.connections = 0
        self.arrived = threading.Condition()
        self._listener = socket.create_server((address, port), backlog=BACKLOG)
        self.port = int(self._listener.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._started = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(30)
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def wait_for(self, count: int, seconds: float = 60) -> list[Received]:
        """Return the messages taken, once there are `count`."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.received) >= count, seconds), f"only {len(self.received)}"
            return list(self.received)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        made = self._loop.create_server(self._session, sock=self._listener, backlog=BACKLOG)
        server = self._loop.run_until_complete(made)
        self._started.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        # A turn in which cancelled tasks end and closed transports let go of their sockets.
        self._loop.run_until_complete(asyncio.sleep(0.01))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _session(self) -> SMTP:
        self.connections += 1
        options: dict[str, Any] = {"tls_context": self._tls, "require_starttls": self._tls is not None}
        if self.passwords:
            options |= {
                "authenticator": self._authenticate,
                "auth_required": True,
                "auth_require_tls": False,
                "auth_exclude_mechanism": [name for name in ("LOGIN", "PLAIN") if name not in self.mechanisms],
            }
        with warnings.catch_warnings():
            # It warns that passwords without TLS are no good idea.
            warnings.simplefilter("ignore")
            return SMTP(
                _Handler(self), hostname="server.example", data_size_limit=SIZE_LIMIT, loop=self._loop, **options
            )

    def _authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        good = self.passwords.get(data.login) == data.password
        if good:
            self.logins.append((mechanism, data.login))
        return AuthResult(success=good, handled=good)


class _Handler:
    """aiosmtpd's hooks."""

    def __init__(self, server: SmtpServer) -> None:
        self._server = server

    async def handle_EHLO(
        self, server: Any, session: Any, envelope: Any, hostname: str, responses: list[str]
    ) -> list[str]:
        self._server.hello_names.append(hostname)
        session.host_name = hostname
        return [*responses[:-1], "250-PIPELINING", responses[-1]]

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        self._server.mail_options.append(options)
        envelope.mail_from = address
        return TAKEN

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        answer = _next_answer(self._server.recipient_answers, address)
        if answer.startswith("2"):
            envelope.rcpt_tos.append(address)
        return answer

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        answer = _next_answer(self._server.message_answers, envelope.rcpt_tos[0])
        if answer.startswith("2"):
            with self._server.arrived:
                content = bytes(envelope.original_content)
                self._server.received.append(Received(envelope.mail_from, list(envelope.rcpt_tos), content))
                self._server.arrived.notify_all()
        return answer


def _next_answer(script: dict[str, list[str] | str], key: str) -> str:
    answer = script.get(key, TAKEN)
    if isinstance(answer, str):
        return answer
    return answer.pop(0) if answer else TAKEN
