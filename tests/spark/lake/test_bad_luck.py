"""Logs, names, data files and options that are worse than any that a healthy machine has."""

import errno
import gzip
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from queue_base.errors import Permanent
from queue_report.lake import build as build_module
from queue_report.lake.build import Order, build
from queue_report.lake.lake import open_lake
from queue_report.logs import reading
from queue_report.logs.reading import Reading
from queue_report.logs.streams import find_streams
from queue_report.runtime.files import LocalFiles
from queue_report.runtime.progress import Progress
from support.spark.logs.log_lake import Lake
from support.spark.runner import InProcess

MB = 1 << 20


def log(first: int, count: int) -> bytes:
    """Return lines, each a second after the one before."""
    return b"".join(b"@40000000%08x00000000 new msg %d\n" % (0x6553F10A + at, at) for at in range(first, first + count))


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def open_numbers(lake: Lake, host: str) -> list[int]:
    return sorted(row["id"] for row in lake.rows("pending") if row["host"] == host)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Logs with one good queue."""
    put(tmp_path / "logs" / "mx1" / "q" / "current", log(0, 5))
    return tmp_path / "logs"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def test_a_file_whose_name_is_no_utf8_has_its_bad_lines_in_quarantine(logs: Path, lake: Lake) -> None:
    put(logs / "mx1" / "q" / os.fsdecode(b"\xff.log"), log(10, 2) + b"garbage\n")
    lake.build(logs)
    assert [row["file"] for row in lake.rows("quarantine")] == ["mx1/q/%FF.log"]
    assert not lake.build(logs).lines


@pytest.mark.parametrize("part", [20, -20], ids=["at its beginning", "later"])
def test_a_damaged_archive_is_told_once_and_begins_no_stage_until_it_changes(
    logs: Path, lake: Lake, tmp_path: Path, part: int
) -> None:
    whole = gzip.compress(log(10, 2000))
    archive = logs / "mx1" / "q" / f"@40000000{0x6553F10A + 3000:08x}00000000.s.gz"
    # Of one size, whether damaged or whole.
    put(archive, whole[:part] + bytes(len(whole[part:])) if part < 0 else b"\x1f\x8b" + bytes(len(whole) - 2))
    first = lake.build(logs)
    assert [warning for warning in first.warnings if "its compressed content is damaged" in warning]
    runner = InProcess()
    order = Order(str(logs), str(tmp_path / "lake"))
    for _ in range(2):
        again = build(order, runner, Progress())
        assert (again.warnings, again.version, runner.ran) == ([], first.version, 0)
    put(logs / "mx1" / "q" / "current", log(0, 6))
    assert build(order, runner, Progress()).warnings == []
    put(archive, whole)
    os.utime(archive, (1, 1))
    build(order, runner, Progress())
    assert open_numbers(lake, "mx1") == [*range(6), *range(10, 2010)]
    assert not lake.build(logs).lines


def test_a_host_that_no_table_can_name_does_not_stop_the_others(logs: Path, lake: Lake) -> None:
    put(logs / os.fsdecode(b"mx\xff") / "q" / "current", log(0, 3))
    lake.build(logs)
    assert open_numbers(lake, "mx1") == [0, 1, 2, 3, 4]
    assert len(lake.warnings) == 1 and "its name is not UTF-8" in lake.warnings[0]


def test_two_directories_for_one_queue_do_not_stop_the_others(logs: Path, lake: Lake) -> None:
    put(logs / "mx2" / "q" / "current", log(0, 3))
    lake.build(logs)
    put(logs / "mx2" / "q" / "old" / "current", log(10, 3))
    put(logs / "mx1" / "q" / "current", log(0, 7))
    lake.build(logs)
    assert "would both be queue q of host mx2" in lake.warnings[0]
    assert open_numbers(lake, "mx1") == list(range(7)) and open_numbers(lake, "mx2") == [0, 1, 2]
    (logs / "mx2" / "q" / "old" / "current").unlink()
    put(logs / "mx2" / "q" / "current", log(0, 4))
    lake.build(logs)
    assert open_numbers(lake, "mx2") == [0, 1, 2, 3] and not lake.warnings


def test_links_that_lead_back_are_followed_once(logs: Path, lake: Lake) -> None:
    """Two of them were followed in 2^40 ways."""
    for name in ("one", "two", "three"):
        (logs / "mx1" / name).symlink_to("..")
        (logs / "mx1" / "q" / name).symlink_to("../..")
    lake.build(logs)
    assert open_numbers(lake, "mx1") == [0, 1, 2, 3, 4] and not lake.warnings


def test_directories_may_be_as_deep_as_the_disk_has_them(
    logs: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(logs)
    try:
        for _ in range(1500):
            os.mkdir("a")
            os.chdir("a")
        os.chdir(logs)
        lake.build(logs)
    finally:
        # pytest cannot remove them.
        subprocess.run(["rm", "-rf", logs / "a"], check=True)
    assert open_numbers(lake, "mx1") == [0, 1, 2, 3, 4]


def test_a_directory_that_is_gone_once_it_was_found_does_not_stop_the_others(
    logs: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(logs / "mx2" / "q" / "current", log(0, 3))

    def found_before(*given: Any) -> object:
        found = find_streams(*given)
        (logs / "mx2" / "q" / "current").unlink()
        (logs / "mx2" / "q").rmdir()
        return found

    monkeypatch.setattr(build_module, "find_streams", found_before)
    lake.build(logs)
    assert open_numbers(lake, "mx1") == [0, 1, 2, 3, 4] and "queue q of host mx2" in lake.warnings[0]


def texts(path: Path, content: bytes) -> list[tuple[bytes, int | None, bool]]:
    """Return each line of a log as it is read; of a long one only the ends."""
    path.write_bytes(content)
    found = []
    for lines in Reading(LocalFiles(str(path.parent)), "", {}).lines():
        for place, (start, end) in enumerate(zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)):
            line = lines.data[start:end]
            number = None if lines.first is None else lines.first + place
            found.append((line if len(line) < 200 else line[:40] + line[-40:], number, lines.torn))
    return found


@pytest.mark.parametrize("length", [2 * MB, 30 * MB])
def test_a_line_without_end_is_one_bad_line(tmp_path: Path, length: int) -> None:
    content = log(0, 3) + b"x" * length + b"\n" + log(3, 3)
    found = texts(tmp_path / "current", content)
    good = [line.encode() for line in log(0, 6).decode().splitlines()]
    assert found == [
        *((line, at, False) for at, line in enumerate(good[:3], 1)),
        (b"x" * 80, 4, True),
        *((line, at, False) for at, line in enumerate(good[3:], 5)),
    ]


@pytest.mark.parametrize("length", [2 * MB, 30 * MB])
def test_a_line_behind_many_lost_blocks_is_read(logs: Path, lake: Lake, length: int) -> None:
    put(logs / "mx1" / "q" / "current", log(0, 3) + b"\0" * length + log(3, 3))
    lake.build(logs)
    assert open_numbers(lake, "mx1") == [0, 1, 2, 3, 4, 5] and len(lake.rows("quarantine")) == 1


def peak(logs: Path) -> int:
    """Return how many MB of memory the reading of a stream takes."""
    script = (
        "import resource, sys\n"
        "from queue_report.logs.reading import Reading\n"
        "from queue_report.runtime.files import LocalFiles\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for lines in Reading(LocalFiles(sys.argv[1]), '', {}).lines(): pass\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)"
    )
    done = subprocess.run([sys.executable, "-c", script, logs], capture_output=True, text=True)
    assert done.returncode == 0, done
    return int(done.stdout)


def test_a_line_without_end_takes_no_more_memory_than_another_log(tmp_path: Path) -> None:
    """A few MB of gzip can be a line of gigabytes; here 200 MB."""
    with gzip.open(tmp_path / "bomb.gz", "wb", compresslevel=1) as file:
        file.write(log(0, 1))
        for _ in range(200):
            file.write(b"x" * MB)
    assert peak(tmp_path) < 60


def test_what_is_new_is_not_all_kept_in_memory(tmp_path: Path) -> None:
    with (tmp_path / "current").open("wb") as file:
        for at in range(100):
            file.write(log(at * 20_000, 20_000))
    assert peak(tmp_path) < 60


def test_a_block_of_many_short_lines_is_read_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_LINES_MAX", 7)
    content = b"\n" * 10 + log(0, 20) + b"\n\n"
    assert [line for line, _, _ in texts(tmp_path / "current", content)] == content.split(b"\n")[:-1]
    assert [number for _, number, _ in texts(tmp_path / "current", content)] == list(range(1, 33))
    blocks = list(Reading(LocalFiles(str(tmp_path)), "", {}).lines())
    assert max(len(one.starts) for one in blocks) == 7


@pytest.mark.parametrize("table", ["pending", "streams", "lines"])
@pytest.mark.parametrize("damage", [b"", b"\0" * 300, b"PAR1garbagePAR1", None])
def test_a_damaged_or_missing_data_file_is_permanent_trouble_and_named(
    logs: Path, lake: Lake, tmp_path: Path, damage: bytes | None, table: str
) -> None:
    lake.build(logs)
    before = open_lake(str(tmp_path / "lake"))
    path = tmp_path / "lake" / before.tables[table][0]
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    files = set((tmp_path / "lake").rglob("*"))
    # A stamp that was there before has the lines of then read.
    put(logs / "mx1" / "q" / "current", log(0, 5) + log(2, 3) + log(5, 2))
    why = "it is gone" if damage is None else "it is damaged: .*"
    with pytest.raises(Permanent, match=rf"^unable to read {path}: {why}; restore it, or build a new lake"):
        lake.build(logs)
    assert open_lake(str(tmp_path / "lake")).tables == before.tables
    assert set((tmp_path / "lake").rglob("*")) == files


def test_a_lake_that_a_link_leads_into_the_logs_is_refused(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(logs)
    with pytest.raises(Permanent, match="it is inside the logs"):
        Lake(tmp_path / "elsewhere" / "lake").build(logs)
    assert not (logs / "lake").exists()


def test_where_all_directories_are_bad_the_build_is_refused(tmp_path: Path, lake: Lake) -> None:
    put(tmp_path / "logs" / os.fsdecode(b"mx\xff") / "q" / "current", log(0, 3))
    with pytest.raises(Permanent, match="its name is not UTF-8"):
        lake.build(tmp_path / "logs")


def test_a_host_that_cannot_be_looked_at_does_not_stop_the_others(
    logs: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the mounted logs of a host that is down."""
    put(logs / "mx2" / "q" / "current", log(0, 3))
    scan = os.scandir

    def scan_one(path: str) -> Any:
        if path == f"{logs}/mx2":
            raise OSError(errno.ESTALE, "Stale file handle", path)
        return scan(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scan_one)
        lake.build(logs)
    assert open_numbers(lake, "mx1") == [0, 1, 2, 3, 4] and open_numbers(lake, "mx2") == []
    assert lake.warnings == [f"{logs}/mx2 is passed by: stale file handle"]
    lake.build(logs)
    assert open_numbers(lake, "mx2") == [0, 1, 2]


def test_a_copy_of_a_host_s_logs_by_another_name_is_told(logs: Path, lake: Lake) -> None:
    lake.build(logs)
    assert lake.warnings == []
    put(logs / "copy" / "q" / "current", log(0, 5))
    put(logs / "mx2" / "q" / "current", log(50, 5))
    lake.build(logs)
    assert lake.warnings == ["copy/q has the same log as mx1/q: each counts as a queue of its own; give one of them"]


def test_a_log_that_becomes_shorter_while_it_is_read_does_not_stop_anything(logs: Path, lake: Lake) -> None:
    """What was counted of it stays, and what is there again does not count twice."""
    current = logs / "mx1" / "q" / "current"
    put(current, log(0, 50))
    lake.build(logs)
    for content in (log(0, 20), log(0, 40)[:1010], log(0, 60)):
        put(current, content)
        lake.build(logs)
    assert open_numbers(lake, "mx1") == list(range(60)) and lake.rows("quarantine") == []


@pytest.mark.parametrize("name", ["current", "@400000006553f10a00000001.s"])
@pytest.mark.parametrize("lost", [b"", b"\0" * 700])
def test_what_comes_after_a_power_cut_that_took_the_end_of_a_log_is_read(
    logs: Path, lake: Lake, name: str, lost: bytes
) -> None:
    """The log goes on where the disk had it, and is longer than it was by the next build."""
    queue = logs / "mx1" / "q"
    put(queue / "current", log(0, 50))
    lake.build(logs)
    (queue / "current").unlink()
    put(queue / name, log(0, 30)[:-20] + lost + b"\n" + log(60, 40))
    if name != "current":
        put(queue / "current", log(100, 1))
    lake.build(logs)
    assert open_numbers(lake, "mx1") == [*range(50), *range(60, 100), *([100] if name != "current" else [])]
    assert len(lake.rows("quarantine")) == 1
    assert not lake.build(logs).lines


def test_pipes_sockets_and_devices_among_the_logs_are_never_opened(logs: Path, lake: Lake) -> None:
    queue = logs / "mx1" / "q"
    os.mkfifo(queue / "@400000006553f10a00000000.s")
    os.mkfifo(logs / "pipe")
    (queue / "zero").symlink_to("/dev/zero")
    (logs / "terminal").symlink_to("/dev/tty")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(queue / "socket"))
        lake.build(logs)
    assert open_numbers(lake, "mx1") == [0, 1, 2, 3, 4] and lake.warnings == []


def test_stamps_beyond_64_bits_are_bad_lines(logs: Path, lake: Lake) -> None:
    stamps = ("f" * 24, "7" + "f" * 23, "0" * 24, "8" + "0" * 15 + "f" * 8, "4000000fffffffff00000000")
    lines = b"".join(f"@{stamp} new msg {at + 70}\n".encode() for at, stamp in enumerate(stamps))
    put(logs / "mx1" / "q" / "current", lines + log(0, 5))
    lake.build(logs)
    assert open_numbers(lake, "mx1") == [0, 1, 2, 3, 4]
    assert [row["reason"] for row in lake.rows("quarantine")] == ["stamp out of range"] * 5
