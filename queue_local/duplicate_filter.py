"""The duplicate filter of forwards: a message that comes through many forwards is sent to each address once.

A Delivered-To line ends a circle, and no more: of twelve addresses that forward to all twelve, a message takes every
way through them, which are hundreds of millions. So from the forward number FILTERED_FROM of a message on, an address
that has had the same message by another way is left out, as Postfix does where it expands aliases. Lists in lists,
which are common, are not that deep.

Two messages are taken for the same if they were before they were forwarded here: below the lines that each forward puts
before them, the first of which is the queue's Received: line with a process and a second. Two equal messages that came
in one second by one process are therefore one. None of them is lost: a way is the Delivered-To lines of all forwards,
which a message takes once, so what comes by the same way as before is another message, and is sent.
"""

import os
import re
from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

FILTERED_FROM = 3
# Addresses that are remembered, of all messages together. The message that was forwarded last is the last one to go.
ADDRESSES_MAX = 200_000
# What each forward puts before a message (queue_base.queue.writer, queue_local.headers).
_FORWARDED = re.compile(rb"Received: \(qmail \d+ invoked by uid \d+\); [^\n]*\n(Delivered-To: [^\n]*\n)")
# Bytes of the beginning in which these lines are looked for: a message with more of them has too many hops.
_BEGINNING = 1 << 17
_CHUNK = 1 << 18
_DIGEST_BYTES = 16


class Passage(NamedTuple):
    """One forward of a message that is filtered: digests of the message and of the way that it has come."""

    message: bytes
    way: bytes


class DuplicateFilter:
    """Which addresses have had which messages, and by which way, for as long as there is room."""

    def __init__(self) -> None:
        # By the digest of the message, the way of each address; the message that was used last is the last one.
        self._sent: OrderedDict[bytes, dict[bytes, bytes]] = OrderedDict()
        self._count = 0

    def left(self, passage: Passage, recipients: list[bytes]) -> list[bytes]:
        """Return the recipients that have not had the message by another way, each once."""
        recipients = list(dict.fromkeys(recipients))
        sent = self._sent.pop(passage.message, None)
        if sent is None:
            return recipients
        self._sent[passage.message] = sent
        return [recipient for recipient in recipients if sent.get(_key(recipient), passage.way) == passage.way]

    def add(self, passage: Passage, recipients: list[bytes]) -> None:
        """Note that these recipients have the message."""
        sent = self._sent.pop(passage.message, {})
        self._sent[passage.message] = sent
        before = len(sent)
        sent.update([(_key(recipient), passage.way) for recipient in recipients[: ADDRESSES_MAX - before]])
        self._count += len(sent) - before
        while self._count > ADDRESSES_MAX:
            self._count -= len(self._sent.popitem(last=False)[1])

    def remove(self, passage: Passage, recipients: list[bytes]) -> None:
        """Note that these recipients, which were added, have not got it after all."""
        sent = self._sent.get(passage.message, {})
        for recipient in recipients:
            self._count -= sent.pop(_key(recipient), None) is not None


def _key(recipient: bytes) -> bytes:
    return blake2b(recipient, digest_size=_DIGEST_BYTES).digest()


def filtered_passage(message: int, head: bytes) -> Passage | None:
    """Return the passage of an open message if its next forward is filtered, else None. Raises OSError.

    `head` is the Delivered-To line that this forward puts before it.
    """
    beginning = os.pread(message, _BEGINNING, 0)
    place = forwards = 0
    way = blake2b(head, digest_size=_DIGEST_BYTES)
    while line := _FORWARDED.match(beginning, place):
        way.update(line[1])
        place, forwards = line.end(), forwards + 1
    if forwards < FILTERED_FROM - 1:
        return None
    digest = blake2b(digest_size=_DIGEST_BYTES)
    while data := os.pread(message, _CHUNK, place):
        digest.update(data)
        place += len(data)
    return Passage(digest.digest(), way.digest())
