"""What the server knows of its client, for the rules, the Received field and the log."""

from typing import NamedTuple

from queue_wire.control.networks import unpack_ip


class TlsFacts(NamedTuple):
    """The TLS session: its version as `TLSv1.3`, its cipher."""

    version: bytes
    cipher: bytes


class ClientFacts(NamedTuple):
    """A client. `address` and `server` are IP addresses as text, without brackets; both are empty on a Unix socket.

    `name` is the name that DNS has for the address and that has this address, empty if there is none. `hello` is what
    EHLO or HELO said. `user` is the authenticated one, or empty, and `mechanism` how it has authenticated. `relays`:
    RELAYCLIENT is set, or it is a program of this host, so the client may send mail to everybody. `hidden`: the proxy
    does not know the address, which is empty. `qmtp`: the client speaks QMTP. `server_hidden`: the proxy does not know
    `server`, which is empty.
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
    hidden: bool = False
    qmtp: bool = False
    server_hidden: bool = False

    @property
    def shown_address(self) -> str:
        """The address as people see it."""
        return self.address or ("unknown" if self.hidden else "local")

    @property
    def shown_server(self) -> str:
        """The server's address as people see it."""
        return self.server or ("unknown" if self.server_hidden else "local")


def replace_client(client: ClientFacts, attributes: dict[bytes, bytes]) -> ClientFacts:
    """Return the facts after XCLIENT, with its attributes as queue_smtp.xclient has them.

    What was known of another address does not count for this one, nor does AUTH or RELAYCLIENT. TLS is that of the
    connection. HELO and PROTO stay until the next EHLO or HELO.
    """
    address, name, hidden = client.address, client.name, client.hidden
    if b"ADDR" in attributes:
        hidden = not attributes[b"ADDR"]
        address, name = plain_address(attributes[b"ADDR"].decode()), b""
    server, server_hidden = client.server, client.server_hidden
    if b"DESTADDR" in attributes:
        server, server_hidden = plain_address(attributes[b"DESTADDR"].decode()), not attributes[b"DESTADDR"]
    user = attributes.get(b"LOGIN", b"")
    return ClientFacts(
        address,
        server,
        attributes.get(b"NAME", name),
        attributes.get(b"HELO", b""),
        attributes.get(b"PROTO") == b"ESMTP",
        client.tls,
        user,
        False,
        b"XCLIENT" if user else b"",
        hidden,
        server_hidden=server_hidden,
    )


def is_this_host(client: str, server: str) -> bool:
    """Return whether a client that is connected without a proxy is a program of this host.

    Only such a program can have the address that it calls, and the kernel takes no loopback address from the network.
    """
    found = unpack_ip(client)
    return found is not None and (found.is_loopback or found == unpack_ip(server))


def plain_address(address: str) -> str:
    """Return an address in one form, without the name of an interface (`%eth0`).

    An IPv4 address that comes as IPv6 is the IPv4 address.
    """
    found = unpack_ip(address.partition("%")[0])
    return "" if found is None else str(found)
