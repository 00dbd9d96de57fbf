"""Destinations and channels as queue-send knows them: notes of its responses on lock/control.

A fact is packed as its numbers in decimal and then its name, separated by spaces. The name, a nexthop, has no NUL.
"""

from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted

ALIVE = b"alive"
DEAD = b"dead"
PROBED = b"probed"  # Dead, and a probe is in flight.
RELAY = b"relay"  # The totals of a relay, some of whose domains are destinations of their own.
_STATES = (ALIVE, DEAD, PROBED, RELAY)
_NONE = b"-"
_CHANNELS = (b"local", b"remote")


class DestinationFact(NamedTuple):
    """A destination. The names of the fields are the keys of `queuectl destinations --format json`.

    `in_flight` is the number of jobs in flight, of at most `window`. `queued` is the number of its messages that are
    loaded, `on_disk` that of messages that wait on the disk until it has room. `probe` is the next probe of a dead
    destination (0: its next message), `next` the next start that the rate allows (0: now), both in seconds since the
    epoch. `messages` in `seconds` is the rate, 0 for none. `cohorts` is the number of windows of host failures, in
    hundredths. `suspended` is the number of recipients deferred without an attempt since it is dead. `limits` is the
    line of the control files that applies, `file:number`. `relay` is the relay whose limits apply as well. `reason`,
    one line, is why a dead destination could not be reached last. All three are empty for none.
    """

    state: bytes
    probe: int
    window: int
    in_flight: int
    queued: int
    on_disk: int
    cohorts: int
    suspended: int
    messages: int
    seconds: int
    next: int
    limits: bytes
    relay: bytes
    nexthop: bytes
    reason: bytes = b""


class ChannelFact(NamedTuple):
    """A channel: its active messages, the others that are to be tried, its deliveries in flight, and the limits.

    A message is counted once. One on hold, or that has ended, is not counted.
    """

    active: int
    active_limit: int
    waiting: int
    running: int
    concurrency: int
    channel: bytes


def pack_destination(fact: DestinationFact) -> bytes:
    """Return the text of the note that carries a fact."""
    numbers = (b"%d" % number for number in fact[1:11])
    words = b" ".join([fact.state, *numbers, fact.limits or _NONE, fact.relay or _NONE, fact.nexthop])
    return b"%s\n%s" % (words, fact.reason)


def unpack_destination(text: bytes) -> DestinationFact:
    """Return the destination in the text of a note. Raises FormatError."""
    before, newline, why = text.rpartition(b"\n")
    state, *words = before.split(b" ", 13)
    if state not in _STATES or len(words) != 13 or not newline:
        raise FormatError(f"control: not a destination: {quoted(text)}")
    limits, relay = (b"" if word == _NONE else word for word in words[10:12])
    return DestinationFact._make([state, *_numbers(words[:10], text), limits, relay, words[12], why])


def pack_channel(fact: ChannelFact) -> bytes:
    """Return the text of the note that carries a fact."""
    return b" ".join([*(b"%d" % number for number in fact[:5]), fact.channel])


def unpack_channel(text: bytes) -> ChannelFact:
    """Return the channel in the text of a note. Raises FormatError."""
    words = text.split(b" ", 5)
    if len(words) != 6 or words[5] not in _CHANNELS:
        raise FormatError(f"control: not a channel: {quoted(text)}")
    return ChannelFact._make([*_numbers(words[:5], text), words[5]])


def _numbers(words: list[bytes], text: bytes) -> list[int]:
    if not all(word.isdigit() and len(word) <= 18 for word in words):
        raise FormatError(f"control: not a number in a fact: {quoted(text)}")
    return [int(word) for word in words]
