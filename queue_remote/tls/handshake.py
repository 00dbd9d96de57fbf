"""Makes the TLS handshake on an open connection, and describes its outcome."""

import asyncio
import errno
import ssl
from typing import cast

from queue_base.daemon.unread_input import read_unread
from queue_base.errors import reason
from queue_remote.tls.plan import TlsPlan

# To wait for the server's close_notify.
PARTING_SECONDS = 2.0


async def shake_hands(
    transport: asyncio.Transport, protocol: asyncio.Protocol, plan: TlsPlan, seconds: float
) -> asyncio.Transport:
    """Return the transport under TLS. Raises OSError, and ValueError for an invalid server name.

    The protocol may receive data under TLS before this returns.
    """
    assert plan.context is not None
    secured = await asyncio.get_running_loop().start_tls(
        transport,
        protocol,
        plan.context,
        server_hostname=plan.server_name,
        ssl_handshake_timeout=max(0.1, seconds),
        ssl_shutdown_timeout=PARTING_SECONDS,
    )
    # If the transport was closed meanwhile, the handshake ends without an error.
    if secured is None or secured.is_closing():
        raise ConnectionResetError(errno.ECONNRESET, "closed")
    limit_buffer(secured)
    transport.set_protocol(_ReadToTheEnd(transport, cast(asyncio.BufferedProtocol, transport.get_protocol())))
    return secured


class _ReadToTheEnd(asyncio.BufferedProtocol):
    """Stands between the socket and TLS: if the connection fails, what is left to read goes to TLS first."""

    def __init__(self, transport: asyncio.Transport, tls: asyncio.BufferedProtocol) -> None:
        self._transport = transport
        self._tls = tls
        # The event loop calls what it finds here, without a step between.
        for name in ("get_buffer", "buffer_updated", "eof_received", "pause_writing", "resume_writing"):
            setattr(self, name, getattr(tls, name))

    def connection_lost(self, exc: Exception | None) -> None:
        unread = b"" if exc is None else read_unread(self._transport)
        while unread:
            room = memoryview(self._tls.get_buffer(len(unread)))
            count = min(len(room), len(unread))
            room[:count] = unread[:count]
            self._tls.buffer_updated(count)
            unread = unread[count:]
        self._tls.connection_lost(exc)


def is_about_certificate(error: Exception) -> bool:
    """Return whether a handshake failed because the server's certificate did not verify."""
    return isinstance(error, ssl.SSLCertVerificationError)


def limit_buffer(transport: asyncio.WriteTransport) -> None:
    """Make the transport accept no further data before the last is sent: thousands of servers may be slow at once.

    By default a transport buffers 64 kB, and 512 kB under TLS. With a limit of 0, TLS would pause before any data is
    ready to be sent.
    """
    transport.set_write_buffer_limits(1)


def describe_error(error: Exception) -> str:
    """Return why a connection or handshake failed, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message.removesuffix(".")
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error).lower().replace("_", " ")
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return reason(error) if isinstance(error, OSError) else str(error)


def describe_tls(transport: asyncio.Transport, plan: TlsPlan, objection: str | None) -> str:
    """Return version, cipher, and whether the server was verified, as --trace prints them."""
    version = transport.get_extra_info("ssl_object").version()
    cipher, _, _ = transport.get_extra_info("cipher")
    judged = objection or ("verified by " if plan.verifies else "not verified: policy ") + plan.policy
    return f"TLS: {version} {cipher}, {judged}"
