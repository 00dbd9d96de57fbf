"""When the domains that have stored mail are probed, and looked through for expired mail. Pure; times in seconds.

A domain is probed after its interval. Each probe that fails doubles the interval, up to a day; a success, or a new line
of control/ondemand, begins anew. Until the next probe the domain counts as unreachable, and new mail for it is stored
without an attempt. An attempt that fails meanwhile, because somebody asked for it, leaves the time of the probe.

An order of the administrator of which something is left is tried again after a minute; that doubles, up to half an
hour, until nothing is left of any order about the domain.
"""

import heapq
from enum import Enum
from typing import NamedTuple

INTERVAL_MAX = 86400
ORDER_FIRST = 60.0
ORDER_WAIT_MAX = 1800.0


class Wake(Enum):
    """What a domain is woken for."""

    PROBE = "probe"
    EXPIRY = "expiry"
    # Orders of which something is left are tried again.
    ORDER = "order"
    # A run that its limits have stopped goes on (run_limits).
    RESUME = "resume"


class DueWake(NamedTuple):
    """A domain whose time has come."""

    when: float
    domain: bytes
    wake: Wake


class DomainTimes:
    """The times of all domains, each once for each reason."""

    def __init__(self) -> None:
        self._times: dict[tuple[bytes, Wake], float] = {}
        # Entries that are not valid any more are skipped.
        self._heap: list[tuple[float, bytes, str]] = []
        # The last interval of unreachable domains.
        self._intervals: dict[bytes, float] = {}
        # The last wait of domains with orders of which something is left.
        self._order_waits: dict[bytes, float] = {}

    def unreachable(self, domain: bytes, now: float) -> bool:
        """Return whether the last attempt failed, and the time of the next probe has not come."""
        return domain in self._intervals and self._times.get((domain, Wake.PROBE), now) > now

    def failed(self, domain: bytes, first: int, now: float) -> None:
        """Note that a domain could not be reached; `first` is its first interval, 0 if it is never probed."""
        if first and self.unreachable(domain, now):
            return
        before = self._intervals.get(domain)
        interval = min(INTERVAL_MAX, first if before is None else 2 * before) if first else INTERVAL_MAX
        self._intervals[domain] = interval
        if first:
            self.set(domain, Wake.PROBE, now + interval)
        else:
            # No probe follows. Mail is stored without an attempt until somebody asks for it.
            self._times[domain, Wake.PROBE] = float("inf")

    def reached(self, domain: bytes) -> bool:
        """Note that a domain was reached; return whether it could not be reached before."""
        if self._intervals.pop(domain, None) is None:
            return False
        self._times.pop((domain, Wake.PROBE), None)
        return True

    def order_failed(self, domain: bytes, now: float) -> None:
        """Note that something of an order is left, or that the orders of a domain cannot be read or removed."""
        if not self.has(domain, Wake.ORDER):
            wait = min(2 * self._order_waits.get(domain, ORDER_FIRST / 2), ORDER_WAIT_MAX)
            self._order_waits[domain] = wait
            self.set(domain, Wake.ORDER, now + wait)

    def orders_done(self, domain: bytes) -> None:
        """Note that nothing is left of the orders about a domain."""
        self._order_waits.pop(domain, None)
        self._times.pop((domain, Wake.ORDER), None)

    def set(self, domain: bytes, wake: Wake, when: float) -> None:
        """Set, or change, a time."""
        self._times[domain, wake] = when
        heapq.heappush(self._heap, (when, domain, wake.value))

    def has(self, domain: bytes, wake: Wake) -> bool:
        """Return whether a time is set."""
        return (domain, wake) in self._times

    def probe_time(self, domain: bytes) -> float | None:
        """Return when the next probe of a domain is, None if none is planned."""
        when = self._times.get((domain, Wake.PROBE))
        return None if when is None or when == float("inf") else when

    def forget(self, domain: bytes) -> None:
        """Forget the times of a domain that has no stored mail any more, or another line; orders keep theirs."""
        for wake in (Wake.PROBE, Wake.EXPIRY):
            self._times.pop((domain, wake), None)
        self._intervals.pop(domain, None)

    def next_time(self) -> float | None:
        """Return the first time, None if there is none."""
        self._skip()
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> DueWake | None:
        """Return a domain whose time has come, and forget that time; None if there is none."""
        self._skip()
        if not self._heap or self._heap[0][0] > now:
            return None
        when, domain, value = heapq.heappop(self._heap)
        del self._times[domain, Wake(value)]
        return DueWake(when, domain, Wake(value))

    def _skip(self) -> None:
        """Drop entries at the top that are not valid."""
        while self._heap:
            when, domain, value = self._heap[0]
            if self._times.get((domain, Wake(value))) == when:
                return
            heapq.heappop(self._heap)
