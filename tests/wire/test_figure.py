"""The figures of queue-send on lock/control, there and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.admin.figure import FIGURES, Figure, pack_figure, unpack_figure
from queue_wire.format_error import FormatError

NEXTHOPS = st.binary(max_size=40).map(lambda data: data.replace(b"\0", b" "))
NUMBERS = st.one_of(st.integers(0, 10**9), st.floats(0, 1e9).map(lambda value: float(f"{value:.10g}")))


@given(st.sampled_from(sorted(FIGURES)), NUMBERS, st.sampled_from([b"local", b"remote"]), NEXTHOPS)
def test_a_figure_comes_back(name: bytes, number: float, word: bytes, nexthop: bytes) -> None:
    count = len(FIGURES[name])
    labels = (*[word] * (count - 1), nexthop)[:count] if count else ()
    figure = Figure(name, number, labels)
    assert unpack_figure(pack_figure(figure)) == figure


@pytest.mark.parametrize(
    "text", [b"", b"started", b"started x", b"started inf", b"nosuch 1", b"messages 1 remote", b"turns 1 more"]
)
def test_what_is_no_figure_is_refused(text: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_figure(text)
