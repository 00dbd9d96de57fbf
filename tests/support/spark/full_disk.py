"""Builds of a lake whose disk gets full in each phase. A program, since it runs where only it sees that disk.

usage: python -m support.spark.full_disk DIRECTORY

DIRECTORY is a small disk of its own. On stdout, in JSON, by the phase as which began all room was taken: what the
build said, whether the lake was as before, and how many messages it has after a build with room.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from queue_base.errors import Failure
from support.spark.killed_build import CrashAt, build_and_tidy
from support.spark.logs.growing_log import GrowingLog, numbers
from support.spark.logs.log_lake import Lake

PHASES = ("looking at the lake", "looking at the logs", "matching lines", "writing what is open", "committing")


class FullAt(CrashAt):
    """Takes all room of a disk as a phase begins."""

    def __init__(self, disk: Path, phase: str) -> None:
        super().__init__()
        self._disk, self._when = disk, phase

    def phase(self, text: str) -> None:
        if text == self._when:
            found = os.statvfs(self._disk)
            with open(self._disk / "other", "wb") as file:
                os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize)


def contents(lake: Path) -> dict[str, bytes]:
    """Return all files of a lake."""
    return {str(path): path.read_bytes() for path in lake.rglob("*") if path.is_file()}


def fill(disk: Path, phase: str, is_first: bool) -> list[object]:
    """Build a lake twice, the first or second time with a disk that gets full; then once more."""
    name = f"{phase.replace(' ', '-')}-{is_first}"
    logs, place = disk.with_name("logs") / name, disk / name
    log = GrowingLog(logs / "a" / "q")
    if not is_first:
        build_and_tidy(logs, place, CrashAt())
        log.grow(1)
    before = contents(place)
    said = complaint(lambda: build_and_tidy(logs, place, FullAt(disk, phase)))
    # The first build makes an empty lake, of which a part may be there.
    same = {path: data for path, data in contents(place).items() if not (is_first and "_delta_log" in path)} == before
    (disk / "other").unlink(missing_ok=True)
    Lake(place).build(logs)
    return [said, same, numbers(Lake(place))[0] == list(range(log.ended))]


def complaint(work: Callable[[], object]) -> str:
    """Return the exit code and the text of a failure; '' for none."""
    try:
        work()
    except Failure as failure:
        return f"{failure.exit_code} {failure}"
    return ""


if __name__ == "__main__":
    disk = Path(sys.argv[1])
    print(json.dumps({f"{phase} {first}": fill(disk, phase, first) for phase in PHASES for first in (False, True)}))
