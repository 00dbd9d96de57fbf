"""When domains are probed and looked through: intervals that grow, and times that are changed or forgotten."""

from queue_ondemand.domain_times import INTERVAL_MAX, DomainTimes, Wake

A, B = b"a.example", b"b.example"


def test_each_failed_probe_doubles_the_interval_up_to_a_day() -> None:
    times, now, waits = DomainTimes(), 0.0, []
    for _ in range(9):
        times.failed(A, 1800, now)
        assert times.unreachable(A, now)
        due = times.next_time()
        assert due is not None
        waits.append(due - now)
        now = due
        assert times.take_due(now - 0.1) is None
        found = times.take_due(now)
        assert found is not None and (found.domain, found.wake) == (A, Wake.PROBE)
        assert not times.unreachable(A, now), "new mail is tried while the probe is under way"

    assert waits == [1800, 3600, 7200, 14400, 28800, 57600, 86400, 86400, 86400]
    assert waits[-1] == INTERVAL_MAX


def test_attempts_that_fail_before_the_next_probe_leave_its_time() -> None:
    times = DomainTimes()
    times.failed(A, 1800, 0.0)
    for now in (0.0, 1.0, 60.0, 1799.0):  # Two attempts were in flight; the host's ETRN, and flush.
        times.failed(A, 1800, now)
    assert times.next_time() == 1800.0

    assert times.take_due(1800.0) is not None
    times.failed(A, 1800, 1801.0)
    assert times.next_time() == 1801.0 + 3600.0, "the probe failed"


def test_a_domain_that_was_reached_begins_anew() -> None:
    times = DomainTimes()
    times.failed(A, 60, 0.0)
    times.failed(A, 60, 60.0)

    assert times.reached(A)
    assert not times.reached(A), "it was not unreachable any more"
    assert not times.unreachable(A, 61.0)
    assert times.next_time() is None
    times.failed(A, 60, 100.0)
    assert times.next_time() == 160.0


def test_a_domain_that_is_never_probed_counts_as_unreachable_until_it_was_reached() -> None:
    times = DomainTimes()
    times.failed(A, 0, 0.0)

    assert times.unreachable(A, 1e9)
    assert times.next_time() is None
    assert times.reached(A)
    assert not times.unreachable(A, 0.0)


def test_domains_come_in_the_order_of_their_times_each_with_both_reasons() -> None:
    times = DomainTimes()
    times.set(A, Wake.EXPIRY, 30.0)
    times.set(B, Wake.PROBE, 10.0)
    times.set(A, Wake.PROBE, 20.0)
    times.set(B, Wake.PROBE, 40.0)

    found = []
    while (due := times.take_due(100.0)) is not None:
        found.append((due.when, due.domain, due.wake))

    assert found == [(20.0, A, Wake.PROBE), (30.0, A, Wake.EXPIRY), (40.0, B, Wake.PROBE)]


def test_what_is_forgotten_does_not_come() -> None:
    times = DomainTimes()
    times.failed(A, 60, 0.0)
    times.set(A, Wake.EXPIRY, 10.0)

    times.forget(A)

    assert times.take_due(1e9) is None
    assert not times.has(A, Wake.EXPIRY) and not times.unreachable(A, 0.0)
