"""Signs messages with DKIM: whose key, once for all destinations, and never on the event loop.

    await signing.sign(message, sender)     signature fields are now ahead of the message, if its domain has keys

The author's domain decides, that of the From field, and where that names none, the envelope sender's. It is looked for
once for all deliveries of a message, a few kB of the field at most, and by a thread where the message is not a
small one. A few threads sign, in chunks, so a message of any size takes no more memory than a
small one. What was made for a message is kept for a while, since the jobs to its other destinations come soon: they get
the same fields. The stored message never changes.

A message that came in another form, such as one that was made 7-bit for a server, is signed as it is then: give it to
`sign` again.
"""

import asyncio
import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor

from queue_base.errors import reason
from queue_remote.message.dkim_body import RelaxedBody
from queue_remote.message.dkim_keys import BadKey, Key, Keyring
from queue_remote.message.file import CHUNK, Message
from queue_remote.message.header import find_author, find_body, wire_fields
from queue_remote.report_text import Verdict, header_too_long, no_message, not_signed
from queue_wire.report import PERMANENT, TEMPORARY

# It is in memory while it is signed. Postfix cuts headers at 100 kB.
HEADER_MOST = 256 * 1024
# Of a message that the event loop looks at itself, each time: that costs less than to ask a thread.
LOOKED_MOST = 8192
# Signatures kept, and for how many seconds: the time of signing is in them.
KEPT_MOST = 1000
KEPT_SECONDS = 300.0
# The arithmetic leaves other threads room to run; more than the processors' number would only take turns.
_THREADS = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "signing")

_Identity = tuple[int, ...]


class Unsigned(Exception):
    """A message that has to be signed cannot be; it has the verdict on it."""

    def __init__(self, letter: bytes, text: bytes) -> None:
        super().__init__(text)
        self.verdict: Verdict = (letter, text)


class Signing:
    """Signs by one reading of the control files; `active` where there is anything to sign with."""

    def __init__(self, keyring: Keyring) -> None:
        self.active = bool(keyring)
        self._keyring = keyring
        self._authors: dict[_Identity, asyncio.Future[bytes]] = {}
        self._made: dict[tuple[_Identity, int], tuple[float, asyncio.Future[bytes]]] = {}

    async def sign(self, message: Message, sender: bytes) -> int:
        """Put the signatures ahead of a message that nobody has read from; return their size on the wire.

        Raises Unsigned.
        """
        try:
            author = await self._find_author(message)
            keys = self._keyring.find(author or sender.rpartition(b"@")[2].lower())
            if not keys:
                return 0
            fields = await self._fields(message, keys)
        except BadKey as error:
            raise Unsigned(TEMPORARY, not_signed(str(error))) from error
        except OSError as error:
            raise Unsigned(TEMPORARY, no_message(reason(error))) from error
        message.put_ahead(fields)
        return len(fields) + fields.count(b"\n")

    async def _find_author(self, message: Message) -> bytes:
        """Return the domain of a message's author, empty where it names none. Raises OSError."""
        if message.size > LOOKED_MOST:
            return await self._find(message)
        # This is the read that its sending needs too.
        head = message.first()
        return find_author(head[: find_body(head)])

    async def _find(self, message: Message) -> bytes:
        """Return the author, which others may be looking for. Raises OSError."""
        name = message.identity()
        found = self._authors.pop(name, None)
        if found is None or _has_failed(found):
            found = asyncio.get_running_loop().run_in_executor(_THREADS, _look, message)
        self._authors[name] = found
        while len(self._authors) > KEPT_MOST:
            del self._authors[next(iter(self._authors))]
        return await asyncio.shield(found)

    async def _fields(self, message: Message, keys: list[Key]) -> bytes:
        """Return the signatures: those that are kept, those that are in the making, or new ones."""
        now = time.monotonic()
        # The keyring's lists stay as long as this does.
        name = message.identity(), id(keys)
        found = self._made.pop(name, None)
        if found is None or found[0] < now - KEPT_SECONDS or _has_failed(found[1]):
            making = asyncio.get_running_loop().run_in_executor(_THREADS, make_fields, message, keys)
            found = now, making
        self._made[name] = found
        while len(self._made) > KEPT_MOST:
            del self._made[next(iter(self._made))]
        return await asyncio.shield(found[1])


def _look(message: Message) -> bytes:
    """Return the domain of the author that a header names. Raises OSError."""
    return find_author(read_header(message)[0])


def read_header(message: Message) -> tuple[bytes, int | None]:
    """Return the header, and where the body begins; None where the header is too long to be whole. Raises OSError."""
    data = b""
    body: int | None = None
    while body is None and len(data) <= HEADER_MOST:
        looked = len(data)
        chunk = message.look(CHUNK, looked)
        data += chunk
        body = find_body(data, looked)
        if body is None and not chunk:
            body = looked
    if body is not None and body <= HEADER_MOST:
        return data[:body], body
    return data[:HEADER_MOST], None


def make_fields(message: Message, keys: list[Key]) -> bytes:
    """Return the signatures of a message; takes its time. Raises OSError and Unsigned."""
    # They take 200 ms to load, and where no mail is signed nobody needs them.
    from queue_remote.message.signature import SIGNED, sign_fields

    header, place = read_header(message)
    if place is None:
        raise Unsigned(PERMANENT, header_too_long(HEADER_MOST))
    digest = hashlib.sha256()
    body = RelaxedBody(digest.update)
    while chunk := message.look(CHUNK, place):
        place += len(chunk)
        body.feed(chunk)
    body.finish()
    return sign_fields(wire_fields(header, SIGNED), digest.digest(), keys, int(time.time()))


def _has_failed(future: asyncio.Future[bytes]) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)
