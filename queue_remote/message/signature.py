"""The DKIM-Signature fields of one message (RFC 6376, RFC 8463): dkimpy's canonicalization, our keys and body hash.

relaxed/relaxed. Every field of SIGNED that is there is signed, at most TIMES of a kind, from the bottom. From is
signed once more than it is there, and so are the other fields that may be there only once, if they are there at all:
one that somebody adds breaks the signature.
"""

import base64
import hashlib
from collections import Counter
from typing import NamedTuple

import dkim
from dkim.canonicalization import CanonicalizationPolicy

from queue_remote.message.dkim_keys import Key

_ONCE = (
    *(b"from", b"sender", b"reply-to", b"subject", b"date", b"message-id", b"to", b"cc", b"in-reply-to"),
    *(b"references", b"mime-version", b"content-type", b"content-transfer-encoding"),
)
SIGNED = (
    *_ONCE,
    *(b"content-id", b"content-description", b"resent-date", b"resent-from", b"resent-sender", b"resent-to"),
    *(b"resent-cc", b"resent-message-id", b"list-id", b"list-help", b"list-unsubscribe", b"list-unsubscribe-post"),
    *(b"list-subscribe", b"list-post", b"list-owner", b"list-archive"),
)
TIMES = 10
_POLICY = CanonicalizationPolicy.from_c_value(b"relaxed/relaxed")


class _Signed(NamedTuple):
    signature: bytes


class _Pen:
    """A key as dkimpy's gen_header uses those of Ed25519: it is given the digest, whatever the algorithm."""

    def __init__(self, key: Key) -> None:
        self._key = key

    def sign(self, digest: bytes) -> _Signed:
        return _Signed(self._key.sign(digest))


def _last_of_each(fields: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the fields that can be signed: a header may have tens of thousands, and each is worked on for each key."""
    counts: Counter[bytes] = Counter()
    found = []
    for field in reversed(fields):
        name = field[0].lower()
        counts[name] += 1
        # One more than is signed says that there are more.
        if counts[name] <= TIMES + 1:
            found.append(field)
    return found[::-1]


def sign_fields(fields: list[tuple[bytes, bytes]], body_hash: bytes, keys: list[Key], now: int) -> bytes:
    """Return one DKIM-Signature field a key, with LF line ends.

    `fields` are queue_remote.message.header's, `body_hash` the SHA-256 of the canonical body, `now` seconds since 1970.
    """
    fields = _last_of_each(fields)
    counts = Counter(name.lower() for name, _ in fields)
    names: list[bytes] = []
    for name in SIGNED:
        more = name == b"from" or (name in _ONCE and counts[name] > 0)
        names += [name] * (min(counts[name], TIMES) + more)
    made = []
    for key in keys:
        # The algorithm is in the tags; what is said here is how gen_header calls the key.
        signer = dkim.DKIM(signature_algorithm=b"ed25519-sha256", linesep=b"\n")
        signer.headers = fields
        signer.hasher = hashlib.sha256
        tags = [
            (b"v", b"1"),
            (b"a", key.algorithm),
            (b"c", _POLICY.to_c_value()),
            (b"d", key.domain),
            (b"q", b"dns/txt"),
            (b"s", key.selector),
            (b"t", b"%d" % now),
            (b"h", b" : ".join(names)),
            (b"bh", base64.b64encode(body_hash)),
            # As long as it will be or not does not matter; the line that it begins does.
            (b"b", b"0" * 60),
        ]
        value = signer.gen_header(tags, tuple(names), _POLICY, b"DKIM-Signature", _Pen(key))
        # dkimpy may leave a line of one space behind a value that ends where a line does.
        made.append(b"DKIM-Signature: " + value.replace(b"\n \n", b"\n"))
    return b"".join(made)
