"""queue-report show: times as people write them, and what it says of a wrong order."""

import subprocess
import sys
from pathlib import Path

import pytest

from queue_report.commands.times import parse_time
from queue_report.reports import REPORTS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-01", 0),
        ("2023-11-14T22:13:20Z", 1_700_000_000 * 10**9),
        ("2023-11-14 22:13", 1_699_999_980 * 10**9),
        ("2023-11-14T23:13:20.000000001+01:00", 1_700_000_000 * 10**9 + 1),
        ("2023-11-14T22:13:20.5", 1_700_000_000 * 10**9 + 500_000_000),
        ("@400000006553f10a00000007", 1_700_000_000 * 10**9 + 7),
        ("1969-12-31T23:59:59.5", -500_000_000),
    ],
)
def test_a_time_is_read_to_the_nanosecond(text: str, nanoseconds: int) -> None:
    assert parse_time(text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    ["", "now", "2023-02-30", "2023-11-14T25:00", "2023-11-14.5", "2023-11-14T22:13.5", "1700000000", "@4000",
     "@400000006553f10aee6b2800", "@ffffffffffffffff00000000", "2023-11-14T22:13:20+99:99"],
)  # fmt: skip
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        parse_time(text)


@pytest.mark.parametrize("text", ["0001-01-01", "1677-09-20", "2262-04-12", "9999-12-31T23:59:59Z"])
def test_a_time_that_no_long_of_nanoseconds_holds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is out of range; a time is from 1677-09-22 to 2262-04-11$"):
        parse_time(text)
    assert parse_time("1677-09-22") < 0 < parse_time("2262-04-11T23:47:16") < 2**63


def show(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "bin" / "queue-report"), "show", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_show_alone_lists_the_reports() -> None:
    said = show()
    assert [line.split()[0] for line in said.stdout.splitlines()] == list(REPORTS)
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("overal", "--lake", "x"), f"no such report; known are {' '.join(REPORTS)}"),
        (("overall",), "show needs --lake LAKE"),
        (("overall", "--lake", "x", "--since", "2026-11-20", "--until", "2026-11-20"), "--until must be later"),
        (("overall", "--lake", "x", "--at", "2026-11-20"), "--at is for qshape and qshape-senders; overall takes"),
        (("overall", "--lake", "x", "--at", "noon"), "noon is no time"),
        (("overall", "--lake", "x", "--format", "xml"), "'xml' is not one of 'table', 'csv', 'json'"),
        (("overall", "--lake", "x", "--conf", "yes"), "it must be KEY=VALUE"),
        (("overall", "--lake", "x", "--engine", "duckdb", "--master", "local"), "--master and --conf are Spark's"),
        (("overall", "--lake", "hdfs://x/y", "--engine", "duckdb"), "it is not on this machine; use --engine spark"),
    ],
)
def test_a_wrong_order_is_refused_in_one_line_before_spark_starts(arguments: tuple[str, ...], told: str) -> None:
    said = show(*arguments)
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (100, "", 1)
    assert told in said.stderr
