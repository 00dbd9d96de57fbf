"""The stamps of multilog, svlogd and s6-log."""

import datetime
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.files.stamp import pack_stamp, unpack_stamp
from support.plugins.strategies import garbage


@given(st.integers(0, 4 * 10**18), st.binary(max_size=20))
def test_a_label_is_read_as_it_was_written(when: int, text: bytes) -> None:
    assert unpack_stamp(pack_stamp(when) + b" " + text) == (when, text)


@given(st.integers(0, 4 * 10**18), st.integers(0, 4 * 10**18))
def test_labels_are_ordered_as_their_times(one: int, other: int) -> None:
    assert (pack_stamp(one) < pack_stamp(other)) == (one < other)


@pytest.mark.parametrize("form", [b"2026-11-22_22:12:04.12345 x", b"2026-11-22T22:12:04.12345 x"])
def test_dates_of_svlogd_are_utc(form: bytes) -> None:
    seconds = int(datetime.datetime(2026, 11, 22, 22, 12, 4, tzinfo=UTC).timestamp())
    assert unpack_stamp(form) == (seconds * 10**9 + 123_450_000, b"x")


def test_dates_of_s6_log_are_local_time() -> None:
    seconds = int(datetime.datetime(2026, 11, 22, 22, 12, 4).timestamp())
    assert unpack_stamp(b"2026-11-22 22:12:04.123456789  x") == (seconds * 10**9 + 123_456_789, b"x")


@given(garbage)
def test_garbage_has_no_stamp(data: bytes) -> None:
    assert unpack_stamp(data) is None


def test_what_is_no_date_or_no_nanosecond_has_no_stamp() -> None:
    assert unpack_stamp(b"2026-13-22_22:12:04.12345 x") is None
    assert unpack_stamp(b"@4000000067450a1bffffffff x") is None
