"""A full queue until it is empty.

The queue is filled while nothing delivers. Then the daemons are started. The rate counts from the first delivery, when
all of them run, until no message has a file; what starting them takes is a figure of its own.
"""

import time

from side_by_side.experiment import COSTS, Experiment, Ground, Measured, Meter
from side_by_side.figures import Figure
from side_by_side.mail import Mail, Routes
from side_by_side.side import DELIVERED, FINISHED, Side
from support.servers.smtp.smtp_sink import SmtpSink

RATE = Figure("drained", "a second", more_is_better=True)
FIRST = Figure("start to first delivery", "s")


def run(ground: Ground, kind: type[Side], messages: int) -> Measured:
    """Make a round."""
    with SmtpSink(keep=False) as sink, ground.side(kind, Routes(sink.port)) as side:
        side.fill(Mail(messages))
        side.count_from_now()
        ground.settle()
        begun = time.monotonic()
        side.start()
        log = side.follow()
        first = log.wait(lambda counts: counts[DELIVERED] > 0)
        meter, already = Meter(side), log.look()[FINISHED]
        log.wait(lambda counts: counts[FINISHED] == messages)
        took = side.wait_empty() - first
        found = meter.stop(max(1, messages - already))
        side.check(messages)
    return Measured({RATE.name: (messages - already) / took, FIRST.name: first - begun, **found})


DRAIN = Experiment("drain", "a full queue until it is empty", 20_000, (RATE, FIRST, *COSTS), run, traced=1000)
