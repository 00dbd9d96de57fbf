"""`control/ondemand`: domains whose mail waits in a queue of its own until it is asked for. Pure.

    DOMAIN:etrn [expire 30d] [probe 30m] [size 1G] [relay HOST[:PORT]]
    DOMAIN:atrn [expire 30d] [size 1G]

Mail for an `etrn` domain is tried once. If that fails, it is stored in queue/ondemand/DOMAIN, and delivered when a
client asks for it with ETRN (RFC 1985), or the administrator does, or a probe finds the domain's host reachable.

Mail for an `atrn` domain is stored at once. It goes to the host that asks for it with ATRN (RFC 2645), on the very
connection of that host, and nowhere else. `control/ondemandusers` says who may ask:

    USER:DOMAIN[,DOMAIN...]

    expire TIME    mail that is older is returned to its sender
    probe TIME     the first interval between probes, which doubles up to a day; `never`: no probes
    size SIZE      bytes of stored messages; mail over it stays in the queue and is tried as that of other domains
    relay HOST     where all mail for the domain goes, as in smtproutes, whose line for it is not used then

Times are those of retryschedule, sizes those of databytes. The domain is a name of its own, without a leading dot: the
domains below it are not meant. Without a relay, where its mail goes is up to smtproutes and the DNS.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from queue_wire.control.hostmap import host_key
from queue_wire.control.lines import numbered_lines, unpack_size
from queue_wire.control.schedule import unpack_seconds
from queue_wire.control.smtpdusers import check_user
from queue_wire.control.smtproutes import Relays, Routes, unpack_relays
from queue_wire.format_error import FormatError, InLine, LineError, quoted

DAY = 86400
EXPIRE = 30 * DAY
PROBE = 1800
USER_DOMAINS_MAX = 1000
# As the name of a directory, which has at most 255 bytes. RFC 1035 section 2.3.4 has the same limits.
_DOMAIN = re.compile(rb"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_OPTIONS = ("expire", "probe", "size", "relay")
# Options about connecting to the host.
_ETRN_ALONE = ("probe", "relay")


class OnDemandLine(NamedTuple):
    """What a line says of a domain: times in seconds, `probe` 0 for never, `size` 0 for no limit.

    `turns`: the domain's host asks with ATRN, and gets its mail on its own connection. `relays` take all mail for the
    domain; None if it goes by smtproutes and the DNS.
    """

    expire: int = EXPIRE
    probe: int = PROBE
    size: int = 0
    turns: bool = False
    relays: Relays | None = None


OnDemandLines = Mapping[bytes, OnDemandLine]
# The domains of each user, in the order of the file.
OnDemandUsers = Mapping[bytes, tuple[bytes, ...]]


def on_demand_routes(lines: OnDemandLines) -> Routes:
    """Return the relays of the domains that have some, which precede the lines of smtproutes."""
    return {domain: line.relays for domain, line in lines.items() if line.relays is not None}


def is_domain_name(name: bytes) -> bool:
    """Return whether a domain in lower case can have a queue of its own, and a directory of that name."""
    return _DOMAIN.fullmatch(name) is not None


def unpack_ondemand(data: bytes) -> dict[bytes, OnDemandLine]:
    """Return what is said of each domain. Raises LineError, also for a domain that is there twice."""
    found: dict[bytes, OnDemandLine] = {}
    for number, line in numbered_lines(data):
        with InLine(number):
            key, colon, value = line.partition(b":")
            if not colon:
                raise FormatError(f"not DOMAIN:etrn or DOMAIN:atrn: {quoted(line)}")
            domain = _unpack_domain(key)
            if domain in found:
                raise FormatError(f"a second line for {quoted(domain)}")
            found[domain] = _unpack_words(value.split())
    return found


def unpack_on_demand_users(data: bytes) -> dict[bytes, tuple[bytes, ...]]:
    """Return the domains of each user, of control/ondemandusers; lines of one user add up. Raises LineError.

    A user has USER_DOMAINS_MAX domains, which fit into one request (queue_wire.admin.ondemand_socket). A domain of two
    users is an error: what one has taken would be missing at the other.
    """
    found: dict[bytes, tuple[bytes, ...]] = {}
    owners: dict[bytes, bytes] = {}
    for number, line in numbered_lines(data):
        with InLine(number):
            user, colon, rest = line.partition(b":")
            names = rest.replace(b",", b" ").split()
            if not colon or not names:
                raise FormatError(f"not USER:DOMAIN[,DOMAIN...]: {quoted(line)}")
            check_user(user)
            for name in names:
                domain = _unpack_domain(name)
                if domain in owners:
                    raise FormatError(f"{quoted(domain)} belongs to user {quoted(owners[domain])} already")
                if len(found.get(user, ())) == USER_DOMAINS_MAX:
                    raise FormatError(f"user {quoted(user)} has more than {USER_DOMAINS_MAX} domains")
                owners[domain] = user
                found[user] = (*found.get(user, ()), domain)
    return found


def _unpack_domain(name: bytes) -> bytes:
    domain = host_key(name)
    if not is_domain_name(domain):
        raise FormatError(f"not the name of a domain: {quoted(name)}")
    return domain


def _unpack_words(words: list[bytes]) -> OnDemandLine:
    method = words[0].lower() if words else b""
    if method not in (b"etrn", b"atrn"):
        raise FormatError("no method, one of etrn, atrn, behind the colon")
    turns = method == b"atrn"
    relays: Relays | None = None
    options: dict[str, int] = {}
    for name, value in zip(words[1::2], [*words[2::2], b""], strict=False):
        option = name.decode("ascii", "replace")
        if option not in _OPTIONS:
            raise FormatError(f"no option, one of {', '.join(_OPTIONS)}: {quoted(name)}")
        if turns and option in _ETRN_ALONE:
            raise FormatError(f"atrn has no option {option}: nobody connects to its host; remove it")
        if option in options or (option == "relay" and relays is not None):
            raise FormatError(f"a second {option}")
        if not value:
            raise FormatError(f"no value behind {option}")
        if option == "relay":
            relays = unpack_relays(value)
        else:
            options[option] = _unpack_option(option, value)
    if turns:
        options["probe"] = 0
    found = OnDemandLine(options.get("expire", EXPIRE), options.get("probe", PROBE), options.get("size", 0), turns)
    return found._replace(relays=relays)


def _unpack_option(option: str, value: bytes) -> int:
    if option == "size":
        try:
            size = unpack_size(value)
        except LineError as error:
            raise FormatError(error.why) from error
        if not size:
            raise FormatError("size 0 would store nothing")
        return size
    if option == "probe" and value == b"never":
        return 0
    return unpack_seconds(value.decode("ascii", "replace"))
