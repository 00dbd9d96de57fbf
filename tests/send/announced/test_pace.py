"""How many announced messages may wait for their start."""

from queue_send.messages.announced import BRISK, UNSTARTED_FIRST, Pace

SECONDS = 0.5  # Of one count; half of classifyafter.


def pace(starts: int) -> Pace:
    """Return a pace after some starts in the last SECONDS."""
    found = Pace(0.0)
    for _ in range(starts):
        found.count()
    return found


def test_while_few_were_started_a_fixed_number_may_wait() -> None:
    assert pace(BRISK - 1).limit(0.1, SECONDS) == UNSTARTED_FIRST


def test_at_a_steady_low_rate_no_more_may_wait_than_are_started_before_they_are_classified() -> None:
    assert [pace(starts).limit(0.1, SECONDS) for starts in (BRISK, 100, 200)] == [BRISK, 100, 200]
