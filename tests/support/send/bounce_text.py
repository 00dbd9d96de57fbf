"""A bounce as one piece of bytes."""

from queue_base.reports.bounce_report import BounceFacts, compose_steps


def compose_bounce(facts: BounceFacts) -> bytes:
    """Return the bounce as a message with LF line ends."""
    return b"".join(compose_steps(facts))
