"""From lines of a log to what a report says of them: what no table written by hand can show."""

from pathlib import Path

import pytest

from queue_report.reports.duckdb_engine import DuckEngine
from queue_report.reports.engine import Engine
from queue_report.reports.report import View
from support.spark.lake_rows import ask, ns
from support.spark.logs.log_files import lines_of, write_files
from support.spark.logs.log_lake import Lake

T = 1_700_000_000
HOURS = 8 * 3600
BUSY = "status: local 10/10 remote 20/20"
IDLE = "status: local 0/10 remote 0/20"


def engine_of(directory: Path, *log: tuple[int, str]) -> Engine:
    """Return an engine over a lake of one log; its lines have the seconds since T."""
    content = b"".join(lines_of([(ns(T + at), line) for at, line in log]))
    write_files(directory / "logs" / "h" / "q", [("current", content)])
    Lake(directory / "lake").feed(directory / "logs")
    return DuckEngine(str(directory / "lake"))


STARTS = ((9, "new msg 5"), (9, "info msg 5: bytes 9 from <> qp 7 uid 1"))


@pytest.mark.parametrize("stopped", [False, True])
def test_the_time_until_the_next_run_is_a_gap_after_a_crash_and_after_a_clean_stop(
    tmp_path: Path, stopped: bool
) -> None:
    log = [(0, IDLE), *STARTS, (10, "starting delivery 1: msg 5 to local joe"), (10, BUSY)]
    if stopped:
        log += [(59, "delivery 1: deferral: no."), (60, "status: exiting")]
    else:
        log += [(60, "warning: unable to do anything")]
    engine = engine_of(tmp_path, *log, (HOURS, IDLE), (HOURS + 40, "status: local 1/10 remote 0/20"))
    columns = ("channel", "seconds", "at_limit", "average")
    assert ask("concurrency", engine, None, *columns) == [("local", 100, 50, 5), ("remote", 100, 50, 10)]
    assert ask("concurrency-hours", engine, None, "channel", "seconds") == [
        ("local", 60), ("remote", 60), ("local", 40), ("remote", 40),
    ]  # fmt: skip
    assert sum(row[0] for row in ask("concurrency-levels", engine, None, "seconds")) == 200


def test_recipients_wait_under_their_domains_as_soon_as_one_start_of_each_is_in_the_log(tmp_path: Path) -> None:
    engine = engine_of(
        tmp_path,
        (0, IDLE),
        (1, "new msg 5"),
        (1, "info msg 5: bytes 9 from <a@b.example> qp 7 uid 1"),
        (2, "starting delivery 1: msg 5 to remote x@slow.example"),
        (3, "starting delivery 2: msg 5 to remote x@dead.example"),
        (4, "delivery 2: deferral: no._(#4.4.1)"),
        (5, "new msg 6"),
        (5, "info msg 6: bytes 9 from <a@b.example> qp 8 uid 1"),
        (6, "starting delivery 3: msg 6 to remote y@dead.example"),
        (6, "delivery 3: deferral: no._(#4.4.1)"),
        (7, "new msg 8"),
        (7, "info msg 8: bytes 9 from <a@b.example> qp 9 uid 1"),
    )
    assert ask("qshape", engine, None, "domain", "T") == [
        ("TOTAL", 4), ("dead.example", 2), ("slow.example", 1), ("(not yet tried)", 1),
    ]  # fmt: skip
    # What was tried only later is known too.
    assert ask("qshape", engine, View(at=ns(T + 1)), "domain", "T") == [
        ("TOTAL", 2), ("dead.example", 1), ("slow.example", 1),
    ]  # fmt: skip
