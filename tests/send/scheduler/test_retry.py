"""The retry curve, against the values that qmail's documentation gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_send.scheduler.retry import SKIP_LOCAL, SKIP_REMOTE
from queue_send.scheduler.retry import next_attempt as next_of_schedule
from queue_wire.control.schedule import QUADRATIC

BIRTH = 1_700_000_000
WEEK = 604800
DAY = 86400

# Seconds after the birth of the first attempts of a message that is always deferred at once: qmail's
# table of a remote message's life (each 40 more than the last gap), and the local one.
REMOTE_TIMES = [0, 400, 1600, 3600, 6400, 10000, 14400, 19600, 25600, 32400, 40000, 48400, 57600, 67600, 78400, 90000]
LOCAL_TIMES = [0, 100, 400, 900, 1600, 2500, 3600, 4900, 6400, 8100, 10000, 12100, 14400, 16900, 19600, 22500]


def next_attempt(birth: int, now: int, skip: int) -> int:
    return next_of_schedule(QUADRATIC, birth, now, skip, lambda: 1.0)


@pytest.mark.parametrize(("skip", "times"), [(SKIP_REMOTE, REMOTE_TIMES), (SKIP_LOCAL, LOCAL_TIMES)])
def test_attempts_are_at_the_squares_that_qmail_tries_at(skip: int, times: list[int]) -> None:
    found = [0]
    while len(found) < len(times):
        found.append(next_attempt(BIRTH, BIRTH + found[-1], skip) - BIRTH)
    assert found == times


@pytest.mark.parametrize(
    ("age", "remote", "local"),
    [
        (0, 400, 100),
        (1, 441, 121),
        (2, 441, 121),
        (3, 441, 121),
        (4, 484, 144),
        (399, 1521, 841),
        (400, 1600, 900),
        (401, 1600, 900),
        (3599, 6241, 4761),
        (86400, 97969, 91809),  # A day: the root is 293.
        (604799, 635209, 619369),  # A week: the root is 777.
    ],
)
def test_the_curve_is_in_whole_seconds(age: int, remote: int, local: int) -> None:
    assert next_attempt(BIRTH, BIRTH + age, SKIP_REMOTE) == BIRTH + remote
    assert next_attempt(BIRTH, BIRTH + age, SKIP_LOCAL) == BIRTH + local


def test_a_message_from_the_future_is_as_one_born_now() -> None:
    assert next_attempt(BIRTH, BIRTH - 5000, SKIP_REMOTE) == BIRTH - 5000 + 400


@given(age=st.integers(0, 100 * DAY), skip=st.sampled_from([SKIP_LOCAL, SKIP_REMOTE]))
def test_the_next_attempt_is_later_but_never_by_more_than_the_curve_allows(age: int, skip: int) -> None:
    wait = next_attempt(BIRTH, BIRTH + age, skip) - (BIRTH + age)
    root = age**0.5
    assert 0 < wait <= 2 * skip * root + skip * skip
    assert next_attempt(BIRTH, BIRTH + age + 1, skip) >= BIRTH + age + wait
