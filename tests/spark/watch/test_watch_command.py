"""queue-report watch as a process: its batches, its signals, its trouble, and under both supervisors."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.processes.forked import BIN
from support.processes.suite import program, wait_until
from support.processes.supervision import Daemontools, Runit, Supervisor
from support.spark.watched_week import GrowingLog

BATCH = r"batch \d+: \d+ lines of 1 queue, \d+ rows, [\d.]+ s$"


class Watched:
    """A log, a lake and a queue-report that watches them; what it prints is in `said`."""

    def __init__(self, top: Path) -> None:
        self.logs, self.lake = top / "logs", top / "lake"
        self.log = GrowingLog(self.logs / "mx1" / "q")
        self.log.grow(0)
        self._out = top / "out"

    @contextmanager
    def run(self, *options: str) -> "Iterator[subprocess.Popen[bytes]]":
        words = [*program("queue-report"), "watch", str(self.logs), "--lake", str(self.lake), "--every", "3600"]
        words += options
        with (
            open(self._out, "ab") as out,
            subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    def said(self) -> list[str]:
        return self._out.read_text().splitlines()

    def wait_for(self, beginning: str, times: int = 1) -> None:
        # The first batch starts Spark, which takes a minute on a busy machine.
        wait_until(lambda: sum(1 for line in self.said() if line.startswith(beginning)) >= times, 200.0, beginning)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_it_reads_what_is_there_a_hangup_reads_more_and_term_ends_it(watched: Watched, tmp_path: Path) -> None:
    page = tmp_path / "mail.html"
    with watched.run("--page", str(page)) as process:
        watched.wait_for("batch 1: 15 lines of 1 queue, ")
        watched.log.grow(1)
        process.send_signal(signal.SIGHUP)
        watched.wait_for("batch 2: 14 lines of 1 queue, ")
        process.send_signal(signal.SIGHUP)
        watched.wait_for("batch 3: nothing new, ")
        assert page.read_text().startswith("<!DOCTYPE html>")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    said = [line for line in watched.said() if not line.startswith("page: written, ")]
    assert len(said) == len(watched.said()) - 1, "the second page comes later: the first took that long"
    assert said[0] == f"status: watching {watched.logs} for lake {watched.lake}, every 3600 s"
    assert said[-1] == "status: exiting" and len(said) == 5


@pytest.mark.parametrize("what", ["logs", "lake"])
def test_a_disk_that_is_not_mounted_for_a_while_is_a_warning_and_comes_later(watched: Watched, what: str) -> None:
    place = watched.logs if what == "logs" else watched.lake
    with watched.run() as process:
        watched.wait_for("batch 1: 15 lines")
        watched.log.grow(1)
        place.rename(place.with_name("away"))
        place.mkdir()
        process.send_signal(signal.SIGHUP)
        watched.wait_for("warning: unable to ")
        assert list(place.iterdir()) == []
        place.rmdir()
        process.send_signal(signal.SIGHUP)
        watched.wait_for("warning: unable to ", times=2)
        place.with_name("away").rename(place)
        process.send_signal(signal.SIGHUP)
        watched.wait_for("batch 4: 14 lines")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_arrow_takes_its_memory_from_the_system_unless_somebody_chose_otherwise(watched: Watched) -> None:
    code = f"""
import atexit, sys
from queue_report.main import main
def show():
    import pyarrow
    print(pyarrow.default_memory_pool().backend_name)
atexit.register(show)
sys.exit(main(["queue-report", "watch", {str(watched.logs / "none")!r}, "--lake", {str(watched.lake)!r}]))
"""
    for chosen, pool in (({}, "system"), ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc")):
        environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, env=environment | chosen, check=False, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout.splitlines()[-1]) == (100, pool), done.stderr


def test_logs_that_are_not_there_at_the_start_end_it_with_100(watched: Watched) -> None:
    watched.logs.rename(watched.logs.with_name("away"))
    with watched.run() as process:
        assert process.wait(60) == 100
    assert watched.said()[-1].startswith(f"queue-report: fatal: unable to read logs {watched.logs}: ")


def test_a_page_that_no_engine_can_make_ends_it_at_its_start(watched: Watched, tmp_path: Path) -> None:
    script = (
        "import importlib.util, sys; from queue_report.main import main; find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name in ('duckdb', 'pyspark') else find(name, *more)\n"
        "sys.exit(main(sys.argv))"
    )
    words = ["watch", str(watched.logs), "--lake", str(watched.lake), "--page", str(tmp_path / "mail.html")]
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 100 and done.stdout == "" and not watched.lake.exists()
    assert "fatal: unable to load duckdb or pyspark: neither is installed; bin/setup-suite" in done.stderr


# Each start of Spark takes seconds, and the supervisors differ little here.
@pytest.fixture(
    params=[
        pytest.param(Daemontools, id="svscan"), pytest.param(Runit, id="runsvdir", marks=pytest.mark.exhaustive)
    ]
)  # fmt: skip
def supervisor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Supervisor]:
    made: Supervisor = request.param(tmp_path)
    with made:
        yield made


def test_a_supervisor_starts_it_and_starts_it_again(supervisor: Supervisor, tmp_path: Path) -> None:
    watched = Watched(tmp_path / "watched")
    supervisor.log_directory = supervisor.service / "log" / "main"
    words = [sys.executable, str(BIN / "queue-report"), "watch", str(watched.logs), "--lake", str(watched.lake)]
    subprocess.run([*words, "--service", str(supervisor.service)], check=True, capture_output=True, timeout=60)
    supervisor.add()
    supervisor.wait_for(f" {BATCH}")
    watched.log.grow(1)
    supervisor.term()
    supervisor.wait_for(f" {BATCH}", times=2)
    supervisor.wait_for(" status: exiting$")
