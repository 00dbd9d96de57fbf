"""What the limits of destinations allow the runs of queue-ondemand: control/destinationrate and its like. Pure.

queue-send obeys them for the jobs that it gives to queue-ondemand, without knowing of runs. So both are counted here: a
run takes what the attempts of jobs leave. A job is not to be tried while a run has taken its place; it can be stored.
A run has one job in flight at a time.

Hosts that ask with ATRN are not limited: they take their mail over their own connection, as fast as they want.
"""

import time
from collections import OrderedDict
from collections.abc import Callable

from queue_base.limits import ALONE, Limits, LimitTable, QueueShare, RateLimited
from queue_ondemand.domain_times import DomainTimes, Wake
from queue_ondemand.ondemand_files import OnDemandConfig

# Seconds after which a domain that has to wait is looked at again, at most: the limits may have changed by then.
LOOK_AGAIN = 5.0
# The same where an attempt has to end first.
SOON = 1.0


class _DomainUse:
    """What is in flight for a domain, and was started a short while ago: `all`; and `runs` of it, by runs."""

    __slots__ = ("all", "last_run", "runs")

    def __init__(self, domain: bytes, limits: Limits) -> None:
        self.all = RateLimited(domain, limits)
        self.runs = 0
        self.last_run = 0.0


class RunLimits:
    """The limits of all domains, and what they have in use. `resumes` are the times at which waiting domains go on."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives the seconds since the epoch, by which several queues have their turns."""
        self._clock = clock
        self._config: OnDemandConfig | None = None
        self._share = ALONE
        self._default = Limits()
        self._table = LimitTable()
        self._used: OrderedDict[bytes, _DomainUse] = OrderedDict()
        self.resumes = DomainTimes()

    def apply(self, config: OnDemandConfig, share: QueueShare) -> None:
        """Take the limits of the control files, and the part of them that this queue has."""
        if config is self._config and share == self._share:
            return
        self._config, self._share = config, share
        self._default = Limits(most=config.concurrency)
        self._table = LimitTable(config.limits, share=share)
        for use in self._used.values():
            use.all.take_limits(self._table.limits(use.all.name, self._default))

    def allows_job(self, domain: bytes) -> bool:
        """Return whether a job may be tried: unless a run has taken its place, queue-send has looked at the limits."""
        use = self._used.get(domain)
        if use is None:
            return True
        if use.runs and use.all.in_flight >= use.all.limits.most:
            return False
        now, rate = self._clock(), use.all.limits.rate
        return rate is None or not now - rate[1] < use.last_run <= now or use.all.own_start(now) <= now

    def wait(self, domain: bytes) -> float:
        """Return the seconds until a run is to look again whether it may send something; 0.0 if it may do so now."""
        use = (self._used.get(domain) or self._unused(domain)).all
        now = self._clock()
        start = use.own_start(now)
        if start > now:
            return min(start - now, LOOK_AGAIN)
        return SOON if use.in_flight >= use.limits.most else 0.0

    def _unused(self, domain: bytes) -> _DomainUse:
        return _DomainUse(domain, self._table.limits(domain, self._default))

    def begin(self, domain: bytes, is_run: bool = False) -> None:
        """Count what is sent for a job, or by a run."""
        now = self._clock()
        # Twice, so that there are fewer and fewer of those that are over.
        self._forget_next(now)
        self._forget_next(now)
        use = self._used[domain] = self._used.get(domain) or self._unused(domain)
        use.all.own_start(now)  # It drops starts that are over.
        use.all.count_start(now)
        if is_run:
            use.runs += 1
            use.last_run = now

    def _forget_next(self, now: float) -> None:
        """Forget the next domain, all having their turns, if nothing of it is in flight and its rate is free."""
        if self._used:
            domain, use = self._used.popitem(last=False)
            use.all.own_start(now)
            if use.all.in_flight or use.all.starts:
                self._used[domain] = use

    def end(self, domain: bytes, is_run: bool = False) -> None:
        """Count that it is over."""
        use = self._used.get(domain)
        if use is None:
            return
        use.all.in_flight -= 1
        use.runs -= is_run
        if not use.all.in_flight and not use.all.starts:
            del self._used[domain]

    def resume(self, domain: bytes, now: float, wait: float) -> None:
        """Have a domain go on after some seconds; `now` is monotonic."""
        self.resumes.set(domain, Wake.RESUME, now + wait)

    def take_due(self, now: float) -> bytes | None:
        """Return a domain that is to go on, None if there is none."""
        due = self.resumes.take_due(now)
        return None if due is None else due.domain
