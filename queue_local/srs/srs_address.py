"""Addresses of the Sender Rewriting Scheme, as Shevek's specification and Mail::SRS have them. Pure.

    SRS0=HHHH=TT=example.net=joe@forwarder         of joe@example.net
    SRS1=HHHH=first.example==HHHH=TT=example.net=joe@forwarder     of SRS0=HHHH=TT=example.net=joe@first.example

HHHH is base64 of a keyed hash (HMAC-SHA1) of what follows, in lower case, so that nobody else can make such an address.
TT is the day in base 32: an address is refused after DAYS_MAX days. SRS1 is for a sender that another host has
rewritten already: a bounce goes back to that host, which knows whether it is good, and the address does not grow.

The host on the way may change the case of the local part. So hashes are compared without regard to case.
"""

import base64
import hmac
import re
from collections.abc import Sequence

from queue_wire.address import split_address
from queue_wire.format_error import FormatError

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
    local, host = split_address(recipient)
    return bool(domain) and host.lower() == domain and _TAG.match(local) is not None


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
    day = _day(now)
    parts = [_hash(secret, day, host, local), day, host, local]
    return b"SRS0=%s@%s" % (b"=".join(parts), domain)


def _pack_again(first: bytes, rest: bytes, domain: bytes, secret: bytes) -> bytes:
    """Return an address of SRS1; `rest` is what follows SRS0 in the local part at the `first` host."""
    return b"SRS1=%s@%s" % (b"=".join([_hash(secret, first, rest), first, rest]), domain)


def restore_sender(local: bytes, secrets: Sequence[bytes], now: float) -> bytes:
    """Return the address that a bounce to a local part of SRS goes to.

    Each of `secrets` is accepted. Raises BadSrs.
    """
    tag = _TAG.match(local)
    if tag is None:
        raise BadSrs("it is no address of SRS")
    if tag[1] == b"1":
        given, first, rest = _divide(local[tag.end() :], 3)
        _check(given, secrets, first, rest)
        return b"SRS0%s@%s" % (rest, first)
    given, day, host, user = _divide(local[tag.end() :], 4)
    _check(given, secrets, day, host, user)
    _check_day(day, now)
    return b"%s@%s" % (user, host)


def _divide(text: bytes, count: int) -> list[bytes]:
    """Return the parts of a local part behind its tag; the last one may have more `=`. Raises BadSrs."""
    parts = text.split(b"=", count - 1)
    if len(parts) < count or not all(parts):
        raise BadSrs("it is no whole address of SRS")
    return parts


def _hash(secret: bytes, *parts: bytes) -> bytes:
    """Return the whole hash in base64, as Mail::SRS makes it."""
    digest = hmac.new(secret, b"".join(parts).lower(), "sha1").digest()
    return base64.b64encode(digest)[:_HASH_SIZE]


def _check(given: bytes, secrets: Sequence[bytes], *parts: bytes) -> None:
    """Raise BadSrs unless a hash is that of the parts with one of the secrets."""
    good = [hmac.compare_digest(given.lower(), _hash(secret, *parts).lower()) for secret in secrets]
    if not any(good):
        raise BadSrs("its hash is wrong: it was not made here, or with a secret that is gone")


def _day(now: float) -> bytes:
    number = int(now // _DAY_SECONDS) % _CYCLE
    return bytes((_DIGITS[number >> 5], _DIGITS[number & 31]))


def _check_day(day: bytes, now: float) -> None:
    """Raise BadSrs unless a day is at most DAYS_MAX ago, or tomorrow: clocks differ."""
    places = [_DIGITS.find(letter) for letter in day.upper()]
    if len(places) != 2 or min(places) < 0:
        raise BadSrs("its day is none")
    made = places[0] * 32 + places[1]
    age = (int(now // _DAY_SECONDS) - made) % _CYCLE
    if age > DAYS_MAX and age != _CYCLE - 1:
        raise BadSrs(f"it has expired: it is older than {DAYS_MAX} days")
