"""Large messages, in while they are delivered, with probes: end to end in megabytes."""

from side_by_side.experiment import Experiment, Ground, Measured
from side_by_side.experiments.end_to_end import FIGURES, run_through
from side_by_side.mail import Mail
from side_by_side.side import Side

SIZE = 10_000_000  # Less than Postfix's default of message_size_limit.


def run(ground: Ground, kind: type[Side], messages: int) -> Measured:
    """Make a round."""
    return run_through(ground, kind, Mail(messages, SIZE))


BIG = Experiment(
    "big",
    f"messages of {SIZE // 1_000_000} MB in while they are delivered, and probes",
    500,
    FIGURES,
    run,
    traced=20,
    least=2,
)
