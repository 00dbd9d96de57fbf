"""control/tlspolicy: the TLS level of each nexthop.

    nexthop:level [sts=off|test|enforce] [dane=off|test|enforce] [ca=FILE] [name=HOST]

    none      in clear
    may       TLS if it is offered and works, with any certificate; in clear otherwise
    encrypt   TLS or a deferral, with any certificate
    verify    TLS or a deferral, with a certificate for the host's name from a trusted CA
    implicit  the same, under TLS from the first byte

`sts` is MTA-STS (RFC 8461), `dane` is DANE (RFC 7672). `ca` names a file of CA certificates that replaces the system's,
`name` the name in the certificate if it is not the host's. Keys are those of queue_wire.control.hostmap. Unlike in
smtproutes, a line without a colon is an error, because to ignore it would weaken the security that it asks for.
"""

import enum
from typing import NamedTuple, TypeVar

from queue_wire.address import ascii_domain
from queue_wire.control.hostmap import unpack_hosts
from queue_wire.control.lines import numbered_lines
from queue_wire.format_error import FormatError, LineError, quoted

Choice = TypeVar("Choice", bound=enum.Enum)


class Level(enum.Enum):
    NONE = b"none"
    MAY = b"may"
    ENCRYPT = b"encrypt"
    VERIFY = b"verify"
    IMPLICIT = b"implicit"


class Use(enum.Enum):
    """OFF: not used. TEST: failures are only logged. ENFORCE: a host that fails gets no mail."""

    OFF = b"off"
    TEST = b"test"
    ENFORCE = b"enforce"


class TlsPolicy(NamedTuple):
    """One line; `ca` and `name` are empty if the line has none, `text` is the line's value as written."""

    level: Level = Level.MAY
    sts: Use = Use.OFF
    dane: Use = Use.OFF
    ca: bytes = b""
    name: bytes = b""
    text: bytes = b"may"


# The options of each level. There is no sts= with implicit, and no ca= or name= with sts=: RFC 8461 determines those.
_OPTIONS = {
    Level.NONE: set[bytes](),
    Level.MAY: {b"sts", b"dane"},
    Level.ENCRYPT: {b"sts", b"dane"},
    Level.VERIFY: {b"sts", b"dane", b"ca", b"name"},
    Level.IMPLICIT: {b"dane", b"ca", b"name"},
}


def unpack_policies(data: bytes) -> dict[bytes, TlsPolicy]:
    """Return {key: policy} for the lines of the file. Raises LineError."""
    entries: dict[bytes, tuple[int, bytes]] = {}
    for number, line in numbered_lines(data):
        # The colons of `[IPv6:2001:db8::1]` are its own.
        literal, bracket, rest = line.partition(b"]") if line.startswith(b"[") else (b"", b"", line)
        key, colon, value = rest.partition(b":")
        if not colon:
            raise LineError(number, f"not nexthop:level: {quoted(line)}")
        entries[literal + bracket + key] = number, value
    return unpack_hosts(entries, unpack_policy)


def unpack_policy(text: bytes) -> TlsPolicy:
    """Return the policy in the part of a line after the key. Raises FormatError."""
    word, *options = text.split() or [b""]
    policy = TlsPolicy(_word(Level, word, "level"), text=b" ".join([word, *options]))
    seen: set[bytes] = set()
    for option in options:
        key, _, value = option.partition(b"=")
        if key not in _OPTIONS[Level.VERIFY] or key in seen or not value:
            raise FormatError(f"not an option of tlspolicy, or twice, or without a value: {quoted(option)}")
        if key not in _OPTIONS[policy.level]:
            raise FormatError(f"{key.decode()}= does not go with {word.decode()}: {quoted(text)}")
        seen.add(key)
        if key == b"sts":
            policy = policy._replace(sts=_word(Use, value, "sts"))
        elif key == b"dane":
            policy = policy._replace(dane=_word(Use, value, "dane"))
        elif key == b"ca":
            policy = policy._replace(ca=value)
        else:
            policy = policy._replace(name=_name(value))
    if policy.sts is not Use.OFF and (policy.ca or policy.name):
        raise FormatError(f"ca= and name= do not go with sts=, which says what the certificate must be: {quoted(text)}")
    return policy


def _word(choices: type[Choice], word: bytes, what: str) -> Choice:
    try:
        return choices(word)
    except ValueError as error:
        known = ", ".join(choice.value.decode() for choice in choices)
        raise FormatError(f"not one of {known} for {what}: {quoted(word)}") from error


def _name(value: bytes) -> bytes:
    name = ascii_domain(value).lower().removesuffix(b".")
    if not name or not frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.:").issuperset(name) or name[:1] == b".":
        raise FormatError(f"not a host name: {quoted(value)}")
    return name
