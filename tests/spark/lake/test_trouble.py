"""What is no lake, or cannot be written, or is in use, is refused in one line, and is left as it was."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from queue_base.errors import Permanent, Temporary
from spark.lake.lock import locked
from spark.lake.manifest import VERSION, Manifest, NotAManifest, pack, unpack
from spark.lake.newest import manifest_path, open_local
from spark.runtime.errors import JAVA_ERRORS, java_reason
from spark.runtime.places import LocalPlace
from support.spark.logs.scripted_logs import ScriptedLake, message

pytestmark = pytest.mark.together


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedLake:
    made = ScriptedLake(str(tmp_path / "lake"), monkeypatch)
    made.script = [{"messages": [message("1.1")]}]
    return made


def test_a_directory_of_something_else_is_left_alone(lake: ScriptedLake) -> None:
    Path(lake.place).mkdir()
    Path(lake.place, "letter.txt").write_text("dear")
    with pytest.raises(Permanent, match=r"lake: it is no lake, and holds letter\.txt; name a new directory$"):
        lake.build()
    assert os.listdir(lake.place) == ["letter.txt"]


def test_a_file_is_no_lake(lake: ScriptedLake) -> None:
    Path(lake.place).write_text("dear")
    with pytest.raises(Permanent, match=r"lake: it is a file; name a new directory$"):
        lake.build()
    assert Path(lake.place).read_text() == "dear"


def test_a_lake_inside_the_logs_is_refused(lake: ScriptedLake) -> None:
    lake.logs = str(Path(lake.place).parent)
    with pytest.raises(Permanent, match="it is inside the logs; name a directory elsewhere"):
        lake.build()
    lake.logs = lake.place
    with pytest.raises(Permanent, match="it is inside the logs; name a directory elsewhere"):
        lake.build()
    assert not Path(lake.place).exists()


def test_a_lake_that_cannot_be_made_is_temporary_trouble(lake: ScriptedLake) -> None:
    lake.place = "/proc/self/lake"
    with pytest.raises(Temporary, match=r"^unable to build lake /proc/self/lake: .*; it is as it was, run this again"):
        lake.build()


def test_reading_where_no_lake_is_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match=r"there is no lake of queue-report; make it with `queue-report build LOGS"):
        open_local(str(tmp_path / "lake"))
    (tmp_path / "lake" / "_manifest").mkdir(parents=True)
    with pytest.raises(Permanent, match="its first build has not ended"):
        open_local(str(tmp_path / "lake"))


def test_a_lake_of_a_later_version_is_refused_and_left_alone(lake: ScriptedLake) -> None:
    lake.build()
    path = Path(lake.place, manifest_path(1))
    path.write_bytes(path.read_bytes().replace(b'"version": %d' % VERSION, b'"version": %d' % (VERSION + 1)))
    before = path.read_bytes()
    why = rf"a later queue-report made it \(its version is {VERSION + 1}, ours {VERSION}\)"
    for refused in (lake.manifest, lake.build):
        with pytest.raises(Permanent, match=why):
            refused()
    assert path.read_bytes() == before


def test_a_second_build_at_once_is_refused_and_names_the_first(lake: ScriptedLake) -> None:
    lake.build()
    owner = rf"process {os.getpid()} on \S+ since 20\S+"
    refused = pytest.raises(Temporary, match=rf"another build has it \({owner}\); run this again when it has ended")
    with locked(LocalPlace(lake.place)), refused:
        lake.build()
    lake.build()


def test_elsewhere_a_lock_file_stands_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = LocalPlace(str(tmp_path))
    place.local = None  # As it is on HDFS.
    with locked(place):
        owner = json.loads(place.read("_lock"))
        with pytest.raises(Temporary, match=r"if that one is dead, remove file:\S+/_lock"), locked(place):
            pass
    assert not place.exists("_lock")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    place.write("_lock", json.dumps(owner | {"pid": ended.pid}).encode())
    with locked(place):
        assert json.loads(place.read("_lock"))["pid"] == os.getpid()
    place.write("_lock", json.dumps(owner | {"pid": ended.pid, "host": "another"}).encode())
    with pytest.raises(Temporary, match=rf"process {ended.pid} on another"), locked(place):
        pass
    place.write("_lock", b"")
    with pytest.raises(Temporary, match="nobody knows who"), locked(place):
        pass


def test_a_failing_batch_leaves_nothing_behind(lake: ScriptedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.build()
    before = sorted(path for path in Path(lake.place).rglob("*"))
    lake.script.append({"messages": [message("2.2")]})

    def fail(self: LocalPlace, old: str, new: str) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(LocalPlace, "rename", fail)
        with pytest.raises(Temporary, match=r": no space left on device; it is as it was, run this again to go on$"):
            lake.build()
    assert sorted(path for path in Path(lake.place).rglob("*")) == before
    lake.build()
    assert lake.rows("messages", "key") == [("1.1",), ("2.2",)]


@pytest.mark.together
def test_java_s_errors_are_one_line(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(JAVA_ERRORS) as failed:
        spark.range(1).selectExpr("raise_error('first line\nsecond line')").collect()
    assert java_reason(failed.value).endswith("first line")
    with pytest.raises(JAVA_ERRORS) as missing:
        spark.read.text(str(tmp_path / "nothing")).collect()
    assert "\n" not in java_reason(missing.value) and "nothing" in java_reason(missing.value)


HEAD = b'{"program": "queue-report", "whole": true, "version": 1, "number": 1, "made": "", "dropped": {}, "counts": {},'


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\xff", b"[]", b"{}", b"1", b'{"program": "other", "whole": true}'),
        *(HEAD + b'"tables": [], "state": {}}', HEAD + b'"tables": {"messages": []}, "state": {}}'),
        HEAD + b'"tables": {}, "state": []}',
    ],
)
def test_what_is_no_manifest_is_not_taken_for_one(content: bytes) -> None:
    with pytest.raises(NotAManifest):
        unpack(content)


def test_a_manifest_comes_back_as_it_went_in() -> None:
    manifest = Manifest(7, "2026-01-02", {"messages": {"a ü": 1}}, {"x": [1]}, {"h/q": {"new": 2}}, {"pending/x": 3})
    assert unpack(pack(manifest)) == manifest


def sync_failing(patch: pytest.MonkeyPatch, wanted: str, times: int = 1) -> None:
    """Have a sync of this path fail, that often."""
    sync, left = LocalPlace.sync, [times]

    def fail(self: LocalPlace, paths: Iterable[str]) -> None:
        every = list(paths)
        if wanted in every and left[0] > 0:
            left[0] -= 1
            raise OSError(errno.EIO, "Input/output error")
        sync(self, every)

    patch.setattr(LocalPlace, "sync", fail)


def test_where_the_manifest_cannot_be_made_safe_the_error_says_that_the_batch_is_in_the_lake(
    lake: ScriptedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.build()
    lake.script.append({"messages": [message("2.2")]})
    with monkeypatch.context() as patch:
        sync_failing(patch, "_manifest")
        with pytest.raises(Temporary) as failed:
            lake.build()
    assert str(failed.value) == (
        f"unable to build lake {lake.place}: input/output error; "
        "what was new in the logs is in it, but a power cut may undo that, run this again to go on"
    )
    assert lake.rows("messages", "key") == [("1.1",), ("2.2",)]
    # The next build makes it safe, though nothing is new.
    synced: list[str] = []
    sync = LocalPlace.sync

    def note(self: LocalPlace, paths: Iterable[str]) -> None:
        every = list(paths)
        synced.extend(every)
        sync(self, every)

    monkeypatch.setattr(LocalPlace, "sync", note)
    lake.build()
    assert synced == ["_manifest"] and not list(Path(lake.place, "_batch").iterdir())
    assert lake.rows("messages", "key") == [("1.1",), ("2.2",)]


def test_where_the_manifest_cannot_be_read_either_the_error_says_that_nobody_can_tell(
    lake: ScriptedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.build()
    lake.script.append({"messages": [message("2.2")]})
    read = LocalPlace.read

    def fail(self: LocalPlace, path: str, start: int = 0, size: int | None = None) -> bytes:
        if "000002" in path:
            raise OSError(errno.EIO, "Input/output error")
        return read(self, path, start, size)

    with monkeypatch.context() as patch:
        sync_failing(patch, "_manifest")
        patch.setattr(LocalPlace, "read", fail)
        with pytest.raises(Temporary, match="; nobody can tell now whether what was new in the logs is in it, run"):
            lake.build()
    assert lake.rows("messages", "key") == [("1.1",), ("2.2",)]
    lake.build()
    assert lake.rows("messages", "key") == [("1.1",), ("2.2",)]


def test_a_clean_up_that_fails_is_a_warning_for_what_was_new_is_in_the_lake(
    lake: ScriptedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.build()
    lake.script.append({"messages": [message("2.2")]})

    def fail(self: LocalPlace, path: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(LocalPlace, "remove", fail)
        done = lake.build()
    assert done.rows["messages"] == 1 and done.warnings == [
        f"unable to clean up {lake.place}: input/output error; "
        "what was new is in the lake, the next build cleans up"
    ]
    assert lake.rows("messages", "key") == [("1.1",), ("2.2",)] and list(Path(lake.place, "_batch").iterdir())
    lake.build()
    assert not list(Path(lake.place, "_batch").iterdir())


@pytest.mark.parametrize(
    ("tidy", "told"),
    [
        ({"expire": 0}, "what was new in the logs is in it, and no old dates were dropped"),
        ({"compact": True}, "what was new in the logs is in it, and no small files were put together"),
    ],
)
def test_trouble_with_tidying_does_not_say_that_what_was_new_is_not_in_the_lake(
    lake: ScriptedLake, monkeypatch: pytest.MonkeyPatch, tidy: dict[str, Any], told: str
) -> None:
    lake.script *= 5
    for _ in range(5):
        lake.build()
    lake.script.append({"messages": [message("2.2")]})
    with monkeypatch.context() as patch:
        sync_failing(patch, "_manifest/000007.json.new")
        with pytest.raises(Temporary, match=f": input/output error; {told}, run this again to go on$"):
            lake.build(**tidy)
    assert len(lake.rows("messages", "key")) == 6


OTHERS = b'["../letter.txt", "messages/../../letter.txt", "_manifest/000001.json", 3]'


@pytest.mark.parametrize("content", [b"3", OTHERS])
def test_what_a_dead_build_lists_that_is_no_data_file_is_not_removed(lake: ScriptedLake, content: bytes) -> None:
    lake.build()
    letter = Path(lake.place).parent / "letter.txt"
    letter.write_text("dear")
    dead = Path(lake.place, "_batch", "000002")
    dead.mkdir(parents=True)
    (dead / "moves.json").write_bytes(content)
    lake.build()
    assert letter.exists() and lake.rows("messages", "key") == [("1.1",)] and not dead.exists()
