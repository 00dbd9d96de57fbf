"""The TLS handshake on an open connection, and how it and its troubles are named."""

import asyncio
import errno
import ssl

from queue_base.errors import reason
from queue_remote.tls.plan import TlsPlan

# For the end of TLS, in which the peer has a say.
PARTING_SECONDS = 2.0


async def shake_hands(
    transport: asyncio.Transport, protocol: asyncio.Protocol, plan: TlsPlan, seconds: float
) -> asyncio.Transport:
    """Return the transport under TLS. Raises OSError, and ValueError for an impossible server name.

    The protocol gets what comes under TLS at once, before this returns.
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
    # A transport that was closed meanwhile ends the handshake without an error.
    if secured is None or secured.is_closing():
        raise ConnectionResetError(errno.ECONNRESET, "closed")
    hold_little(secured)
    return secured


def is_about_certificate(error: Exception) -> bool:
    """Return whether a handshake failed because we did not like the peer's certificate."""
    return isinstance(error, ssl.SSLCertVerificationError)


def hold_little(transport: asyncio.WriteTransport) -> None:
    """Take no further piece of a message before the last one is off: thousands of peers may take none.

    By default a transport takes 64 kB more than the peer, and 512 kB under TLS. With 0, TLS would pause before there is
    anything that could get off.
    """
    transport.set_write_buffer_limits(1)


def why(error: Exception) -> str:
    """Return why a connection or handshake failed, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message.removesuffix(".")
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error).lower().replace("_", " ")
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return reason(error) if isinstance(error, OSError) else str(error)


def tls_facts(transport: asyncio.Transport, plan: TlsPlan, objection: str | None) -> str:
    """Return version, cipher, and whether the peer is verified, for a person."""
    version = transport.get_extra_info("ssl_object").version()
    cipher, _, _ = transport.get_extra_info("cipher")
    judged = objection or ("verified by " if plan.verifies else "not verified: policy ") + plan.policy
    return f"TLS: {version} {cipher}, {judged}"
