"""Two builds of one lake at once, and builds beside those who tidy it: each line counts once, or the build says so."""

import subprocess
import sys
from pathlib import Path

import pytest

from queue_base.errors import Temporary
from queue_report.lake import build as build_module
from queue_report.lake.lake import Conflict, open_lake
from queue_report.lake.lake import Lake as OpenLake
from support.spark.killed_build import CrashAt
from support.spark.logs.growing_log import GrowingLog, assert_exact
from support.spark.logs.log_lake import Lake
from support.spark.runner import InProcess

BUILDS = """
import sys
from pathlib import Path
from queue_base.errors import Temporary
from support.spark.logs.log_lake import Lake
for _ in range(int(sys.argv[3])):
    try:
        Lake(Path(sys.argv[2])).build(Path(sys.argv[1]), compact=len(sys.argv) > 4)
    except Temporary as error:
        assert "another build is at work on it" in str(error), error
"""


class Meanwhile(CrashAt):
    """Has another build done as a phase begins, so often."""

    def __init__(self, phase: str, logs: Path, lake: Path, log: GrowingLog, times: int = 1) -> None:
        super().__init__()
        self._when, self._logs, self._lake, self._log, self.left = phase, logs, lake, log, times

    def phase(self, text: str) -> None:
        super().phase(text)
        if text == self._when and self.left:
            self.left -= 1
            self._log.grow(1)
            Lake(self._lake).build(self._logs)


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    made = GrowingLog(tmp_path / "logs" / "a" / "q")
    made.grow(1)
    Lake(tmp_path / "lake").build(tmp_path / "logs")
    made.grow(1)
    return made


def run(tmp_path: Path, progress: CrashAt) -> build_module.Summary:
    order = build_module.Order(str(tmp_path / "logs"), str(tmp_path / "lake"))
    return build_module.build(order, InProcess(), progress)


@pytest.mark.parametrize("phase", ["looking at the logs", "matching lines", "committing"])
def test_a_build_that_is_beaten_takes_what_the_other_has_left(log: GrowingLog, tmp_path: Path, phase: str) -> None:
    before = set((tmp_path / "lake").rglob("*.parquet"))
    progress = Meanwhile(phase, tmp_path / "logs", tmp_path / "lake", log)
    found = run(tmp_path, progress)
    assert_exact(Lake(tmp_path / "lake"), 3)
    assert found.lines == {} and not progress.left
    # And its own files are gone.
    opened = open_lake(str(tmp_path / "lake"))
    listed = {tmp_path / "lake" / path for paths in opened.tables.values() for path in paths}
    assert set((tmp_path / "lake").rglob("*.parquet")) - before <= listed


def test_a_build_that_is_beaten_again_and_again_says_so(log: GrowingLog, tmp_path: Path) -> None:
    progress = Meanwhile("committing", tmp_path / "logs", tmp_path / "lake", log, 100)
    other = GrowingLog(tmp_path / "logs" / "b" / "q")

    def grow_beside(text: str) -> None:
        other.grow(1)
        Meanwhile.phase(progress, text)

    progress.phase = grow_beside  # type: ignore[method-assign]
    with pytest.raises(Temporary) as failed:
        run(tmp_path, progress)
    assert str(failed.value) == (
        f"unable to build lake {tmp_path}/lake: another build is at work on it; "
        "it is as it was, run this again to go on"
    )
    Lake(tmp_path / "lake").build(tmp_path / "logs")
    assert_exact(Lake(tmp_path / "lake"), log.ended)
    assert_exact(Lake(tmp_path / "lake"), other.ended, "b")


def test_what_a_build_finds_in_the_files_that_another_has_put_together_counts_once(
    log: GrowingLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = OpenLake.commit
    tidied: list[int] = []

    def tidy_first(self: OpenLake, *given: object) -> OpenLake:
        if not tidied:
            tidied.append(open_lake(self.files.root).compact())
        return commit(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(OpenLake, "commit", tidy_first)
    run(tmp_path, CrashAt())
    log.grow(1)
    run(tmp_path, CrashAt())
    assert_exact(Lake(tmp_path / "lake"), 3)


def test_tidying_that_is_beaten_says_that_what_was_new_is_in_the_lake(
    log: GrowingLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beaten(self: OpenLake) -> int:
        raise Conflict

    monkeypatch.setattr(OpenLake, "compact", beaten)
    with pytest.raises(Temporary, match="another build is at work on it; what was new in the logs is in it, run this"):
        Lake(tmp_path / "lake").build(tmp_path / "logs", compact=True)
    assert_exact(Lake(tmp_path / "lake"), 2)


@pytest.mark.parametrize("tidy", [False, True])
def test_processes_that_build_one_lake_at_once_count_each_line_once(tmp_path: Path, tidy: bool) -> None:
    """The first of them make the lake at once, too."""
    logs, lake = tmp_path / "logs", tmp_path / "lake"
    grown = [GrowingLog(logs / host / "q") for host in "abc"]
    words = [sys.executable, "-c", BUILDS, str(logs), str(lake), "6"]
    builds = [
        subprocess.Popen([*words, *(["tidy"] if tidy and not number else [])], env={"PYTHONPATH": ":".join(sys.path)})
        for number in range(3)
    ]
    while any(build.poll() is None for build in builds):
        if grown[0].ended < 3000:
            for number, log in enumerate(grown):
                log.grow(5 + number)
    assert [build.wait() for build in builds] == [0, 0, 0]
    Lake(lake).build(logs)
    for host, log in zip("abc", grown, strict=True):
        assert_exact(Lake(lake), log.ended, host)
