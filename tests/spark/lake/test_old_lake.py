"""A lake of the form before is taken over by the next build: nothing of it is lost, and nothing is there twice.

old_lake.tar.xz is what that earlier queue-report made, in two builds, of the trees of tests/spark/frozen that it names
as hosts, as far as these had come by then (`three pieces`).
"""

import os
import re
from pathlib import Path

import pytest

from queue_base.errors import Permanent, Temporary
from queue_report.lake.lake import open_lake
from queue_report.runtime.files import LocalFiles
from support.spark.frozen_tables import (
    WAYS,
    Tables,
    Tree,
    build_lake,
    differences,
    grow,
    in_order,
    tables_of,
    unpack,
    unpack_trees,
    without_places,
)
from support.spark.killed_build import Crash

OLD = Path(__file__).parent / "old_lake.tar.xz"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake of the form before."""
    unpack(OLD, tmp_path)
    return tmp_path / "lake"


def trees_of(lake: Path, tmp_path: Path) -> list[Tree]:
    """Return the trees that were read into it."""
    hosts = {path.name for path in lake.glob("*/*/host=*")} | {path.name for path in lake.glob("*/host=*")}
    return [
        tree for tree in unpack_trees(tmp_path / "trees")
        if tree.order is None and {f"host={host}" for host in tree.hosts} <= hosts
    ]  # fmt: skip


def later_logs(trees: list[Tree], tmp_path: Path) -> Path:
    """Write the logs as they are now: they have grown, were rotated, and compressed."""
    for _ in grow(trees, tmp_path / "logs", WAYS["three pieces"]):
        pass
    return tmp_path / "logs" / "logs"


def told(trees: list[Tree], lake: Path) -> list[str]:
    """Return what is not as it was, of a lake of all logs."""
    tables, found = tables_of(lake), []
    for tree in trees:
        rows = in_order(tables, tree.hosts)
        found += [f"{tree.name}: {text}" for text in differences(comparable(tree.tables), comparable(rows))]
    return found


def comparable(tables: Tables) -> Tables:
    """Return rows as both programs make them: the earlier one gave lives that begin with one stamp the same key."""
    return {
        name: sorted(re.sub(r'("\d+\.\d{19})\.\d+"', r'\1"', row) for row in rows)
        for name, rows in without_places(tables).items()
    }


def files_of(lake: Path) -> set[str]:
    return {str(path.relative_to(lake)) for path in lake.rglob("*") if path.is_file()}


def test_what_has_come_since_joins_what_was_read_before(lake: Path, tmp_path: Path) -> None:
    trees = trees_of(lake, tmp_path)
    assert len(trees) > 20
    logs = later_logs(trees, tmp_path)
    build_lake(logs, lake)
    assert not told(trees, lake)
    assert sorted(os.listdir(lake)) == sorted(
        {"_delta_log", *(f"tbl={table}" for table, paths in open_lake(str(lake)).tables.items() if paths)}
    )
    assert not build_lake(logs, lake)


def test_a_build_with_nothing_new_takes_it_over(lake: Path, tmp_path: Path) -> None:
    trees = trees_of(lake, tmp_path)
    for step in grow(trees, tmp_path / "logs", WAYS["three pieces"]):
        if step == 1:
            break
    assert not build_lake(tmp_path / "logs" / "logs", lake)
    assert not (lake / "_manifest").exists()
    build_lake(later_logs(trees, tmp_path), lake)
    assert not told(trees, lake)


@pytest.mark.parametrize("times", [0, 1, 40, 10_000])
def test_one_that_dies_while_it_is_taken_over_is_taken_over_by_the_next(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    trees = trees_of(lake, tmp_path)
    logs = later_logs(trees, tmp_path)
    left = [times]
    write, remove = LocalFiles.write, os.unlink

    def count() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crash

    def write_some(self: LocalFiles, path: str, content: bytes | memoryview) -> None:
        count()
        write(self, path, content)

    def remove_none(*words: object, **more: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "write", write_some)
        # Once it is committed, its old files go: none of them does.
        patch.setattr("shutil.rmtree", remove_none)
        with pytest.raises(Crash):
            build_lake(logs, lake)
    assert os.unlink is remove and (lake / "_manifest").exists()
    build_lake(logs, lake)
    assert not told(trees, lake) and not (lake / "_manifest").exists()


def test_one_that_another_build_takes_over_meanwhile_is_left_to_that(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = trees_of(lake, tmp_path)
    logs = later_logs(trees, tmp_path)
    read, others = LocalFiles.read, [logs]

    def read_after(self: LocalFiles, path: str) -> bytes:
        if path.startswith("messages/") and others:
            build_lake(others.pop(), lake)
        return read(self, path)

    monkeypatch.setattr(LocalFiles, "read", read_after)
    with pytest.raises(Temporary, match=r"another build is at work on it; it is as it was, run this again to go on$"):
        build_lake(logs, lake)
    assert not build_lake(logs, lake)
    assert not told(trees, lake)


def test_it_is_not_shown_before_it_is_taken_over(lake: Path) -> None:
    with pytest.raises(Permanent, match=r"queue-report build LOGS"):
        open_lake(str(lake))


@pytest.mark.parametrize("content", [b"", b"PAR1 and no end", None])
def test_one_that_is_damaged_is_refused_in_words_and_stays(lake: Path, tmp_path: Path, content: bytes | None) -> None:
    logs = later_logs(trees_of(lake, tmp_path), tmp_path)
    damaged = max(lake.glob("deliveries/**/*.parquet"))
    if content is None:
        damaged.unlink()
    else:
        damaged.write_bytes(content)
    before = files_of(lake)
    why = "it is gone" if content is None else "it is damaged: "
    with pytest.raises(Permanent, match=rf"unable to read {damaged}: {why}"):
        build_lake(logs, lake)
    assert {path for path in files_of(lake) if not path.startswith("_delta_log/")} == before


def test_one_whose_manifests_are_all_torn_is_refused_in_words(lake: Path, tmp_path: Path) -> None:
    logs = later_logs(trees_of(lake, tmp_path)[:1], tmp_path)
    for path in (lake / "_manifest").iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(Permanent, match="none of its manifests is whole; build a new one from the logs"):
        build_lake(logs, lake)
