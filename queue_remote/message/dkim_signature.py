"""Makes the DKIM-Signature fields of one message (RFC 6376, RFC 8463). Takes long: it is called in a thread.

The canonicalization is relaxed/relaxed. dkimpy makes the fields; keys and body hash are ours. Every field of SIGNED
that the header has is signed, at most TIMES of one name, from the bottom. From is signed once more than it is there,
and so are the other fields that a header may have only once, if it has them: a field that is added later breaks the
signature. A field with VT, FF or NUL in its value is not signed, and no other of its name, except for From: verifiers
that are in use take VT and FF for white space, or do not, each in other places.

Canonical is the message on the wire: LF and CRLF are CRLF, every other CR is a space. In the body, runs of spaces and
tabs become one space, spaces at the end of a line and empty lines at the end are removed (section 3.4.4).
"""

import base64
import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

import dkim
from dkim.canonicalization import CanonicalizationPolicy

from queue_remote.message.dkim_keys import SigningKey
from queue_remote.message.file import CHUNK, Message, read_header

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
# The tag b= before it is made, of any length: dkimpy only needs it to start a new line.
PLACEHOLDER = b"0" * 60
POLICY = CanonicalizationPolicy.from_c_value(b"relaxed/relaxed")
_FIELD = re.compile(rb"([\x21-\x39\x3b-\x7e]+)[ \t]*:")
_AMBIGUOUS = re.compile(rb"[\0\v\f]")
_SPACES = re.compile(rb"[ \t]+")
# Empty lines are counted, and put in pieces of at most this many.
_LINES = 4096


class HeaderTooLong(Exception):
    """The header is over the limit of queue_remote.message.file, so it cannot be signed."""


def make_fields(message: Message, keys: list[SigningKey]) -> bytes:
    """Return the DKIM-Signature fields of a message, with LF line ends. Raises OSError and HeaderTooLong."""
    header, place = read_header(message)
    if place is None:
        raise HeaderTooLong
    return sign_fields(wire_fields(header, SIGNED), hash_body(message, place), keys, int(time.time()))


def hash_body(message: Message, place: int, relaxed: bool = True) -> bytes:
    """Return the SHA-256 of a message's canonical body, which begins at `place`. Raises OSError."""
    digest = hashlib.sha256()
    body = RelaxedBody(digest.update) if relaxed else SimpleBody(digest.update)
    while chunk := message.read_at(CHUNK, place):
        place += len(chunk)
        body.feed(chunk)
    body.finish()
    return digest.digest()


def sign_fields(fields: list[tuple[bytes, bytes]], body_hash: bytes, keys: list[SigningKey], now: int) -> bytes:
    """Return one DKIM-Signature field for each key, with LF line ends.

    `fields` are those of wire_fields, `body_hash` is the SHA-256 of the canonical body, `now` is in seconds since 1970.
    """
    fields = last_of_each(fields)
    names = signed_names(fields, SIGNED)
    made = []
    for key in keys:
        # The real algorithm is in the tags. With this one, gen_header calls the key's sign(digest).
        signer = dkim.DKIM(signature_algorithm=b"ed25519-sha256", linesep=b"\n")
        signer.headers = fields
        signer.hasher = hashlib.sha256
        tags = [
            (b"v", b"1"),
            (b"a", key.algorithm),
            (b"c", POLICY.to_c_value()),
            (b"d", key.domain),
            (b"q", b"dns/txt"),
            (b"s", key.selector),
            (b"t", b"%d" % now),
            (b"h", b" : ".join(names)),
            (b"bh", base64.b64encode(body_hash)),
            (b"b", PLACEHOLDER),
        ]
        value = signer.gen_header(tags, tuple(names), POLICY, b"DKIM-Signature", DigestKey(key))
        # dkimpy may leave a line of one space after a value that ends at the end of a line.
        made.append(b"DKIM-Signature: " + value.replace(b"\n \n", b"\n"))
    return b"".join(made)


def signed_names(fields: list[tuple[bytes, bytes]], wanted: Iterable[bytes]) -> list[bytes]:
    """Return the names of the tag h=, in lower case: of the wanted ones those that are there, some once more."""
    counts = Counter(name.lower() for name, _ in fields)
    for name in {name.lower() for name, value in fields if _AMBIGUOUS.search(value)} - {b"from"}:
        counts[name] = 0
    names: list[bytes] = []
    for name in wanted:
        more = name == b"from" or (name in _ONCE and counts[name] > 0)
        names += [name] * (min(counts[name], TIMES) + more)
    return names


def wire_fields(header: bytes, wanted: Container[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the wanted fields (names in lower case) in order, as (name, value), as they are on the wire.

    A line that is not a field is ignored, with its continuation lines.
    """
    found: list[tuple[bytes, bytes]] = []
    lines = header.replace(b"\r\n", b"\n").replace(b"\r", b" ").rstrip(b"\n").split(b"\n")
    name = b""
    value: list[bytes] = []
    for line in [*lines, b""]:
        if name and line[:1] in (b" ", b"\t") and line:
            value.append(line)
            continue
        if name:
            found.append((name, b"".join([part + b"\r\n" for part in value])))
        match = _FIELD.match(line)
        name = match[1] if match is not None and match[1].lower() in wanted else b""
        value = [line[match.end() :]] if match is not None else []
    return found


class RelaxedBody:
    """Canonicalizes a stored body: `feed` takes its bytes, `finish` ends it, `put` gets the canonical pieces."""

    __slots__ = ("_begun", "_ends", "_held", "_put")

    def __init__(self, put: Callable[[bytes], object]) -> None:
        self._put = put
        # A space or CR at the end of a chunk, whose meaning depends on the next chunk.
        self._held = b""
        # Line ends that count only if text follows them.
        self._ends = 0
        self._begun = False

    def feed(self, chunk: bytes) -> None:
        data = self._held + chunk if self._held else chunk
        self._held = b""
        if data.endswith(b"\r"):
            data = data[:-1]
            self._held = b"\r"
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b" ")
        data = self._squeeze(data)
        lines = data.rstrip(b"\n")
        if lines:
            self._put_ends()
            self._put(lines.replace(b"\n", b"\r\n"))
            self._begun = True
        self._ends += len(data) - len(lines)

    def finish(self) -> None:
        """End the last line with CRLF, as on the wire; a body of empty lines is empty."""
        if self._begun:
            self._put(b"\r\n")

    def _squeeze(self, data: bytes) -> bytes:
        data = _SPACES.sub(b" ", data).replace(b" \n", b"\n")
        if data.endswith(b" "):
            data = data[:-1]
            self._held = b" " + self._held
        return data

    def _put_ends(self) -> None:
        while self._ends > 0:
            self._put(b"\r\n" * min(self._ends, _LINES))
            self._ends -= _LINES
        self._ends = 0


class SimpleBody(RelaxedBody):
    """The canonical form `simple` (section 3.4.3): only empty lines at the end are removed, and the last line ends."""

    __slots__ = ()

    def finish(self) -> None:
        self._put(b"\r\n")

    def _squeeze(self, data: bytes) -> bytes:
        return data


class _Signed(NamedTuple):
    signature: bytes


class DigestKey:
    """A key with the interface of dkimpy's Ed25519 keys: gen_header passes it the digest, for RSA too."""

    def __init__(self, key: SigningKey) -> None:
        self._key = key

    def sign(self, digest: bytes) -> _Signed:
        return _Signed(self._key.sign(digest))


def last_of_each(fields: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the fields that can be signed: a header may have tens of thousands, and each costs time for each key."""
    counts: Counter[bytes] = Counter()
    found = []
    for field in reversed(fields):
        name = field[0].lower()
        counts[name] += 1
        # One more than is signed shows that there are more.
        if counts[name] <= TIMES + 1:
            found.append(field)
    return found[::-1]
