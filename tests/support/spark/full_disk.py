"""Builds of a lake whose disk gets full in each phase. A program, since it runs where only it sees that disk.

usage: python -m support.spark.full_disk DIRECTORY

DIRECTORY is a small disk of its own. On stdout, in JSON, by the phase as which began all room was taken: what the
build said, whether the lake was as before, and its messages after a build with room. `copying` is a real log's build.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_base.errors import Failure
from spark.lake.build import Order, build
from spark.runtime.progress import Progress
from support.spark.logs.scripted_logs import NoSpark, ScriptedLake, message

PHASES = ("looking at the logs", "matching lines", "writing pending", "moving files in", "writing the manifest")


class FullAt(Progress):
    """Takes all room of a disk as a phase begins."""

    def __init__(self, disk: Path, phase: str) -> None:
        self._disk, self._phase = disk, phase

    def phase(self, text: str) -> None:
        if text == self._phase:
            found = os.statvfs(self._disk)
            with open(self._disk / "other", "wb") as file:
                os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize)


def contents(lake: Path) -> dict[str, bytes]:
    """Return all files of a lake but the one that says who builds, and a manifest that is not finished."""
    files = (path for path in lake.rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files if path.name != "_lock" and path.suffix != ".new"}


def fill(disk: Path, phase: str) -> list[object]:
    """Build a lake twice, the second time with a disk that gets full; then once more."""
    place = disk / phase.replace(" ", "-")
    with pytest.MonkeyPatch.context() as patch:
        lake = ScriptedLake(str(place), patch)
        lake.script = [{"messages": [message("1.1")]}]
        lake.build()
        before = contents(place)
        lake.script.append({"messages": [message("2.2")]})
        said = complaint(lambda: lake.build(FullAt(disk, phase)))
        same = contents(place) == before and lake.rows("messages", "key") == [("1.1",)]
        (disk / "other").unlink()
        lake.build()
        return [said, same, [key for (key,) in lake.rows("messages", "key")]]


def copy(disk: Path, log: Path) -> list[object]:
    """Build a lake of a log of which a copy is made, as of each that grows; there is no room for it."""
    log.parent.mkdir(parents=True)
    log.write_text("@400000006553f10a00000000 new msg 457\n" * 1000)
    order = Order(str(log.parents[2]), str(disk / "copying"))
    said = complaint(lambda: build(order, NoSpark(), FullAt(disk, "looking at the logs")))
    return [said, not (disk / "copying" / "messages").exists(), []]


def complaint(work: Callable[[], object]) -> str:
    """Return the exit code and the text of a failure; '' for none."""
    try:
        work()
    except Failure as failure:
        return f"{failure.exit_code} {failure}"
    return ""


if __name__ == "__main__":
    disk = Path(sys.argv[1])
    found = {phase: fill(disk, phase) for phase in PHASES}
    found["copying"] = copy(disk, disk.with_name("logs") / "h" / "q" / "current")
    print(json.dumps(found))
