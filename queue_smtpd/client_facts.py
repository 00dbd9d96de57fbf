"""What the server knows of its client, for the rules, the Received field and the log."""

from typing import NamedTuple


class TlsFacts(NamedTuple):
    """The TLS session: its version as `TLSv1.3`, its cipher."""

    version: bytes
    cipher: bytes


class ClientFacts(NamedTuple):
    """A client. `address` and `server` are IP addresses as text, without brackets; both are empty on a Unix socket.

    `name` is the name that DNS has for the address and that has this address, empty if there is none. `hello` is what
    EHLO or HELO said. `user` is the authenticated one, or empty, and `mechanism` how it has authenticated. `relays`:
    RELAYCLIENT is set, so the client may send mail to everybody.
    """

    address: str
    server: str = ""
    name: bytes = b""
    hello: bytes = b""
    esmtp: bool = False
    tls: TlsFacts | None = None
    user: bytes = b""
    relays: bool = False
    mechanism: bytes = b""
