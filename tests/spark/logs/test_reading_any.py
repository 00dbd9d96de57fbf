"""Any log, rotated, compressed and cut in any way, is read in any number of builds as in one pass: each line, in order.

Names and sizes are those that loggers make; stamps stay, step and go back, and lines are alike.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from queue_report.logs import reading
from support.plugins.amount import amount
from support.spark.logs.log_files import stamp
from support.spark.logs.log_looks import Looks, ReadLine
from support.spark.logs.log_rotating import WAYS, RotatingLog, Step, follow

BEGIN = 1_700_000_000 * 10**9
TEXTS = st.one_of(
    st.sampled_from((b"new msg 5", b"end msg 5", b"status: local 0/10 remote 0/20", b"", b"\r")),
    st.integers(1, 3000).map(lambda size: b"delivery 1: deferral: " + b"x" * size),
    st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"").replace(b"@", b"")),
)
# Seconds and nanoseconds: many lines of one stamp, steps, a clock that is set back.
STEPS = st.sampled_from((0, 0, 0, 1, 10**9, 3600 * 10**9, -1, -7200 * 10**9))
@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, bytes]]:
    """Draw lines, each with its time; a few have no stamp."""
    time_ns, lines = BEGIN, []
    for step, text in draw(st.lists(st.tuples(STEPS, TEXTS), min_size=1, max_size=40)):
        time_ns += step
        lines.append((time_ns, f"{stamp(time_ns)} ".encode() + text + b"\n"))
    for at in draw(st.lists(st.integers(0, len(lines)), max_size=2)):
        lines.insert(at, (time_ns, b"no stamp\n"))
    return lines


@pytest.mark.timeout(1200)
@example(
    [(BEGIN, f"{stamp(BEGIN)} new msg 5\n".encode())],
    [("write", 2), ("rotate", "s"), ("write", 1), ("rotate", "u"), ("write", 1), ("build",), ("finish", "gz")],
    64,
)
@example(
    [(BEGIN, f"{stamp(BEGIN)} xx\n".encode())],
    [("write", 27), ("rotate", "s"), ("write", 1), ("build",), ("rotate", "s"), ("write", 1), ("rotate", "s")],
    64,
)
@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=amount(300, 5_000))
@given(logs(), WAYS, st.sampled_from((64, 700, 1 << 22)))
def test_a_log_is_read_as_in_one_pass(
    lines: list[tuple[int, bytes]], steps: Sequence[Step], size: int
) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK", size)
        log = RotatingLog(Path(directory) / "h" / "q", lines)
        looks = Looks(Path(directory) / "h" / "q")
        found: list[ReadLine] = []

        def build() -> None:
            found.extend(looks.read())
            assert looks.warnings == [] and looks.read() == []

        follow(log, steps, build)
        assert [(line.text + b"\n", line.torn) for line in found] == [(line, False) for _, line in lines]
