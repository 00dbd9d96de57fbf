"""What a run has to read is told from this machine's directories; what is not known is not little."""

import os
from pathlib import Path

from spark.runtime.work import LITTLE_LAKE, LITTLE_LOGS, has_few_logs, is_small_lake


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def test_logs_are_few_below_the_limit(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write(logs / "mx1" / "main" / "@400000006745.s", LITTLE_LOGS - 1000)
    write(logs / "mx2" / "main" / "current", 999)
    assert has_few_logs(str(logs), str(tmp_path / "lake"))
    write(logs / "mx2" / "main" / "current", 1000)
    assert not has_few_logs(str(logs), str(tmp_path / "lake"))


def test_one_file_of_logs_counts(tmp_path: Path) -> None:
    write(tmp_path / "current", LITTLE_LOGS)
    assert not has_few_logs(str(tmp_path / "current"), str(tmp_path / "lake"))


def test_logs_that_the_last_build_read_do_not_count(tmp_path: Path) -> None:
    old, lake = tmp_path / "logs" / "@400000006745.s", tmp_path / "lake"
    write(old, LITTLE_LOGS)
    manifest = lake / "_manifest" / "000001.json"
    write(manifest, 10)
    while manifest.stat().st_ctime_ns == old.stat().st_ctime_ns:  # The kernel's clock ticks a few times in 10 ms.
        os.utime(manifest)
    assert has_few_logs(str(tmp_path / "logs"), str(lake))
    while old.stat().st_ctime_ns <= manifest.stat().st_ctime_ns:
        os.utime(old)
    assert not has_few_logs(str(tmp_path / "logs"), str(lake))


def test_a_lake_is_small_below_the_limit(tmp_path: Path) -> None:
    write(tmp_path / "messages" / "a.parquet", LITTLE_LAKE - 1)
    assert is_small_lake(str(tmp_path))
    write(tmp_path / "lines" / "a.parquet", 1)
    assert not is_small_lake(str(tmp_path))


def test_what_is_not_on_this_machine_is_not_little(tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing")
    for place in ("hdfs:///logs", "s3a://bucket/logs", missing):
        assert not has_few_logs(place, "hdfs:///lake")
        assert not is_small_lake(place)


def test_what_is_no_regular_file_or_cannot_be_looked_at_is_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    write(tmp_path / os.fsdecode(b"\xff\n"), 5)
    assert has_few_logs(str(tmp_path), str(tmp_path / "lake"))
