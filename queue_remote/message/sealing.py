"""Seals forwarded messages with ARC (queue_remote.message.arc_seal): once for all deliveries, in threads.

    await sealing.seal(message, original)     puts the ARC set ahead of the message, if it was forwarded

The keys that a chain is checked with are looked up between the two steps that threads do, all at once, with a deadline.
A message is never deferred and never lost because of its seal: if one cannot be made, a warning is logged, and the
message is sent without it.

A message in another form is sealed as it is sent; its chain is checked by the original, as it is stored.
"""

import asyncio
import functools
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

from queue_base.errors import complain, reason
from queue_remote.message.arc_key import ArcKey
from queue_remote.message.file import Message, find_body
from queue_remote.message.signing import KEPT_MAX, KEPT_SECONDS, LOOKED_MAX
from queue_remote.route.router import Router
from queue_remote.route.unroutable import Unroutable

# For all keys of a chain.
LOOKUP_SECONDS = 15.0
# Strangers can cause warnings: there is one in this time.
QUIET_SECONDS = 60.0
# Bytes of all TXT records at one name.
_RECORD_MAX = 4096
# Apart from the threads that sign: chains of strangers do not keep our own signatures waiting.
_THREADS = ThreadPoolExecutor(1, "sealing")
_PROGRAM = "queue-remote"

_DELIVERED = re.compile(rb"^Delivered-To[ \t]*:", re.IGNORECASE | re.MULTILINE)
_RESULTS = re.compile(rb"^Authentication-Results[ \t]*:", re.IGNORECASE | re.MULTILINE)
_Identity = tuple[int, ...]


class Sealing:
    """Seals by one reading of control/arc; `active` is whether it names a key that can be used."""

    def __init__(self, arc: ArcKey, me: bytes, router: Router) -> None:
        self.active = arc.key is not None
        self._arc = arc
        self._ours = frozenset((me.strip().lower(), arc.authserv))
        self._router = router
        self._quiet_until = 0.0
        self._unsaid = 0
        self._made: dict[tuple[_Identity, _Identity], tuple[float, asyncio.Task[bytes]]] = {}

    def needed(self, stored: bytes) -> bool:
        """Return whether a small message may have to be sealed."""
        head = stored[: find_body(stored)]
        return _DELIVERED.search(head) is not None and _RESULTS.search(head) is not None

    async def seal(self, message: Message, original: Message) -> int:
        """Put the set ahead of a message that was not read yet, if it is to be sealed; return its size on the wire."""
        try:
            # Its sending needs this read too.
            head = message.first() if message is original else original.read_at(LOOKED_MAX, 0)
            if original.size <= LOOKED_MAX and not self.needed(head):
                return 0
            fields = await self._fields(message, original)
        except OSError as error:
            self._warn(reason(error))
            return 0
        message.put_ahead(fields)
        return len(fields) + fields.count(b"\n")

    async def _fields(self, message: Message, original: Message) -> bytes:
        """Return the set: from the cache, from a task that is making it, or a new one. Raises OSError."""
        now = time.monotonic()
        name = message.identity(), original.identity()
        found = self._made.pop(name, None)
        if found is None or found[0] < now - KEPT_SECONDS:
            # The task goes on if its delivery ends and closes the message.
            copy = Message(os.dup(message.fileno()))
            try:
                stored = copy if message is original else Message(os.dup(original.fileno()))
            except OSError:
                copy.close()
                raise
            found = now, asyncio.get_running_loop().create_task(self._make(copy, stored))
        self._made[name] = found
        while len(self._made) > KEPT_MAX:
            del self._made[next(iter(self._made))]
        return await asyncio.shield(found[1])

    async def _make(self, message: Message, original: Message) -> bytes:
        """Return the set, empty if there is none. The messages are closed."""
        try:
            return await self._make_set(message, original)
        except Exception as error:
            # Whatever is the matter with a message of a stranger, it is sent.
            self._warn(str(error) or type(error).__name__)
            return b""
        finally:
            message.close()
            if original is not message:
                original.close()

    async def _make_set(self, message: Message, original: Message) -> bytes:
        # It takes 200 ms to load, and is not needed if no mail is sealed.
        from queue_remote.message.arc_seal import make_seal, plan_seal

        key, authserv = self._arc.key, self._arc.authserv
        assert key is not None
        loop = asyncio.get_running_loop()
        plan = await loop.run_in_executor(_THREADS, plan_seal, original, self._ours, key, authserv)
        if plan is None:
            return b""
        records: dict[bytes, bytes] = {}
        if plan.names:
            try:
                async with asyncio.timeout(LOOKUP_SECONDS):
                    records = dict(zip(plan.names, await asyncio.gather(*map(self._look_up, plan.names)), strict=True))
            except TimeoutError as error:
                raise TimeoutError("no answer in time about the keys of its ARC chain") from error
        make = functools.partial(make_seal, plan, message, original, records, key, authserv)
        return await loop.run_in_executor(_THREADS, make)

    async def _look_up(self, name: bytes) -> bytes:
        """Return the TXT record at a name, empty if there is none. Raises LookupError if that cannot be found out."""
        try:
            answer = await self._router.resolver().ask(name, "TXT")
        except Unroutable as error:
            shown = error.verdict[1].decode("utf-8", "replace")
            raise LookupError(f"unable to look up a key of its ARC chain: {shown}") from error
        record = b"".join(answer.records[0].strings) if answer.records else b""
        return record if len(record) <= _RECORD_MAX else b""

    def _warn(self, why: str) -> None:
        """Log why a message has no seal; what follows within a minute is only counted."""
        now = time.monotonic()
        if now < self._quiet_until:
            self._unsaid += 1
            return
        text = "".join([each if each.isprintable() else "?" for each in why[:500]])
        more = f" (as were {self._unsaid} more)" if self._unsaid else ""
        complain(_PROGRAM, f"warning: unable to seal a forwarded message: {text}; it is sent without a seal{more}")
        self._quiet_until, self._unsaid = now + QUIET_SECONDS, 0
