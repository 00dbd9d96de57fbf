"""What queue-remote reports where it finds no way to a nexthop: qmail-remote's wording, then a line of particulars.

Names come from outside and may hold anything: what is not printable is shown as `?`, as qmail-remote's outsafe does.
"""

NAME_MOST = 255


def shown(name: bytes) -> bytes:
    """Return a name, printable and in one word."""
    return bytes(byte if 33 <= byte <= 126 else 0x3F for byte in name[:NAME_MOST])


def name_trouble(question: bytes, why: str) -> bytes:
    """The mail exchangers cannot be found out for now; `question` is the name and type asked for."""
    return b"CNAME lookup failed temporarily. (#4.4.3)\n%s" % _dns(question, why)


def address_trouble(question: bytes, why: str) -> bytes:
    """No address can be found out for now."""
    return b"Sorry, I couldn't find any host by that name. (#4.1.2)\n%s" % _dns(question, why)


def no_host(host: bytes) -> bytes:
    """The nexthop does not exist, or cannot."""
    return b"Sorry, I couldn't find any host named %s. (#5.1.2)\n" % shown(host)


def no_address(host: bytes, names: list[bytes]) -> bytes:
    """The nexthop exists, but none of its mail exchangers (`names`), or the host itself, has an address."""
    asked = b", ".join(map(shown, names))
    return b"Sorry, I couldn't find a mail exchanger or IP address. (#5.4.4)\n%s: no address for %s.\n" % (
        shown(host),
        asked,
    )


def null_mx(host: bytes) -> bytes:
    """The domain says that it takes no mail (RFC 7505)."""
    return b"Sorry, %s has a null MX: it does not accept mail. (#5.1.10)\n" % shown(host)


def best_preference(host: bytes, ours: bytes) -> bytes:
    """Mail for the nexthop would come back to this host; `ours` is the exchanger or address that is this host."""
    return (
        b"Sorry. Although I'm listed as a best-preference MX or A for that host,\n"
        b"it isn't in my control/locals file, so I don't treat it as local. (#5.4.6)\n"
        b"%s: mail loops back to me: %s is this host.\n" % (shown(host), shown(ours))
    )


def loops_back(host: bytes, peer: bytes) -> bytes:
    """Mail for the nexthop would come back to this host: `peer`, an address and name, gives our name as its own."""
    return (
        b"Sorry. Although I'm listed as a best-preference MX or A for that host,\n"
        b"it isn't in my control/locals file, so I don't treat it as local. (#5.4.6)\n"
        b"%s: mail loops back to me: %s answers with my own name.\n" % (shown(host), peer)
    )


def _dns(question: bytes, why: str) -> bytes:
    return b"DNS: %s: %s.\n" % (question, why.encode("ascii", "replace"))
