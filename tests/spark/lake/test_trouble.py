"""What is no lake, or cannot be written, is refused in one line, and is left as it was."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.schema import PrimitiveType
from deltalake.table import TableOptimizer
from pyspark.sql import SparkSession

from queue_base.errors import Permanent, Temporary
from queue_report.lake import lake as lake_module
from queue_report.lake import stage
from queue_report.lake.lake import FORM, open_lake
from queue_report.runtime.errors import JAVA_ERRORS, java_reason
from queue_report.runtime.files import LocalFiles
from support.spark.logs.growing_log import GrowingLog, assert_exact
from support.spark.logs.log_lake import Lake


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    made = GrowingLog(tmp_path / "logs" / "a" / "q")
    made.grow(1)
    return made


@pytest.fixture
def lake(log: GrowingLog, tmp_path: Path) -> Path:
    """A lake that was built; the log has grown since."""
    Lake(tmp_path / "lake").build(tmp_path / "logs")
    log.grow(1)
    return tmp_path / "lake"


def all_files(lake: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in lake.rglob("*") if path.is_file()}


def assert_refused(top: Path, why: str) -> None:
    """Neither a reader nor a build takes the lake, and it stays as it is."""
    lake = top / "lake"
    before = all_files(lake)
    for refused in (lambda: open_lake(str(lake)), lambda: Lake(lake).build(top / "logs")):
        with pytest.raises(Permanent, match=why):
            refused()
    assert all_files(lake) == before


def test_logs_that_are_not_there_make_no_lake(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match=r"^unable to read logs .*/none: no such file or directory; the lake is as it"):
        Lake(tmp_path / "lake").build(tmp_path / "none")
    assert os.listdir(tmp_path) == []


def test_a_directory_of_something_else_is_left_alone(log: GrowingLog, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "letter.txt").write_text("dear")
    with pytest.raises(Permanent, match=r"lake: it is no lake, and holds letter\.txt; name a new directory$"):
        Lake(tmp_path / "lake").build(tmp_path / "logs")
    assert os.listdir(tmp_path / "lake") == ["letter.txt"]


def test_a_delta_table_of_something_else_is_left_alone(log: GrowingLog, tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "lake"), Schema([Field("a", PrimitiveType("long"))]), name="sales")
    assert_refused(tmp_path, r"lake: it is a Delta table of something else$")


def test_a_file_is_no_lake(log: GrowingLog, tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("dear")
    with pytest.raises(Permanent, match=r"lake: it is a file; name a new directory$"):
        Lake(tmp_path / "lake").build(tmp_path / "logs")
    with pytest.raises(Permanent, match=r"there is no lake of queue-report"):
        open_lake(str(tmp_path / "lake"))
    assert (tmp_path / "lake").read_text() == "dear"


def test_a_lake_inside_the_logs_is_refused(log: GrowingLog, tmp_path: Path) -> None:
    for lake in (tmp_path / "logs", tmp_path / "logs" / "a" / "lake"):
        before = all_files(tmp_path / "logs")
        with pytest.raises(Permanent, match="it is inside the logs; name a directory elsewhere"):
            Lake(lake).build(tmp_path / "logs")
        assert all_files(tmp_path / "logs") == before
    Lake(tmp_path / "logs-lake").build(tmp_path / "logs")


def test_a_lake_that_cannot_be_made_is_temporary_trouble(log: GrowingLog, tmp_path: Path) -> None:
    with pytest.raises(Temporary, match=r"^unable to build lake /proc/self/lake: .*; it is as it was, run this again"):
        Lake(Path("/proc/self/lake")).build(tmp_path / "logs")


def test_reading_where_no_lake_is_says_how_to_make_one(tmp_path: Path) -> None:
    for name in ("missing", "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(Permanent, match=r"there is no lake of queue-report; make it with `queue-report build LOGS"):
            open_lake(str(tmp_path / name))
        assert not (tmp_path / "missing").exists()


def test_a_lake_of_a_later_version_is_refused_and_left_alone(
    log: GrowingLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(lake_module, "FORM", "form 99")
        Lake(tmp_path / "lake").build(tmp_path / "logs")
    log.grow(1)
    assert_refused(tmp_path, rf"a later queue-report made it \(form 99, ours is {FORM}\)")


@pytest.mark.parametrize("table", ["messages", "lines", "pending", "streams"])
def test_a_failing_batch_leaves_nothing_behind(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    before, write = all_files(lake), LocalFiles.write

    def fail(self: LocalFiles, path: str, content: bytes | memoryview) -> None:
        if path.startswith(f"tbl={table}/"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        write(self, path, content)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "write", fail)
        with pytest.raises(Temporary, match=r": no space left on device; it is as it was, run this again to go on$"):
            Lake(lake).build(tmp_path / "logs")
    assert all_files(lake) == before
    Lake(lake).build(tmp_path / "logs")
    assert_exact(Lake(lake), 2)


def sync_failing(patch: pytest.MonkeyPatch, wanted: str) -> None:
    """Have a sync of a path with this in it fail."""
    sync = LocalFiles.sync

    def fail(self: LocalFiles, paths: Iterable[str]) -> None:
        every = list(paths)
        if any(wanted in path for path in every):
            raise OSError(errno.EIO, os.strerror(errno.EIO), wanted)
        sync(self, every)

    patch.setattr(LocalFiles, "sync", fail)


def test_data_files_and_then_the_entry_of_the_log_are_synced(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, their directories, and only then what makes them count."""
    seen: list[str] = []
    fsync, commit = os.fsync, DeltaTable.create_write_transaction

    def note(descriptor: int) -> None:
        seen.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), lake))
        fsync(descriptor)

    def note_commit(*given: Any, **more: Any) -> None:
        seen.append("commit")
        commit(*given, **more)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(DeltaTable, "create_write_transaction", note_commit)
    Lake(lake).build(tmp_path / "logs")
    at = seen.index("commit")
    opened = open_lake(str(lake))
    before = {path for paths in open_lake(str(lake), version=1).tables.values() for path in paths}
    added = {path for paths in opened.tables.values() for path in paths} - before
    directories = {os.path.dirname(path) for path in added} | {os.path.dirname(os.path.dirname(path)) for path in added}
    assert added | directories | {"."} <= set(seen[:at])
    assert seen[at + 1 :] == ["_delta_log/00000000000000000002.json", "_delta_log", "."]


def test_the_name_of_a_new_lake_and_of_what_is_made_above_it_is_synced_before_it_is_one(
    log: GrowingLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut might take the whole lake after its first build."""
    seen: list[str] = []
    create = DeltaTable.create

    def note_create(*given: Any, **more: Any) -> Any:
        seen.append("create")
        return create(*given, **more)

    monkeypatch.setattr(os, "fsync", lambda open_as: seen.append(os.readlink(f"/proc/self/fd/{open_as}")))
    monkeypatch.setattr(DeltaTable, "create", note_create)
    Lake(tmp_path / "srv" / "mail" / "lake").build(tmp_path / "logs")
    above = [str(tmp_path.parent), str(tmp_path), str(tmp_path / "srv"), str(tmp_path / "srv" / "mail")]
    assert seen[: seen.index("create")] == above
    # One that a build which was killed, or somebody else, has made, too.
    (tmp_path / "other").mkdir()
    seen.clear()
    Lake(tmp_path / "other").build(tmp_path / "logs")
    assert seen[: seen.index("create")] == [str(tmp_path)]


def test_where_a_data_file_cannot_be_made_safe_it_does_not_count(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = all_files(lake)
    with monkeypatch.context() as patch:
        sync_failing(patch, "tbl=messages")
        with pytest.raises(Temporary, match=r": input/output error; it is as it was, run this again to go on$"):
            Lake(lake).build(tmp_path / "logs")
    assert all_files(lake) == before
    assert_exact(Lake(lake), 1)


def test_where_the_version_cannot_be_made_safe_the_error_says_that_the_batch_is_in_the_lake(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        sync_failing(patch, "00002.json")
        with pytest.raises(Temporary) as failed:
            Lake(lake).build(tmp_path / "logs")
        assert str(failed.value) == (
            f"unable to build lake {lake}: input/output error; "
            "what was new in the logs is in it, but a power cut may undo that, run this again to go on"
        )
        assert_exact(Lake(lake), 2)
        # The next build tries to make it safe, though nothing is new.
        with pytest.raises(Temporary, match="input/output error"):
            Lake(lake).build(tmp_path / "logs")
    assert not Lake(lake).build(tmp_path / "logs").lines
    assert_exact(Lake(lake), 2)


@pytest.mark.parametrize("is_made", [False, True])
def test_where_nobody_can_tell_whether_the_version_was_made_the_error_says_so(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    commit = DeltaTable.create_write_transaction

    def fail(*given: Any, **more: Any) -> None:
        if is_made:
            commit(*given, **more)
        monkeypatch.setattr(lake_module, "open_lake", unreadable)
        raise DeltaError("connection lost")

    def unreadable(*given: Any, **more: Any) -> None:
        raise Temporary("unable to open lake: connection lost")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", fail)
        with pytest.raises(Temporary, match=": connection lost; nobody can tell now whether what was new in"):
            Lake(lake).build(tmp_path / "logs")
    monkeypatch.undo()
    assert_exact(Lake(lake), 2 if is_made else 1)
    Lake(lake).build(tmp_path / "logs")
    assert_exact(Lake(lake), 2)


def test_a_version_counts_whose_answer_was_lost(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a store whose answer comes after the time allowed."""
    commit = DeltaTable.create_write_transaction

    def fail(*given: Any, **more: Any) -> None:
        commit(*given, **more)
        raise DeltaError("timed out")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", fail)
        assert Lake(lake).build(tmp_path / "logs").lines["new"] == 1
    assert_exact(Lake(lake), 2)


def test_small_files_that_cannot_be_put_together_are_not_called_another_build(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Lake(lake).build(tmp_path / "logs")

    def fail(*given: Any, **more: Any) -> None:
        raise CommitFailedError("Generic error\n  No space left on device (os error 28)")

    monkeypatch.setattr(TableOptimizer, "compact", fail)
    with pytest.raises(Temporary, match=": no space left on device; what was new in the logs is in it, run this again"):
        Lake(lake).build(tmp_path / "logs", compact=True)


@pytest.mark.parametrize(
    ("method", "tidy"), [("create_write_transaction", {"expire": 0}), ("vacuum", {"compact": True})]
)
def test_trouble_with_tidying_does_not_say_that_what_was_new_is_not_in_the_lake(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, tidy: dict[str, Any]
) -> None:
    Lake(lake).build(tmp_path / "logs")

    def fail(*given: Any, **more: Any) -> None:
        raise DeltaError("Generic error: no such thing\n\n  Caused by: nothing")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, method, fail)
        with pytest.raises(Temporary) as failed:
            Lake(lake).build(tmp_path / "logs", **tidy)
    assert str(failed.value) == (
        f"unable to build lake {lake}: Generic error: no such thing; "
        "what was new in the logs is in it, run this again to go on"
    )
    assert_exact(Lake(lake), 2)


def test_trouble_of_the_system_in_an_executor_is_a_reason_of_one_line(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/lake/x")

    monkeypatch.setattr(stage, "read_files", fail)
    with pytest.raises(Temporary, match=r": permission denied; it is as it was, run this again to go on$"):
        Lake(lake).build(tmp_path / "logs")


@pytest.mark.together
def test_java_s_errors_are_one_line(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(JAVA_ERRORS) as failed:
        spark.range(1).selectExpr("raise_error('first line\nsecond line')").collect()
    assert java_reason(failed.value).endswith("first line")
    with pytest.raises(JAVA_ERRORS) as missing:
        spark.read.text(str(tmp_path / "nothing")).collect()
    assert "\n" not in java_reason(missing.value) and "nothing" in java_reason(missing.value)
