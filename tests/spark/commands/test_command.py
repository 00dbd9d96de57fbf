"""queue-report's command line: what it refuses before it starts anything, and what it draws on a terminal."""

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spark.commands.summary import describe_build
from spark.lake.build import Summary
from spark.lake.lake import open_lake
from spark.runtime import progress as progress_module
from spark.runtime.progress import ShownProgress, draw, make_progress
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


def test_a_line_of_progress_shows_the_phase_and_fits_the_terminal() -> None:
    assert draw("writing messages", 0, 0, 80) == "queue-report: writing messages"
    assert draw("reading lines", 3, 12, 80) == "queue-report: reading lines [######                  ] 3/12"
    assert len(draw("reading lines", 3, 12, 30)) == 29


def test_progress_is_drawn_until_the_end_and_wiped_away(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = threading.Event()

    class Screen(io.StringIO):
        def write(self, text: str) -> int:
            if "moving files in" in text:
                drawn.set()
            return super().write(text)

    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with ShownProgress(True) as progress:
        progress.phase("moving files in")
        assert drawn.wait(30)
    assert screen.getvalue().startswith("\rqueue-report: ") and screen.getvalue().endswith("\r\033[K")


def test_what_is_no_terminal_gets_a_line_each_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    said, screen = threading.Event(), io.StringIO()
    monkeypatch.setattr(progress_module, "MINUTE", 0.01)
    monkeypatch.setattr(screen, "flush", said.set)
    monkeypatch.setattr(sys, "stderr", screen)
    with make_progress() as progress:
        progress.phase("matching lines")
        assert said.wait(30)
    assert set(screen.getvalue().splitlines()) <= {"queue-report: starting", "queue-report: matching lines"}


def test_progress_tells_how_much_is_read_how_fast_and_what_is_left() -> None:
    line = "queue-report: matching [############            ] 3/6, 225 of 450 MB, 25 MB/s, 9 s left"
    assert draw("matching", 3, 6, 100, 450_000_000, 9.0) == line
    assert draw("matching", 0, 6, 100, 450_000_000, 9.0).endswith("] 0/6, 0 of 450 MB")


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
