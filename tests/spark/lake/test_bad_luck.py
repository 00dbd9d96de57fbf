"""Logs, names, data files and options that are worse than any that a healthy machine has."""

import errno
import gzip
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark.lake.newest import open_local
from spark.logs.plan import Part, SourceError
from spark.logs.reader import read_lines
from spark.logs.segments import cut
from spark.runtime.places import LocalPlace

from queue_base.errors import Permanent, Usage
from spark.lake.build import DRIVER_SETTING, Order, build
from spark.logs import reader, sources
from spark.match.lines import Lines
from spark.runtime.progress import Progress
from support.spark.logs.log_lake import Lake
from support.spark.logs.scripted_logs import NoSpark

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


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (os.fsdecode(b"mx\xff"), "its name is not UTF-8"),
        ("__HIVE_DEFAULT_PARTITION__", "no host may be called"),
        ("%" * 200, "its host's name is too long"),
    ],
)
def test_a_host_that_no_table_can_name_does_not_stop_the_others(logs: Path, lake: Lake, name: str, told: str) -> None:
    put(logs / name / "q" / "current", log(0, 3))
    lake.build(logs)
    assert open_numbers(lake, "mx1") == [0, 1, 2, 3, 4]
    assert len(lake.warnings) == 1 and told in lake.warnings[0]


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
    find = sources._find_streams

    def found_before(*given: object) -> object:
        found = find(*given)  # type: ignore[arg-type]
        (logs / "mx2" / "q" / "current").unlink()
        (logs / "mx2" / "q").rmdir()
        return found

    monkeypatch.setattr(sources, "_find_streams", found_before)
    lake.build(logs)
    assert open_numbers(lake, "mx1") == [0, 1, 2, 3, 4] and "queue q of host mx2" in lake.warnings[0]


def test_what_is_new_in_many_logs_is_not_all_kept_in_memory(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        put(logs / f"host{number}" / "q" / "current", log(0, 100))
    monkeypatch.setattr(sources, "KEPT_MAX", 12_000)
    found = sources.plan(LocalPlace(str(logs)), {}, LocalPlace(str(tmp_path / "copies")))
    kept = [part.content for parts in found.streams.values() for part in parts if part.content is not None]
    assert 0 < sum(map(len, kept)) <= 12_000
    whole = [log(0, 100)] * 20 + [log(0, 5)]
    read = [(part.content or Path(part.path).read_bytes()) for parts in found.streams.values() for part in parts]
    assert sorted(read) == sorted(whole)


def texts(path: Path, content: bytes, size: int | None = None) -> list[tuple[bytes, int | None, bool]]:
    """Return each line of a log as it is read, in segments of so many bytes; of a long one only the ends."""
    path.write_bytes(content)
    part = Part(str(path), "h/q/current", "current", 0, len(content), 1)
    counted: Counter[str] = Counter()
    found = []
    segments = cut(LocalPlace(str(path.parent)), ("h", "q"), [part], size or len(content))
    for segment in segments:
        for lines in read_lines(segment.parts, counted):
            for place, (start, end) in enumerate(zip(lines.starts.tolist(), lines.ends.tolist(), strict=True)):
                line = lines.data[start:end]
                number = None if lines.first is None else lines.first + place
                found.append((line if len(line) < 200 else line[:40] + line[-40:], number, lines.torn))
    return found


@pytest.mark.parametrize("size", [None, 8 * MB])
@pytest.mark.parametrize("length", [2 * MB, 30 * MB])
def test_a_line_without_end_is_one_bad_line(tmp_path: Path, size: int | None, length: int) -> None:
    content = log(0, 3) + b"x" * length + b"\n" + log(3, 3)
    found = texts(tmp_path / "current", content, size)
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


def test_a_line_without_end_takes_no_more_memory_than_another_log(tmp_path: Path) -> None:
    """A few MB of gzip can be a line of gigabytes; here 200 MB."""
    with gzip.open(tmp_path / "bomb.gz", "wb", compresslevel=1) as file:
        for _ in range(200):
            file.write(b"x" * MB)
    script = (
        "import resource, sys; from collections import Counter; from spark.logs.plan import Part\n"
        "from spark.logs.reader import read_lines\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "list(read_lines([Part(sys.argv[1], 'a', 'a', 0, 200 << 20, 1, packed='gzip')], Counter()))\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "bomb.gz"], capture_output=True, text=True)
    assert done.returncode == 0 and int(done.stdout) < 60, done


def test_where_a_long_line_ends_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from spark.logs import segments

    content = log(0, 3) + b"x" * (40 * MB)
    (tmp_path / "current").write_bytes(content)
    looked: list[int] = []
    look = segments._line_end

    def look_and_note(path: str, wanted: int, end: int) -> int | None:
        looked.append(wanted)
        return look(path, wanted, end)

    monkeypatch.setattr(segments, "_line_end", look_and_note)
    part = Part(str(tmp_path / "current"), "h/q/current", "current", 0, len(content), 1)
    assert len(cut(LocalPlace(str(tmp_path)), ("h", "q"), [part], MB)) == 1
    assert len(looked) == 1


def test_a_block_of_many_short_lines_is_read_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_LINES_MAX", 7)
    content = b"\n" * 10 + log(0, 20) + b"\n\n"
    assert [line for line, _, _ in texts(tmp_path / "current", content)] == content.split(b"\n")[:-1]
    assert [number for _, number, _ in texts(tmp_path / "current", content)] == list(range(1, 33))
    counted: Counter[str] = Counter()
    blocks: list[Lines] = list(read_lines([Part(str(tmp_path / "current"), "a", "a", 0, len(content), 1)], counted))
    assert max(len(one.starts) for one in blocks) == 7 and counted == {"a": 32}


@pytest.mark.parametrize("damage", [b"", b"\0" * 300, b"PAR1garbagePAR1"])
def test_a_damaged_data_file_is_permanent_trouble(logs: Path, lake: Lake, tmp_path: Path, damage: bytes) -> None:
    lake.build(logs)
    directory, manifest = open_local(str(tmp_path / "lake"))
    (path,) = manifest.tables["pending"]
    Path(directory, "pending", path).write_bytes(damage)
    put(logs / "mx1" / "q" / "current", log(0, 7))
    with pytest.raises(Permanent, match=r"unable to read .*parquet: it is damaged: .*; restore it, or build a new"):
        lake.build(logs)
    assert open_local(str(tmp_path / "lake"))[1] == manifest
    assert not list((tmp_path / "lake" / "_batch").iterdir())


def test_a_lake_that_a_link_leads_into_the_logs_is_refused(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(logs)
    with pytest.raises(Permanent, match="it is inside the logs"):
        Lake(tmp_path / "elsewhere" / "lake").build(logs)
    assert not (logs / "lake").exists()


@pytest.mark.parametrize("value", ["x", "-1", "1e9", "", "9" * 5000])
def test_a_setting_that_is_no_number_is_wrong_usage(logs: Path, tmp_path: Path, value: str) -> None:
    order = Order(str(logs), str(tmp_path / "lake"), settings={DRIVER_SETTING: value})
    with pytest.raises(Usage, match="it must be a number of bytes"):
        build(order, NoSpark(), Progress())


def test_where_all_directories_are_bad_the_build_is_refused(tmp_path: Path, lake: Lake) -> None:
    put(tmp_path / "logs" / os.fsdecode(b"mx\xff") / "q" / "current", log(0, 3))
    with pytest.raises(Permanent, match="its name is not UTF-8"):
        lake.build(tmp_path / "logs")
    with pytest.raises(SourceError):
        sources.plan(LocalPlace(str(tmp_path / "logs")), {}, LocalPlace(str(tmp_path / "copies")))


def test_a_host_that_cannot_be_looked_at_does_not_stop_the_others(
    logs: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the mounted logs of a host that is down."""
    put(logs / "mx2" / "q" / "current", log(0, 3))
    scan = os.scandir

    class Entry:
        def __init__(self, found: os.DirEntry[str]) -> None:
            self._found = found

        def __getattr__(self, name: str) -> Any:
            return getattr(self._found, name)

        def stat(self, **given: Any) -> os.stat_result:
            if self._found.name == "mx2":
                raise OSError(errno.ESTALE, "Stale file handle", self._found.path)
            return self._found.stat(**given)

    class Scan:
        def __init__(self, path: str) -> None:
            with scan(path) as entries:
                self._found = [Entry(entry) for entry in entries]

        def __enter__(self) -> Iterator[Entry]:
            return iter(self._found)

        def __exit__(self, *given: object) -> None:
            pass

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", Scan)
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
