"""control/arc: the private key that seals forwarded mail (RFC 8617), and whose Authentication-Results are sealed.

    example.org:selector:keyfile                   the seal has d=example.org; results are those of `me`
    example.org:selector:keyfile mx.example.org    results are those of authserv-id mx.example.org

There is one line. A keyfile without a leading slash is in control/; it has a key of RSA, which is the only algorithm of
ARC. If the key cannot be used, mail is sent without a seal.
"""

import os
import re
from typing import NamedTuple

from queue_base.control import read_parsed
from queue_base.home import Home
from queue_remote.message.dkim_keys import BadKey, KeyLine, SigningKey, read_key, unpack_key
from queue_wire.control.lines import numbered_lines
from queue_wire.format_error import FormatError, InLine, quoted

_AUTHSERV = re.compile(rb"[A-Za-z0-9_.@+-]+")


class ArcLine(NamedTuple):
    """The line: the key, and the authserv-id in lower case, empty if it is `me`."""

    key: KeyLine
    authserv: bytes


class ArcKey(NamedTuple):
    """The key of control/arc, None if there is none or `fault` says why it is no good. `files` are the key's path."""

    key: SigningKey | None
    authserv: bytes
    fault: str | None
    files: list[str]


def read_arc_key(home: Home, me: bytes) -> ArcKey:
    """Read control/arc and its key. Raises Temporary if control/arc cannot be read or parsed."""
    line = read_parsed(home, "arc", unpack_arc)
    if line is None:
        return ArcKey(None, b"", None, [])
    authserv = line.authserv or me.strip().lower()
    path = os.path.join(home.control, os.fsdecode(line.key.path))
    try:
        key = read_key(home, path, line.key)
        if key.algorithm != b"rsa-sha256":
            raise BadKey("it is not RSA, which ARC needs")
    except BadKey as error:
        return ArcKey(None, authserv, f"{path}: {error}", [path])
    return ArcKey(key, authserv, None, [path])


def unpack_arc(data: bytes) -> ArcLine | None:
    """Return the line, None if there is none. Raises LineError."""
    found: ArcLine | None = None
    for number, line in numbered_lines(data):
        with InLine(number):
            if found is not None:
                raise FormatError("a second line: one key seals all mail")
            first, *others = line.split() or [b""]
            if len(others) > 1 or not all(map(_AUTHSERV.fullmatch, others)):
                raise FormatError(f"not domain:selector:keyfile authserv-id: {quoted(line)}")
            name, key = unpack_key(first)
            if name.startswith(b"."):
                raise FormatError(f"not a domain: {quoted(name)}")
            found = ArcLine(key, others[0].lower() if others else b"")
    return found
