"""When a message is tried again: qmail's quadratic curve, in whole seconds. Pure; the clock is passed in."""

from math import isqrt

# Steps skipped at the first retry: a local mailbox is tried again after 100 s, a remote host after 400 s.
SKIP_LOCAL = 10
SKIP_REMOTE = 20


def next_attempt(birth: int, now: int, skip: int) -> int:
    """Return the next attempt, in seconds since the epoch: birth + (floor(sqrt(now - birth)) + skip)^2."""
    return birth + (isqrt(max(0, now - birth)) + skip) ** 2


def is_expired(birth: int, now: int, lifetime: int) -> bool:
    """Return whether a message has been in the queue for longer than `lifetime` seconds."""
    return now > birth + lifetime
