"""bench/report's large logs are logs: whole, in the forms that a logger leaves, with what each size promises."""

import sys
from pathlib import Path

import pytest

from support.plugins.amount import amount
from support.spark.logs.log_files import Files
from support.spark.logs.log_reference import read_stream

sys.path.append(str(Path(__file__).resolve().parents[3] / "bench"))

from reporting.logs import write_logs


def read_files(directory: Path) -> Files:
    """Return the files of a log directory in order."""
    paths = sorted(directory.iterdir(), key=lambda path: (path.name == "current", path.name))
    return [(path.name, path.read_bytes()) for path in paths]


def most_at_once(spans: list[tuple[int, int]]) -> int:
    """Return how many of the spans overlap where most do."""
    now = most = 0
    for _, change in sorted([*((begin, 1) for begin, _ in spans), *((end, -1) for _, end in spans)]):
        now += change
        most = max(most, now)
    return most


@pytest.mark.parametrize(("size", "backlog"), [(amount(800_000, 1_500_000), 0), (0, amount(700, 4000))])
def test_every_line_of_a_large_log_is_understood_and_every_message_ends(
    tmp_path: Path, size: int, backlog: int
) -> None:
    written = write_logs(tmp_path / "logs", size, backlog, file_size=100_000)
    files = read_files(tmp_path / "logs")
    assert written == sum(len(data) for _, data in files) >= size
    assert len(files) > 3
    truth = read_stream(files, "h", "q")
    assert (truth.waiting, truth.flying, truth.quarantine) == ([], [], [])
    spans = [(row.birth_ns or 0, row.done_ns or 0) for row in truth.messages]
    if backlog:
        assert backlog <= most_at_once(spans) <= backlog + 100
    else:
        assert most_at_once(spans) < 300
        assert {row.outcome for row in truth.messages} == {"delivered", "bounced"}
        assert {row.result for row in truth.deliveries} == {"success", "failure", "deferral"}
        assert any(row.bounce_of for row in truth.messages)
