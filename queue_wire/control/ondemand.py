"""`control/ondemand`: domains whose mail waits in a queue of its own until it is asked for. Pure.

    DOMAIN:etrn [expire 30d] [probe 30m] [size 1G]

Mail for an `etrn` domain is tried once. If that fails, it is stored in queue/ondemand/DOMAIN, and delivered when a
client asks for it with ETRN (RFC 1985), or the administrator does, or a probe finds the domain's host reachable.

    expire TIME    mail that is older is returned to its sender
    probe TIME     the first interval between probes, which doubles up to a day; `never`: no probes
    size SIZE      bytes of stored messages; mail over it stays in the queue and is tried as that of other domains

Times are those of retryschedule, sizes those of databytes. The domain is a name of its own, without a leading dot: the
domains below it are not meant. Where its mail goes is up to smtproutes and the DNS.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from queue_wire.control.hostmap import host_key
from queue_wire.control.lines import numbered_lines, unpack_size
from queue_wire.control.schedule import unpack_seconds
from queue_wire.format_error import FormatError, InLine, LineError, quoted

DAY = 86400
EXPIRE = 30 * DAY
PROBE = 1800
# As the name of a directory, which has at most 255 bytes. RFC 1035 section 2.3.4 has the same limits.
_DOMAIN = re.compile(rb"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_ATRN = "atrn is not available; write etrn, or `domain:etrn probe never`"


class OnDemandLine(NamedTuple):
    """What a line says of a domain: times in seconds, `probe` 0 for never, `size` 0 for no limit."""

    expire: int = EXPIRE
    probe: int = PROBE
    size: int = 0


OnDemandLines = Mapping[bytes, OnDemandLine]


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
                raise FormatError(f"not DOMAIN:etrn: {quoted(line)}")
            domain = host_key(key)
            if not is_domain_name(domain):
                raise FormatError(f"not the name of a domain: {quoted(key)}")
            if domain in found:
                raise FormatError(f"a second line for {quoted(domain)}")
            found[domain] = _unpack_words(value.split())
    return found


def _unpack_words(words: list[bytes]) -> OnDemandLine:
    if not words or words[0].lower() not in (b"etrn", b"atrn"):
        raise FormatError("no method, which is etrn, behind the colon")
    if words[0].lower() == b"atrn":
        raise FormatError(_ATRN)
    options: dict[str, int] = {}
    for name, value in zip(words[1::2], [*words[2::2], b""], strict=False):
        option = name.decode("ascii", "replace")
        if option == "relay":
            raise FormatError("no option relay: write `domain:host:port` into smtproutes")
        if option not in OnDemandLine._fields:
            raise FormatError(f"no option, one of {', '.join(OnDemandLine._fields)}: {quoted(name)}")
        if option in options:
            raise FormatError(f"a second {option}")
        options[option] = _unpack_option(option, value)
    return OnDemandLine(**options)


def _unpack_option(option: str, value: bytes) -> int:
    if not value:
        raise FormatError(f"no value behind {option}")
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
