"""Signs messages with DKIM: chooses the keys, and makes each signature once for all deliveries, in a thread.

    await signing.sign(message, sender)     puts the signature fields ahead of the message, if its domain has keys

The domain of the author decides, in the From field, or of the envelope sender if there is none. It is looked for once
for all deliveries of a message, in a thread unless the message is small. A few threads make signatures, in chunks, so
that the size of a message does not matter. The fields are kept for a while, because jobs for the message's other
destinations follow soon and get the same fields. The stored message is not changed.

A message in another form, such as one that was made 7-bit for a server, is signed as it is sent: call `sign` for it.
"""

import asyncio
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

from queue_base.errors import reason
from queue_remote.message.dkim_keys import BadKey, Keyring, SigningKey
from queue_remote.message.file import HEADER_MAX, Message, find_body, read_header
from queue_remote.report_text import Verdict, header_too_long, no_message, not_signed
from queue_wire.address import domain_of
from queue_wire.pipes.report import PERMANENT, TEMPORARY

# Up to this size the event loop reads the header itself, which costs less than a thread.
LOOKED_MAX = 8192
# Signatures in the cache, and the seconds that they stay there: they contain the time of signing.
KEPT_MAX = 1000
KEPT_SECONDS = 300.0
# Bytes of a From field that are looked at: the first mailbox is within them, or the message has no author.
AUTHOR_MAX = 4096
# cryptography and hashlib release the GIL; more threads than processors would not help.
_THREADS = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "signing")

_FROM = re.compile(rb"(?:\A|\n)From[ \t]*:", re.IGNORECASE)
_FIELD_END = re.compile(rb"\n(?![ \t])")
_COMMENT_PARTS = re.compile(rb'\\.|[()"]|[^\\()"]+', re.DOTALL)
_Identity = tuple[int, ...]


class Unsigned(Exception):
    """A message that must be signed cannot be; `verdict` is that on the message."""

    def __init__(self, letter: bytes, text: bytes) -> None:
        super().__init__(text)
        self.verdict: Verdict = (letter, text)


class Signing:
    """Signs by one reading of control/dkim; `active` is whether it names any key."""

    def __init__(self, keyring: Keyring) -> None:
        self.active = bool(keyring)
        self._keyring = keyring
        self._authors: dict[_Identity, asyncio.Future[bytes]] = {}
        self._made: dict[tuple[_Identity, int], tuple[float, asyncio.Future[bytes]]] = {}

    async def sign(self, message: Message, sender: bytes) -> int:
        """Put the signatures ahead of a message that was not read yet; return their size on the wire.

        Raises Unsigned.
        """
        try:
            author = await self._find_author(message)
            keys = self._keyring.find(author or domain_of(sender))
            if not keys:
                return 0
            fields = await self._fields(message, keys)
        except BadKey as error:
            raise Unsigned(TEMPORARY, not_signed(str(error))) from error
        except OSError as error:
            raise Unsigned(TEMPORARY, no_message(reason(error))) from error
        message.put_ahead(fields)
        return len(fields) + fields.count(b"\n")

    def needed(self, stored: bytes, sender: bytes) -> bool:
        """Return whether a small message is to be signed."""
        try:
            author = find_author(stored[: find_body(stored)])
            return bool(self._keyring.find(author or domain_of(sender)))
        except BadKey:
            return True

    async def _find_author(self, message: Message) -> bytes:
        """Return the domain of a message's author, empty if it has none. Raises OSError."""
        if message.size > LOOKED_MAX:
            return await self._find_in_thread(message)
        # Its sending needs this read too.
        head = message.first()
        return find_author(head[: find_body(head)])

    async def _find_in_thread(self, message: Message) -> bytes:
        """Return the domain of the author; concurrent deliveries share the search. Raises OSError."""
        name = message.identity()
        found = self._authors.pop(name, None)
        if found is None or _has_failed(found):
            found = asyncio.get_running_loop().run_in_executor(_THREADS, _read_author, message)
        self._authors[name] = found
        while len(self._authors) > KEPT_MAX:
            del self._authors[next(iter(self._authors))]
        return await asyncio.shield(found)

    async def _fields(self, message: Message, keys: list[SigningKey]) -> bytes:
        """Return the signatures: from the cache, from a thread that is making them, or new ones."""
        now = time.monotonic()
        # The id is unique: the keyring's lists live as long as this object.
        name = message.identity(), id(keys)
        found = self._made.pop(name, None)
        if found is None or found[0] < now - KEPT_SECONDS or _has_failed(found[1]):
            making = asyncio.get_running_loop().run_in_executor(_THREADS, _make_fields, message, keys)
            found = now, making
        self._made[name] = found
        while len(self._made) > KEPT_MAX:
            del self._made[next(iter(self._made))]
        return await asyncio.shield(found[1])


def _make_fields(message: Message, keys: list[SigningKey]) -> bytes:
    """Return the signatures of a message. Raises OSError and Unsigned."""
    # It takes 200 ms to load, and is not needed if no mail is signed.
    from queue_remote.message.dkim_signature import HeaderTooLong, make_fields

    try:
        return make_fields(message, keys)
    except HeaderTooLong as error:
        raise Unsigned(PERMANENT, header_too_long(HEADER_MAX)) from error


def _read_author(message: Message) -> bytes:
    """Return the domain of the author in a message's header. Raises OSError."""
    return find_author(read_header(message)[0])


def find_author(header: bytes) -> bytes:
    """Return the domain of a header's author; empty if the first AUTHOR_MAX bytes of its From field have none."""
    found = _FROM.search(header)
    if found is None:
        return b""
    value = header[found.end() : found.end() + AUTHOR_MAX]
    end = _FIELD_END.search(value)
    return author_domain(value if end is None else value[: end.start()], end is None and len(value) == AUTHOR_MAX)


def author_domain(value: bytes, cut: bool = False) -> bytes:
    """Return the domain of the first mailbox of a From field (RFC 5322 section 3.6.2); empty if there is none.

    If the field was `cut`, the mailbox counts only if its end is there.
    """
    text = plain_text(value)
    opening = text.find(b"<")
    if opening >= 0:
        address, end, _ = text[opening + 1 :].partition(b">")
        ended = bool(end)
    else:
        address, *others = re.split(rb"[,;]", text.rpartition(b":")[2], maxsplit=1)
        ended = bool(others)
    if cut and not ended:
        return b""
    return b"".join(address.rpartition(b"@")[2].split()).lower() if b"@" in address else b""


def plain_text(value: bytes) -> bytes:
    """Return a value without comments, with `x` in place of each quoted string."""
    kept: list[bytes] = []
    depth = 0
    quoted = False
    for match in _COMMENT_PARTS.finditer(value):
        part = match[0]
        if quoted:
            quoted = part != b'"'
        elif part == b"(":
            depth += 1
        elif part == b")":
            depth = max(0, depth - 1)
        elif not depth:
            quoted = part == b'"'
            kept.append(b"x" if quoted else part)
    return b"".join(kept)


def _has_failed(future: asyncio.Future[bytes]) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)
