"""Addresses of the Sender Rewriting Scheme, as Shevek's specification and Mail::SRS have them. Pure.

    SRS0=HHHH=TT=example.net=joe@forwarder         of joe@example.net
    SRS1=HHHH=first.example==HHHH=TT=example.net=joe@forwarder     of SRS0=HHHH=TT=example.net=joe@first.example

HHHH is base64 of a keyed hash (HMAC-SHA256) of what follows, in lower case, so that nobody else can make such an
address. Its text is netstrings, with the kind of the address and the day since the epoch: it is good for no other
division of the same text, nor for the other kind, nor when the two letters of a day return. TT is the day in base 32:
an address is refused after DAYS_MAX days. SRS1 is for a sender that another host has rewritten already: a bounce goes
back to that host, which knows whether it is good, and the address does not grow.

Mail::SRS, and this module before, hashed the parts one behind the other (HMAC-SHA1), so of a good address somebody else
could make one whose parts are divided elsewhere. Such hashes are good for the days of their address, so those that are
under way at an upgrade are good, and after these days there are none. The days of an SRS1 are those of the SRS0 in it.

The host on the way may change the case of the local part. So hashes are compared without regard to case.
"""

import base64
import hmac
import re
from collections.abc import Sequence

from queue_wire.address import domain_of, split_address
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import pack_netstring

DAYS_MAX = 21
_DAY_SECONDS = 86400
_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_CYCLE = len(_DIGITS) ** 2
# Characters of the hash that are made, and the least that are accepted.
_HASH_SIZE = 4
_TAG = re.compile(rb"srs([01])[=+-]", re.IGNORECASE)
# A sender's domain that may stand between two `=`.
_DOMAIN = re.compile(rb"[^=@\0-\x20\x7f]+")


class BadSrs(FormatError):
    """An address that looks like SRS and was not made by us, or too long ago."""


def is_ours(domain: bytes, recipient: bytes) -> bool:
    """Return whether an address looks like one of SRS, and is in our domain."""
    return bool(domain) and domain_of(recipient) == domain and _TAG.match(recipient) is not None


def rewrite_sender(sender: bytes, domain: bytes, secret: bytes, now: float) -> bytes:
    """Return the sender for a message that is forwarded; `domain` is the forwarder's, `now` in seconds since the epoch.

    A sender that cannot be rewritten is returned unchanged: one without a domain, or with an `=` in it.
    """
    local, host = split_address(sender)
    if not local or not _DOMAIN.fullmatch(host):
        return sender
    tag = _TAG.match(local)
    if tag is not None and tag[1] == b"0":
        return _pack_again(host, local[tag.end() - 1 :], domain, secret)
    if tag is not None:
        try:
            # Bounces need not come back through the host that made it.
            _, first, rest = _divide(local[tag.end() :], 3)
            return _pack_again(first, rest, domain, secret)
        except BadSrs:
            pass
    made = int(now // _DAY_SECONDS)
    parts = [_hash(secret, b"SRS0", b"%d" % made, host, local), _pack_day(made), host, local]
    return b"SRS0=%s@%s" % (b"=".join(parts), domain)


def _pack_again(first: bytes, rest: bytes, domain: bytes, secret: bytes) -> bytes:
    """Return an address of SRS1; `rest` is what follows SRS0 in the local part at the `first` host."""
    return b"SRS1=%s@%s" % (b"=".join([_hash(secret, b"SRS1", first, rest), first, rest]), domain)


def restore_sender(local: bytes, secrets: Sequence[bytes], now: float) -> bytes:
    """Return the address that a bounce to a local part of SRS goes to.

    Each of `secrets` is accepted. Raises BadSrs.
    """
    tag = _TAG.match(local)
    if tag is None:
        raise BadSrs("it is no address of SRS")
    today = int(now // _DAY_SECONDS)
    if tag[1] == b"1":
        given, first, rest = _divide(local[tag.end() :], 3)
        _check(given, secrets, [b"SRS1", first, rest], [first, rest] if _has_days_left(rest, today) else [])
        return b"SRS0%s@%s" % (rest, first)
    given, day, host, user = _divide(local[tag.end() :], 4)
    made = _unpack_day(day, today)
    _check(given, secrets, [b"SRS0", b"%d" % made, host, user], [day, host, user])
    if today - made > DAYS_MAX:
        raise BadSrs(f"it has expired: it is older than {DAYS_MAX} days")
    return b"%s@%s" % (user, host)


def _divide(text: bytes, count: int) -> list[bytes]:
    """Return the parts of a local part behind its tag; the last one may have more `=`. Raises BadSrs."""
    parts = text.split(b"=", count - 1)
    if len(parts) < count or not all(parts):
        raise BadSrs("it is no whole address of SRS")
    return parts


def _hash(secret: bytes, *parts: bytes) -> bytes:
    """Return the hash of a kind and parts, in base64."""
    return _sign(secret, b"".join([pack_netstring(part) for part in parts]), "sha256")


def _sign(secret: bytes, text: bytes, algorithm: str) -> bytes:
    return base64.b64encode(hmac.new(secret, text.lower(), algorithm).digest())[:_HASH_SIZE]


def _has_days_left(rest: bytes, today: int) -> bool:
    """Return whether the SRS0 in an SRS1 has not expired, as far as its form tells: another host has made it."""
    try:
        _, day, _, _ = _divide(rest[1:], 4)
        return today - _unpack_day(day, today) <= DAYS_MAX
    except BadSrs:
        return False


def _check(given: bytes, secrets: Sequence[bytes], parts: list[bytes], plain: list[bytes]) -> None:
    """Raise BadSrs unless a hash is that of a kind and parts with one of the secrets, or the old one of plain parts."""
    hashes = [_hash(secret, *parts) for secret in secrets]
    if plain:
        hashes += [_sign(secret, b"".join(plain), "sha1") for secret in secrets]
    # All of them, so that the time does not tell which one is nearly right.
    good = [hmac.compare_digest(given.lower(), each.lower()) for each in hashes]
    if not any(good):
        raise BadSrs("its hash is wrong: it was not made here, or with a secret that is gone")


def _pack_day(number: int) -> bytes:
    place = number % _CYCLE
    return bytes((_DIGITS[place >> 5], _DIGITS[place & 31]))


def _unpack_day(day: bytes, today: int) -> int:
    """Return the last day since the epoch with these letters, up to tomorrow: clocks differ. Raises BadSrs."""
    places = [_DIGITS.find(letter) for letter in day.upper()]
    if len(places) != 2 or min(places) < 0:
        raise BadSrs("its day is none")
    return today + 1 - (today + 1 - places[0] * 32 - places[1]) % _CYCLE
