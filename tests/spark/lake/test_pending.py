"""What is open at the end of a build: written and read in slices, each stream for itself."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from queue_report.lake.lake import open_lake
from queue_report.match.state import Message, State
from support.spark.logs.log_files import write_files
from support.spark.logs.log_lake import Lake

BEGIN = 4_611_686_018_427_387_914 + 1_700_000_000
PEAK = """
import resource, sys
from pathlib import Path
from support.spark.logs.log_lake import Lake
Lake(Path(sys.argv[2])).build(Path(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


def lines_of(first: int, count: int) -> list[bytes]:
    """Return the lines of messages that arrive and stay open, each a second after the one before."""
    lines = []
    for number in range(first, first + count):
        stamp = b"@%016x00000000" % (BEGIN + number)
        lines.append(b"%b new msg %d\n" % (stamp, number))
        lines.append(b"%b info msg %d: bytes 900 from <u%d@a.example> qp 5 uid 7\n" % (stamp, number, number % 99))
        lines.append(b"%b starting delivery %d: msg %d to remote r@b%d.example\n" % (stamp, number, number, number % 9))
        lines.append(b"%b delivery %d: deferral: later/\n" % (stamp, number))
    return lines


def feed(lake: Lake, logs: Path, stream: str, first: int, count: int) -> None:
    write_files(logs / stream, [(f"@{BEGIN + first + count:016x}00000000.s", b"".join(lines_of(first, count)))])
    lake.feed(logs)


def opened(lake: Lake) -> list[tuple[str, str, int]]:
    return sorted((row["host"], row["queue"], row["id"]) for row in lake.rows("pending"))


def test_messages_leave_the_state_as_they_are_taken_and_the_rows_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queue_report.match.state.SLICE", 3)
    state = State("a", "q")
    for number in range(8):
        state.messages[number] = Message(number, number, (5, 7, b"s", 900, number, number))
    state.deliveries[1] = (state.messages[7], 1, b"remote r", 9, state.messages[7].facts)
    packed = state.pack()
    left, batches = [], []
    for batch in state.take_slices():
        batches.append(batch)
        left.append(len(state.messages))
    assert left == [5, 2, 0, 0]
    assert pa.Table.from_batches(batches).equals(packed)
    again = State.unpack("a", "q", packed)
    assert again.pack().equals(packed)
    assert again.deliveries[1][0] is again.messages[7]


def test_a_build_takes_what_is_open_from_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queue_report.match.state.SLICE", 10)
    monkeypatch.setattr("queue_report.lake.data_files.GROUP_BYTES", 4000)
    lake, logs = Lake(tmp_path / "lake"), tmp_path / "logs"
    feed(lake, logs, "a/in", 0, 45)
    feed(lake, logs, "b/in", 0, 5)
    feed(lake, logs, "b/out", 0, 25)
    feed(lake, logs, "a/in", 100, 10)
    assert len(open_lake(str(tmp_path / "lake")).tables["pending"]) >= 5
    expected = [("a", "in", number) for number in [*range(45), *range(100, 110)]]
    expected += [("b", "in", number) for number in range(5)] + [("b", "out", number) for number in range(25)]
    assert opened(lake) == expected


def test_what_is_stored_keeps_its_order_in_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipient that was stored twice is delivered twice: the later one first."""
    monkeypatch.setattr("queue_report.match.state.SLICE", 1)
    monkeypatch.setattr("queue_report.lake.data_files.GROUP_BYTES", 1)
    lines = "".join(
        f"@{BEGIN + at:016x}00000000 new msg {at}\n" for at in range(30)
    )  # fmt: skip
    write_files(tmp_path / "logs" / "a" / "in", [("current", lines.encode())])
    lake = Lake(tmp_path / "lake")
    lake.feed(tmp_path / "logs")
    assert len(open_lake(str(tmp_path / "lake")).tables["pending"]) == 30
    assert [row["id"] for row in lake.rows("pending")] == list(range(30))


def test_what_is_open_needs_memory_once(tmp_path: Path) -> None:
    """A build that begins and ends with 60,000 open messages needs less than 1.5 kB more for each."""

    def peak(count: int) -> int:
        logs, lake = tmp_path / f"logs{count}", tmp_path / f"lake{count}"
        feed(Lake(lake), logs, "a/in", 0, count)
        write_files(logs / "a" / "in", [("current", b"".join(lines_of(1 << 20, 1)))])
        words = [sys.executable, "-c", PEAK, str(logs), str(lake)]
        path = ":".join(sys.path)
        done = subprocess.run(words, env={"PYTHONPATH": path}, stdout=subprocess.PIPE, check=True, timeout=120)
        return int(done.stdout)

    assert peak(60_000) - peak(10) < 90
