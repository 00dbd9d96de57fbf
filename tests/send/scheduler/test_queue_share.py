"""How limits that hold over all queues are divided among those that run."""

from hypothesis import given
from hypothesis import strategies as st

from queue_base.limits import TURN_SECONDS, Limits, LimitTable, QueueShare
from queue_send.scheduler.destination import Destination
from queue_wire.control.destinationlimits import join_lines, unpack_limits, unpack_rates

counts = st.integers(1, 32)


def shares(count: int) -> list[QueueShare]:
    return [QueueShare(place, count) for place in range(count)]


@given(st.integers(0, 32_000), counts)
def test_the_parts_of_jobs_are_the_limit_together_and_each_has_one_if_there_are_enough(limit: int, count: int) -> None:
    parts = [share.part(limit) for share in shares(count)]
    assert sum(parts) == limit
    assert max(parts) - min(parts) <= 1
    assert min(parts) >= (limit >= count)


@given(st.integers(0, 32_000), counts)
def test_a_channel_has_a_place_in_each_queue_unless_it_is_on_hold(limit: int, count: int) -> None:
    parts = [share.channel_part(limit) for share in shares(count)]
    assert sum(parts) == (max(limit, count) if limit else 0)
    assert min(parts) >= min(limit, 1)


@given(st.integers(1, 1000), st.integers(1, 86_400), counts)
def test_the_parts_of_a_rate_are_no_more_than_the_rate_together(messages: int, seconds: int, count: int) -> None:
    rates = [share.rate((messages, float(seconds))) for share in shares(count)]
    assert all(part >= 1 for part, _ in rates)
    assert abs(sum(part / time for part, time in rates) - messages / seconds) < 1e-9


@given(st.integers(1, 31), counts, st.integers(0, 10**6))
def test_queues_have_turns_where_there_are_fewer_jobs_than_queues(limit: int, count: int, slot: int) -> None:
    windows = [share.window(limit) for share in shares(count)]
    if limit >= count:
        assert sum(jobs for jobs, _ in windows) == limit and not any(turns for _, turns in windows)
        return
    assert windows == [(1, limit)] * count
    now = slot * TURN_SECONDS + 1.0
    begins = [share.next_turn(now, limit) for share in shares(count)]
    assert begins.count(now) == limit
    # Each has its turn, before all slots are over.
    assert all(now <= begin <= now + count * TURN_SECONDS for begin in begins)
    for share, begin in zip(shares(count), begins, strict=True):
        assert share.next_turn(begin, limit) == begin


def test_a_queue_alone_has_the_limits_as_they_are() -> None:
    limits = Limits(most=7, rate=(3, 60.0))
    assert limits.divided(QueueShare()) is limits


def test_lines_of_single_destinations_are_divided_too() -> None:
    lines = join_lines(
        unpack_limits(b"a.example concurrency=5\nb.example concurrency=1\n"), unpack_rates(b"c.example:10/60\n")
    )
    first, second = (LimitTable(lines, share=share) for share in shares(2))
    default = Limits(most=20)
    assert [table.limits(b"a.example", default).most for table in (first, second)] == [3, 2]
    assert [table.limits(b"b.example", default).turns for table in (first, second)] == [1, 1]
    assert [table.limits(b"c.example", default).rate for table in (first, second)] == [(5, 60.0)] * 2
    assert [table.limits(b"d.example", default).most for table in (first, second)] == [10, 10]


def test_a_destination_starts_in_the_turn_of_its_queue_only() -> None:
    own, other = (Destination(b"a.example", Limits(most=1).divided(share)) for share in shares(2))
    now = 1000 * TURN_SECONDS + 1.0
    assert (own.own_start(now), other.own_start(now)) == (now, 1001 * TURN_SECONDS)
    later = now + TURN_SECONDS
    assert (own.own_start(later), other.own_start(later)) == (1002 * TURN_SECONDS, later)
