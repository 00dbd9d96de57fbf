"""control/dkim: which key signs mail of which domain (RFC 6376).

    example.org:selector:keyfile        mail whose author is at example.org, with d=example.org
    .example.org:selector:keyfile       at any name below it, with d=example.org, too

The most particular key counts, as in control.hostmap. Several lines with the same domain are several signatures:
one for rsa-sha256 and one for ed25519-sha256, as RFC 8463 advises. A keyfile without a leading slash is in control/.
"""

import re
from typing import NamedTuple

from queue_wire.control.hostmap import host_key
from queue_wire.control.lines import numbered_lines
from queue_wire.format_error import FormatError, InLine, quoted

_DOMAIN = re.compile(rb"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_SELECTOR = re.compile(rb"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


class KeyLine(NamedTuple):
    """What a signature says (d= and s=), and the path of the private key."""

    domain: bytes
    selector: bytes
    path: bytes


def unpack_keys(data: bytes) -> dict[bytes, list[KeyLine]]:
    """Return {domain, perhaps with a leading dot: its lines}. Raises LineError."""
    found: dict[bytes, list[KeyLine]] = {}
    for number, line in numbered_lines(data):
        with InLine(number):
            key, made = _unpack_key(line)
            found.setdefault(key, []).append(made)
    return found


def _unpack_key(line: bytes) -> tuple[bytes, KeyLine]:
    parts = line.split(b":", 2)
    if len(parts) != 3 or not parts[2].strip():
        raise FormatError(f"not domain:selector:keyfile: {quoted(line)}")
    key = host_key(parts[0])
    domain = key.removeprefix(b".")
    selector = parts[1].strip()
    if not _DOMAIN.fullmatch(domain):
        raise FormatError(f"not a domain: {quoted(parts[0])}")
    if not _SELECTOR.fullmatch(selector):
        raise FormatError(f"not a selector: {quoted(parts[1])}")
    return key, KeyLine(domain, selector, parts[2].strip())
