"""Single messages: queue-inject against sendmail, in one loop and in sixteen at once. Nothing is done with them yet.

Postfix's daemons are there, because sendmail would complain, but pickup is stopped by a signal. Both have said that the
message is safe when they end: queue-inject has it in the queue, sendmail in maildrop/. That all of it is there is shown
by its delivery, which is not timed.
"""

from functools import partial

from disk import read_disk
from injection.loops import run_loops
from side_by_side.experiment import COSTS, MEMORY, Experiment, Ground, Measured, costs
from side_by_side.figures import Figure
from side_by_side.mail import RELAY, SMALL, Routes, letter
from side_by_side.side import FINISHED, Side
from support.servers.smtp.smtp_sink import SmtpSink

RATE = Figure("accepted", "a second", more_is_better=True)
TIME = Figure("time of each", "ms")
FIGURES = (RATE, TIME, *(figure for figure in COSTS if figure is not MEMORY))


def run(loops: int, ground: Ground, kind: type[Side], messages: int) -> Measured:
    """Make a round."""
    each = max(1, messages // loops)
    messages = loops * each
    with SmtpSink(keep=False) as sink, ground.side(kind, Routes(sink.port)) as side:
        text = ground.scratch / "message"
        text.write_bytes(letter(SMALL))
        ground.settle()
        with side.accepting():
            disk = read_disk(side.place)
            seconds, used = run_loops(loops, each, side.one(f"bob@{RELAY}"), text, side.environment(), side.traced)
            found = costs(messages, used, side.place, read_disk(side.place) - disk)
        side.count_until_now()
        side.start()
        side.follow().wait(lambda counts: counts[FINISHED] == messages)
        side.check(messages)
    return Measured({RATE.name: messages / seconds, TIME.name: seconds * loops / messages * 1000, **found})


ONE = Experiment("inject", "queue-inject and sendmail, one at a time", 1000, FIGURES, partial(run, 1), traced=50)
SIXTEEN = Experiment(
    "inject-16", "queue-inject and sendmail, 16 at a time", 3200, FIGURES, partial(run, 16), traced=64, least=16
)
