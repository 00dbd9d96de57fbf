"""What a report has to read is told from this machine's directories; what is not known is not little."""

import os
from pathlib import Path

from spark.lake.size import LITTLE_LAKE, is_small_lake


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def test_a_lake_is_small_below_the_limit(tmp_path: Path) -> None:
    write(tmp_path / "messages" / "a.parquet", LITTLE_LAKE - 1)
    assert is_small_lake(str(tmp_path))
    write(tmp_path / "lines" / "a.parquet", 1)
    assert not is_small_lake(str(tmp_path))


def test_what_is_not_on_this_machine_is_not_little(tmp_path: Path) -> None:
    for place in ("hdfs:///lake", "s3a://bucket/lake", str(tmp_path / "nothing")):
        assert not is_small_lake(place)


def test_what_is_no_regular_file_or_cannot_be_looked_at_is_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    write(tmp_path / os.fsdecode(b"\xff\n"), 5)
    assert is_small_lake(str(tmp_path))
