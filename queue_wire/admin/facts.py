"""What queue-send tells of its destinations and channels, as the notes of a reply on lock/control. Pure.

A fact is its numbers in decimal and then its name, separated by spaces. The name, a nexthop, is bytes without NUL.
"""

from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted

ALIVE = b"alive"
DEAD = b"dead"
PROBED = b"probed"  # Dead, and a probe is on its way.
RELAY = b"relay"  # No destination: all that goes by a relay, where some of its domains are destinations of their own.
_STATES = (ALIVE, DEAD, PROBED, RELAY)
_NONE = b"-"
_CHANNELS = (b"local", b"remote")


class DestinationFact(NamedTuple):
    """A nexthop: `flying` and `window` are jobs, `queued` and `aside` messages that wait for it in memory.

    `probe` and `next` are times in seconds since the epoch: the next probe of a dead one, and the next start that the
    rate allows, 0 for at once. `messages` in `seconds` is the rate, 0 where there is none. `cohorts` are windows of
    host failures in hundredths, `turned_away` recipients that were deferred without an attempt since it died. `limits`
    is the line of the control files that holds, `file:number`, and `relay` the one whose limits hold as well; empty for
    none.
    """

    state: bytes
    probe: int
    window: int
    flying: int
    queued: int
    aside: int
    cohorts: int
    turned_away: int
    messages: int
    seconds: int
    next: int
    limits: bytes
    relay: bytes
    nexthop: bytes


class ChannelFact(NamedTuple):
    """A channel: messages that are active and wait, at the most, and deliveries in flight, with their limits."""

    active: int
    active_limit: int
    waiting: int
    running: int
    concurrency: int
    channel: bytes


def pack_destination(fact: DestinationFact) -> bytes:
    """Return the text of a note."""
    numbers = (b"%d" % number for number in fact[1:11])
    return b" ".join([fact.state, *numbers, fact.limits or _NONE, fact.relay or _NONE, fact.nexthop])


def unpack_destination(text: bytes) -> DestinationFact:
    """Return what `pack_destination` packed. Raises FormatError."""
    state, *words = text.split(b" ", 13)
    if state not in _STATES or len(words) != 13:
        raise FormatError(f"control: not a destination: {quoted(text)}")
    limits, relay = (b"" if word == _NONE else word for word in words[10:12])
    return DestinationFact._make([state, *_numbers(words[:10], text), limits, relay, words[12]])


def pack_channel(fact: ChannelFact) -> bytes:
    """Return the text of a note."""
    return b" ".join([*(b"%d" % number for number in fact[:5]), fact.channel])


def unpack_channel(text: bytes) -> ChannelFact:
    """Return what `pack_channel` packed. Raises FormatError."""
    words = text.split(b" ", 5)
    if len(words) != 6 or words[5] not in _CHANNELS:
        raise FormatError(f"control: not a channel: {quoted(text)}")
    return ChannelFact._make([*_numbers(words[:5], text), words[5]])


def _numbers(words: list[bytes], text: bytes) -> list[int]:
    if not all(word.isdigit() and len(word) <= 18 for word in words):
        raise FormatError(f"control: not a number in a fact: {quoted(text)}")
    return [int(word) for word in words]
