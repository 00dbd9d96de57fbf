"""The duplicate filter of forwards: a message that comes through many forwards is sent to each address once.

A Delivered-To line ends a circle, and no more: of twelve addresses that forward to all twelve, a message takes every
way through them, which are hundreds of millions. So from the forward number FILTERED_FROM of a message on, an address
that such a forward of the same message has had is left out, as Postfix does where it expands aliases. Lists in lists,
which are common, are not that deep.

Two messages are the same if they were before they were forwarded here: below the lines that each forward puts before
them, the first of which is the queue's Received: line with a process and a second.
"""

import os
import re
from hashlib import blake2b

FILTERED_FROM = 3
# Addresses that are remembered, of all messages together. The message that was forwarded last is the last one to go.
ADDRESSES_MAX = 200_000
# What each forward puts before a message (queue_base.queue.writer, queue_local.headers).
_FORWARDED = re.compile(rb"Received: \(qmail \d+ invoked by uid \d+\); [^\n]*\nDelivered-To: [^\n]*\n")
# Bytes of the beginning in which these lines are looked for: a message with more of them has too many hops.
_BEGINNING = 1 << 17
_CHUNK = 1 << 18
_DIGEST_BYTES = 16


class DuplicateFilter:
    """Which addresses have had which messages, for as long as there is room."""

    def __init__(self) -> None:
        # By the digest of the message; the last one was used last.
        self._sent: dict[bytes, set[bytes]] = {}
        self._count = 0

    def left(self, digest: bytes, recipients: list[bytes]) -> list[bytes]:
        """Return the recipients that have not had the message."""
        sent = self._sent.pop(digest, None)
        if sent is None:
            return recipients
        self._sent[digest] = sent
        return [recipient for recipient in recipients if _key(recipient) not in sent]

    def add(self, digest: bytes, recipients: list[bytes]) -> None:
        """Note that these recipients have the message."""
        sent = self._sent.pop(digest, set())
        self._sent[digest] = sent
        before = len(sent)
        sent.update([_key(recipient) for recipient in recipients[: ADDRESSES_MAX - before]])
        self._count += len(sent) - before
        while self._count > ADDRESSES_MAX:
            self._count -= len(self._sent.pop(next(iter(self._sent))))

    def remove(self, digest: bytes, recipients: list[bytes]) -> None:
        """Note that these recipients, which were added, have not got it after all."""
        sent = self._sent.get(digest, set())
        before = len(sent)
        sent.difference_update([_key(recipient) for recipient in recipients])
        self._count -= before - len(sent)


def _key(recipient: bytes) -> bytes:
    return blake2b(recipient, digest_size=_DIGEST_BYTES).digest()


def filtered_digest(message: int) -> bytes | None:
    """Return the digest of an open message if its next forward is filtered, else None. Raises OSError."""
    beginning = os.pread(message, _BEGINNING, 0)
    place = forwards = 0
    while line := _FORWARDED.match(beginning, place):
        place, forwards = line.end(), forwards + 1
    if forwards < FILTERED_FROM - 1:
        return None
    digest = blake2b(digest_size=_DIGEST_BYTES)
    while data := os.pread(message, _CHUNK, place):
        digest.update(data)
        place += len(data)
    return digest.digest()
