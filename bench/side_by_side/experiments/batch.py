"""Many messages in at once, while nothing delivers: queue-inject --batch, and smtp-source to smtpd.

Postfix has no program for batches; SMTP over 20 connections is its fastest way in. smtp-source's own CPU time does not
count. That all of it is there is shown by its delivery, which is not timed.
"""

from side_by_side.experiment import COSTS, Experiment, Ground, Measured, costs
from side_by_side.figures import Figure
from side_by_side.mail import Mail, Routes
from side_by_side.side import FINISHED, Side
from support.servers.smtp.smtp_sink import SmtpSink

RATE = Figure("accepted", "a second", more_is_better=True)


def run(ground: Ground, kind: type[Side], messages: int) -> Measured:
    """Make a round."""
    with SmtpSink(keep=False) as sink, ground.side(kind, Routes(sink.port)) as side:
        ground.settle()
        filled = side.fill(Mail(messages))
        found = costs(messages, filled.used, side.place, filled.disk)
        side.count_until_now()
        side.start()
        side.follow().wait(lambda counts: counts[FINISHED] == messages)
        side.check(messages)
    return Measured({RATE.name: messages / filled.seconds, **found})


BATCH = Experiment("batch", "a batch, while nothing delivers", 20_000, (RATE, *COSTS), run, traced=1000)
