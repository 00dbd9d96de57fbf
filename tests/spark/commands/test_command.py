"""queue-report's command line: what it refuses before it starts anything, and what it says at the end."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from queue_report.commands.summary import describe_build
from queue_report.lake.build import Summary
from queue_report.lake.lake import open_lake
from support.processes.suite import program, wait_until


def run(*words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*program("queue-report"), *words], env=environment, capture_output=True, text=True, timeout=280
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["build"], "Missing argument 'LOGS'"),
        (["build", "/logs"], "Missing option '--lake'"),
        (["build", "/logs", "--lake", "/lake", "--expire", "-1"], "Invalid value for '--expire'"),
        (["build", "/logs", "--lake", "/lake", "--conf", "spark"], "--conf spark: it must be KEY=VALUE"),
        (["build", "/logs", "--lake", "/lake", "--host", ""], "Invalid value for '--host': nothing is no name"),
        (["build", "/logs", "--lake", "/lake", "--queue", "a/b"], "Invalid value for '--queue': a/b is no name"),
        (["build", "", "--lake", "/lake"], "Invalid value for 'LOGS': nothing is no directory"),
        (["build", "/logs", "--lake", ""], "Invalid value for '--lake': nothing is no directory"),
        (["watch", "/logs", "--lake", ""], "Invalid value for '--lake': nothing is no directory"),
        (["watch", "/logs", "--lake", "/lake", "--every", "nan"], "nan is not in the range"),
        (["watch", "/logs", "--lake", "/lake", "--every", "inf"], "inf is not in the range"),
        (["watch", "/logs", "--lake", "/lake", "--every", "1e99"], "Invalid value for '--every': 1e99 is not in"),
        (["page", "--lake", "/lake", "--out", "/dev/null"], "unable to write /dev/null: it is no file; name one"),
        (["dance"], "No such command 'dance'"),
    ],
)
def test_wrong_usage_is_100_in_one_line(words: list[str], said: str) -> None:
    done = run(*words)
    assert done.returncode == 100
    assert said in done.stderr and done.stderr.count("\n") == 1 and done.stderr.startswith("queue-report: ")


def test_without_a_command_it_says_what_to_do_next_and_is_wrong_usage() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (100, "")
    for command in ("build", "watch", "show", "page", "demo"):
        assert f"\n  queue-report {command} " in done.stderr
    assert done.stderr.count("\n") < 12 and "\nqueue-report --help" in done.stderr


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("pyarrow", ["build", "/logs", "--lake"]),
        ("numpy", ["build", "/logs", "--lake"]),
        ("pyspark", ["build", "hdfs:///logs", "--lake"]),
        ("pyarrow", ["watch", "/logs", "--lake"]),
        ("numpy", ["demo", "--out"]),
        ("pyarrow", ["demo", "--out"]),
        ("deltalake", ["build", "/logs", "--lake"]),
        ("deltalake", ["watch", "/logs", "--lake"]),
        ("deltalake", ["history", "--lake"]),
        ("deltalake", ["show", "overall", "--engine", "spark", "--lake"]),
    ],
)
def test_without_what_a_build_needs_one_line_says_how_to_get_it(
    tmp_path: Path, module: str, words: list[str]
) -> None:
    (tmp_path / f"{module}.py").write_text(f"raise ImportError(\"No module named '{module}'\")\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = run(*words, str(tmp_path / "lake"), environment=environment)
    assert (done.returncode, done.stderr) == (
        100,
        f"queue-report: fatal: unable to load {module}: No module named '{module}'; install it with "
        "bin/setup-suite DIRECTORY spark, then run this again\n",
    )


def test_without_any_extra_it_tells_its_usage_and_a_report_says_how_to_get_them(tmp_path: Path) -> None:
    for module in ("deltalake", "duckdb", "numpy", "pandas", "pyarrow", "pyspark"):
        (tmp_path / f"{module}.py").write_text(f"raise ImportError(\"No module named '{module}'\")\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = run("show", "--help", environment=environment)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("Usage: queue-report show ")
    done = run("show", "overall", "--lake", str(tmp_path / "lake"), environment=environment)
    assert done.returncode == 100 and done.stderr.count("\n") == 1
    assert done.stderr.endswith("; install it with bin/setup-suite DIRECTORY report, then run this again\n")


def test_an_interrupt_is_one_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    log, lake = tmp_path / "logs" / "h" / "q" / "current", tmp_path / "lake"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"@400000006553f10a{at:08x} new msg {at}\n" for at in range(300_000)))
    words = [*program("queue-report"), "build", str(tmp_path / "logs"), "--lake", str(lake)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as building:
        wait_until(lambda: any(lake.glob("_delta_log/*.json")))
        building.send_signal(signal.SIGINT)
        said = building.communicate(timeout=100)[1]
    assert (building.returncode, said) == (
        111,
        "queue-report: fatal: interrupted; the lake is whole, with all that was new or nothing of it; run it again\n",
    )
    assert open_lake(str(lake)).number == 0


def test_the_summary_says_what_was_read_and_what_became_of_it() -> None:
    lines = {"new": 1000, "end": 999, "quarantine": 1, "info": 0}
    summary = Summary(2, 1_500_000, lines, 1, {"messages": 999, "pending": 1}, 0, 7, 1.25)
    assert describe_build(summary) == (
        "read 2,000 lines of 1 queue (2 files, 1.5 MB) in 1.2 s\n"
        "lines: end 999, new 1,000\n"
        "quarantined: 1 line that cannot be read; the table quarantine has the reason\n"
        "rows: messages 999, pending 1\n"
        "compacted: 7 files"
    )
    assert describe_build(Summary(expired=3)) == "nothing new in the logs\nexpired: 3 files"
