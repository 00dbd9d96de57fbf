"""The rate of deliveries before, during and after a burst of injections.

Twice as many messages as the burst has wait in the queue and are being delivered. When a fifth of them is, the burst
begins: a batch. "After" is from its end until 95 % of all is delivered. `burst` leaves the receiver as fast as it is,
so that the deliveries have both cores already; in `burst-paced` it answers DATA after a random number of whole seconds,
most often none, so that its pace is the limit and places are free.
"""

from functools import partial

from side_by_side.experiment import Experiment, Ground, Measured
from side_by_side.figures import Figure, count_at, rates
from side_by_side.mail import Mail, Routes
from side_by_side.side import DELIVERED, FINISHED, Side
from support.servers.smtp.smtp_sink import SmtpSink

BEFORE = Figure("before", "a second", more_is_better=True)
DURING = Figure("during", "a second", more_is_better=True)
AFTER = Figure("after", "a second", more_is_better=True)
SHARE = Figure("during, of before", "%", more_is_better=True)
LENGTH = Figure("the burst took", "s")
STEP = 0.1
# With 2 of 100 the mean of the seconds is 0.02: 1,000 messages a second over 20 connections. The same for the end of a
# message makes smtp-sink 3.7 crash.
PACE = ("-W", "data:1:2")


def run(options: tuple[str, ...], ground: Ground, kind: type[Side], messages: int) -> Measured:
    """Make a round."""
    waiting = 2 * messages
    every = waiting + messages
    with SmtpSink(*options, keep=False) as sink, ground.side(kind, Routes(sink.port)) as side:
        side.fill(Mail(waiting))
        ground.settle()
        side.start()
        side.wait_ready()
        log = side.follow()
        first = log.wait(lambda counts: counts[DELIVERED] > 0)
        begun = log.wait(lambda counts: counts[DELIVERED] >= waiting // 5)
        injection = side.batch(Mail(messages))
        # Looks at the log meanwhile, or there would be no samples.
        log.wait(lambda counts: injection.is_over())
        ended = log.times[-1]
        injection.wait()
        log.wait(lambda counts: counts[FINISHED] == every)
        side.check(every)
    counts = log.counts[DELIVERED]
    late = next(when for when, count in zip(log.times, counts, strict=True) if count >= every * 0.95)
    last = log.times[counts.index(every)]

    def rate(begin: float, end: float) -> float:
        return (count_at(log.times, counts, end) - count_at(log.times, counts, begin)) / max(end - begin, 0.001)

    before, during = rate(first, begun), rate(begun, ended)
    figures = {
        BEFORE.name: before,
        DURING.name: during,
        # Where the burst lasts until the end there is nothing after it.
        AFTER.name: rate(ended, late) if late > ended else 0.0,
        # With very few messages a fifth of them is there at the first look.
        SHARE.name: during / before * 100 if before else 0.0,
        LENGTH.name: ended - begun,
    }
    return Measured(figures, rates(log.times, counts, first, last, STEP), (begun - first, ended - first))


FIGURES = (BEFORE, DURING, AFTER, SHARE, LENGTH)
FULL = Experiment("burst", "deliveries beside a burst of injections", 20_000, FIGURES, partial(run, ()))
PACED = Experiment("burst-paced", "the same with a receiver that sets the pace", 5_000, FIGURES, partial(run, PACE))
