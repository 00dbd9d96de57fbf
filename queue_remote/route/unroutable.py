"""The failure of a route search, and its texts: qmail-remote's wording, then one line of details.

Names come from outside and may hold any bytes. A byte that is not printable is shown as `?`, as qmail-remote does.
"""

from queue_remote.report_text import Verdict
from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE, TEMPORARY

NAME_MAX = 255


class Unroutable(Exception):
    """The mail cannot be routed: `verdict` is that on every recipient, `scope` that of the report.

    `reasons` are the steps of the search that failed, as in Route; the router fills them in.
    """

    def __init__(self, letter: bytes, text: bytes, scope: bytes | None = None) -> None:
        """The default scope is a lookup's: a temporary failure is the nexthop's, a permanent one the message's."""
        super().__init__(text)
        self.verdict: Verdict = (letter, text)
        self.scope = scope or (HOST_SCOPE if letter == TEMPORARY else MESSAGE_SCOPE)
        self.reasons: list[str] = []

    @property
    def details(self) -> str:
        """The last line of the verdict's text, without its full stop."""
        return self.verdict[1].decode("ascii", "replace").strip().splitlines()[-1].removesuffix(".")


def shown(name: bytes) -> bytes:
    """Return a name in printable characters, without spaces."""
    return bytes(byte if 33 <= byte <= 126 else 0x3F for byte in name[:NAME_MAX])


def name_trouble(question: bytes, why: str) -> bytes:
    """The lookup of the mail exchangers failed temporarily; `question` is the name and type asked for."""
    return b"CNAME lookup failed temporarily. (#4.4.3)\n%s" % _dns(question, why)


def address_trouble(question: bytes, why: str) -> bytes:
    """The lookup of the addresses failed temporarily."""
    return b"Sorry, I couldn't find any host by that name. (#4.1.2)\n%s" % _dns(question, why)


def no_host(host: bytes) -> bytes:
    """The nexthop does not exist."""
    return b"Sorry, I couldn't find any host named %s. (#5.1.2)\n" % shown(host)


def no_address(host: bytes, names: list[bytes]) -> bytes:
    """The nexthop exists, but neither its mail exchangers nor the host itself (`names`) have an address."""
    asked = b", ".join(map(shown, names))
    return b"Sorry, I couldn't find a mail exchanger or IP address. (#5.4.4)\n%s: no address for %s.\n" % (
        shown(host),
        asked,
    )


def no_local_route(recipient: bytes) -> bytes:
    """A local recipient was given to queue-remote, and has no LMTP server."""
    return b"Sorry, control/localroutes has no server for %s. (#4.3.5)\n" % shown(recipient)


def null_mx(host: bytes) -> bytes:
    """The domain has a null MX record: it accepts no mail (RFC 7505)."""
    return b"Sorry, %s has a null MX: it does not accept mail. (#5.1.10)\n" % shown(host)


def best_preference(host: bytes, ours: bytes) -> bytes:
    """The best exchanger of the nexthop is this host; `ours` is the exchanger's name or address."""
    return (
        b"Sorry. Although I'm listed as a best-preference MX or A for that host,\n"
        b"it isn't in my control/locals file, so I don't treat it as local. (#5.4.6)\n"
        b"%s: mail loops back to me: %s is this host.\n" % (shown(host), shown(ours))
    )


def loops_back(host: bytes, peer: bytes) -> bytes:
    """The server (`peer`, an address and name) gives this host's name as its own."""
    return (
        b"Sorry. Although I'm listed as a best-preference MX or A for that host,\n"
        b"it isn't in my control/locals file, so I don't treat it as local. (#5.4.6)\n"
        b"%s: mail loops back to me: %s answers with my own name.\n" % (shown(host), peer)
    )


def _dns(question: bytes, why: str) -> bytes:
    return b"DNS: %s: %s.\n" % (question, why.encode("ascii", "replace"))
