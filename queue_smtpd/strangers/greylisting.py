"""Greylisting (RFC 6647): what an attempt of a stranger means, by what is remembered of the ones before. Pure.

A client network, sender and recipient together are a triplet. A new one is refused for now. A mail server tries again,
and when the delay is over, the triplet has passed; most programs of spammers do not come again. A network of which
enough triplets have passed is known, and is not asked any more.
"""

from typing import NamedTuple

from queue_wire.control.strangers.greylist import GreylistRules

# What is remembered is written at most as often, in seconds.
_FRESH = 3600


class Triplet(NamedTuple):
    """What is remembered of one: the first and the last attempt, in seconds since the epoch, and whether it passed."""

    first: int
    last: int
    passed: bool = False


class KnownNetwork(NamedTuple):
    """What is remembered of a network: how many of its triplets have passed, and when the last mail came."""

    passes: int
    last: int


class GreylistVerdict(NamedTuple):
    """How many seconds to wait, 0 for none; and what is to be remembered anew, None for what is not changed."""

    wait: int
    triplet: Triplet | None = None
    network: KnownNetwork | None = None


def judge_attempt(
    triplet: Triplet | None, network: KnownNetwork | None, now: int, rules: GreylistRules
) -> GreylistVerdict:
    """Decide on an attempt."""
    if network is not None and now - network.last > rules.expiry:
        network = None
    if network is not None and rules.known and network.passes >= rules.known:
        return GreylistVerdict(0, None, network._replace(last=now) if now - network.last > _FRESH else None)
    if triplet is None or _is_forgotten(triplet, now, rules):
        return GreylistVerdict(rules.delay, Triplet(now, now))
    if triplet.passed:
        return GreylistVerdict(0, triplet._replace(last=now) if now - triplet.last > _FRESH else None)
    wait = triplet.first + rules.delay - now
    if wait > 0:
        return GreylistVerdict(wait)
    passes = 1 if network is None else network.passes + 1
    return GreylistVerdict(0, Triplet(triplet.first, now, True), KnownNetwork(passes, now))


def _is_forgotten(triplet: Triplet, now: int, rules: GreylistRules) -> bool:
    if triplet.first > now:
        # The clock was set back, and it would have to wait too long.
        return True
    return now - triplet.last > rules.expiry if triplet.passed else now - triplet.first > rules.window
