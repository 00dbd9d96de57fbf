"""`control/dnslists`: DNS lists of addresses whose mail is refused (RFC 5782). Pure.

    zen.spamhaus.org 127.0.0.2..11 See https://check.spamhaus.org/results/?query=%IP%
    bl.example.net 127.0.0.2,127.0.1.4..8
    bl.example.org

A line is a zone, then, if wanted, the answers that count, divided by commas, and a text for the client, in which %IP%
is its address. An octet of an answer may be a range. Without answers each one in 127.0.0.0/8 counts. Those in
127.255.255.0/24 never count: the list says with them that it does not answer this server.
"""

import re
from typing import NamedTuple

from queue_wire.control.lines import numbered_lines
from queue_wire.control.networks import unpack_ip
from queue_wire.format_error import FormatError, InLine, quoted

LISTS_MAX = 20
# In front of it there may be 64 bytes of a reversed IPv6 address, and a name has at most 253.
_ZONE_MAX = 180
_TEXT_MAX = 200
_ZONE = re.compile(rb"(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})+\.?")
_OCTET = rb"([0-9]{1,3})(?:\.\.([0-9]{1,3}))?"
_PATTERN = re.compile(rb"\.".join([_OCTET] * 4))
_ADDRESS = b"%IP%"

# For each of the four octets the least and the most.
Pattern = tuple[tuple[int, int], ...]
_ANY: tuple[Pattern, ...] = (((127, 127), (0, 255), (0, 255), (0, 255)),)
_REFUSED: Pattern = ((127, 127), (255, 255), (255, 255), (0, 255))


class DnsList(NamedTuple):
    """A line. `zone` is in lower case, without final dot."""

    zone: bytes
    answers: tuple[Pattern, ...] = _ANY
    text: bytes = b""


def unpack_dns_lists(data: bytes) -> tuple[DnsList, ...]:
    """Return the lists in their order. Raises LineError, also for a zone that stands twice."""
    found: list[DnsList] = []
    for number, line in numbered_lines(data):
        with InLine(number):
            one = _unpack_list(line)
            if one.zone in [other.zone for other in found]:
                raise FormatError(f"a second line for {quoted(one.zone)}")
            if len(found) == LISTS_MAX:
                raise FormatError(f"more than {LISTS_MAX} lists")
            found.append(one)
    return tuple(found)


def list_question(one: DnsList, address: str) -> bytes | None:
    """Return the name that the list has for an address: reversed, by octets or hexadecimal digits; None for no address.

    RFC 5782 sections 2.1 and 2.4.
    """
    found = unpack_ip(address)
    if found is None:
        return None
    return found.reverse_pointer.rpartition(".")[0].rpartition(".")[0].encode("ascii") + b"." + one.zone


def is_hit(one: DnsList, answer: str) -> bool:
    """Return whether an answer means that the address is listed."""
    return not is_refusal(answer) and any(_matches(answer, pattern) for pattern in one.answers)


def is_refusal(answer: str) -> bool:
    """Return whether an answer means that the list does not answer this server."""
    return _matches(answer, _REFUSED)


def listing_text(one: DnsList, address: str, answer: str) -> bytes:
    """Return the text for a client that is listed. It names the list and its answer."""
    text = b"Your address %s is listed by %s (%s)" % (address.encode(), one.zone, answer.encode())
    return text + b"; " + one.text.replace(_ADDRESS, address.encode()) if one.text else text


def _unpack_list(line: bytes) -> DnsList:
    zone, _, rest = line.partition(b" ")
    zone = zone.lower()
    if not _ZONE.fullmatch(zone) or len(zone) > _ZONE_MAX:
        raise FormatError(f"not the name of a zone: {quoted(zone)}")
    first, _, text = rest.strip().partition(b" ")
    answers = _ANY
    if first[:1].isdigit():
        answers = tuple([_unpack_pattern(word) for word in first.split(b",")])
    else:
        text = rest
    text = text.strip()
    if len(text) > _TEXT_MAX or not all(32 <= byte < 127 for byte in text):
        raise FormatError(f"not a text of at most {_TEXT_MAX} printable ASCII characters: {quoted(text)}")
    return DnsList(zone.rstrip(b"."), answers, text)


def _unpack_pattern(word: bytes) -> Pattern:
    match = _PATTERN.fullmatch(word)
    octets: list[tuple[int, int]] = []
    if match is not None:
        ends = match.groups()
        for least, most in zip(ends[::2], ends[1::2], strict=True):
            octets.append((int(least), int(most or least)))
    if not octets or octets[0] != (127, 127) or not all(least <= most < 256 for least, most in octets):
        raise FormatError(f"not an answer such as 127.0.0.2 or 127.0.0.2..11: {quoted(word)}")
    return tuple(octets)


def _matches(answer: str, pattern: Pattern) -> bool:
    octets = answer.split(".")
    return len(octets) == len(pattern) and all(
        least <= int(octet) <= most for octet, (least, most) in zip(octets, pattern, strict=True)
    )
