"""A batch goes in while it is delivered, until all files are gone; beside it a probe each 100 ms, for another domain.

A probe's time is that from the start of its command to its arrival. Sent by queue-inject and by sendmail.
"""

import time

from side_by_side.experiment import COSTS, Experiment, Ground, Measured, Meter
from side_by_side.figures import Figure, percentile
from side_by_side.mail import SMALL, Mail, Routes
from side_by_side.probe import DOMAIN, Prober, ProbeSink
from side_by_side.side import FINISHED, Side
from support.servers.smtp.smtp_sink import SmtpSink

RATE = Figure("in and out", "a second", more_is_better=True)
IN = Figure("in, meanwhile", "a second", more_is_better=True)
MEGABYTES = Figure("in and out, bytes", "MB a second", more_is_better=True)
MIDDLE = Figure("probe, median", "ms")
LATE = Figure("probe, 99th percentile", "ms")
FIGURES = (RATE, MEGABYTES, IN, MIDDLE, LATE, *COSTS)


def run(ground: Ground, kind: type[Side], messages: int) -> Measured:
    """Make a round with small messages."""
    return run_through(ground, kind, Mail(messages))


def run_through(ground: Ground, kind: type[Side], mail: Mail) -> Measured:
    """Make a round."""
    with SmtpSink(keep=False) as sink, ProbeSink() as probes:
        routes = Routes(sink.port, {DOMAIN: ("127.0.0.1", probes.port)})
        with ground.side(kind, routes) as side:
            side.start()
            side.wait_ready()
            ground.settle()
            meter, log = Meter(side), side.follow()
            begun = time.monotonic()
            injection = side.batch(mail)
            with Prober(side, probes) as prober:
                used = injection.wait()
                accepted = time.monotonic()
                # Probes that have come are counted as finished a little early, never late.
                log.wait(lambda counts: counts[FINISHED] - len(probes.arrived) >= mail.messages)
            delays = prober.delays()
            log.wait(lambda counts: counts[FINISHED] == mail.messages + prober.sent)
            ended = side.wait_empty()
            found = meter.stop(mail.messages, used)
            side.check(mail.messages + prober.sent)
    return Measured(
        {
            RATE.name: mail.messages / (ended - begun),
            MEGABYTES.name: mail.messages * mail.size / 1e6 / (ended - begun),
            IN.name: mail.messages / (accepted - begun),
            MIDDLE.name: percentile(delays, 0.5) * 1000,
            LATE.name: percentile(delays, 0.99) * 1000,
            **found,
        }
    )


END_TO_END = Experiment(
    "end-to-end",
    f"a batch of {SMALL} bytes each in while it is delivered, and probes",
    20_000,
    FIGURES,
    run,
    traced=1000,
)
