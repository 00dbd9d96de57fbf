"""The follower of logs that bench/run counts with."""

from pathlib import Path

import pytest

from side_by_side import log_follower
from side_by_side.log_follower import LogFollower, first_unexpected


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_only_whole_lines_count_and_each_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    follower = LogFollower(path, {"sent": b" status=sent ", "removed": b": removed\n"})
    assert follower.look() == {"sent": 0, "removed": 0}
    append(path, b"1: status=sent (ok)\n1: remo")
    assert follower.look() == {"sent": 1, "removed": 0}
    append(path, b"ved\n2: removed\n")
    assert follower.look() == {"sent": 1, "removed": 2}
    assert follower.look() == {"sent": 1, "removed": 2}
    assert follower.counts == {"sent": [0, 1, 1, 1], "removed": [0, 0, 2, 2]}
    assert len(follower.times) == 4


def test_a_log_in_which_nothing_comes_any_more_ends_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_follower, "STALL", 0.05)
    append(tmp_path / "log", b"the last line\n")
    with pytest.raises(SystemExit, match="the last line"):
        LogFollower(tmp_path / "log", {"sent": b"sent"}).wait(lambda counts: counts["sent"] > 0)


def test_the_first_line_with_trouble_is_found_whole(tmp_path: Path) -> None:
    append(tmp_path / "log", b"good\nx fatal: one\ny fatal: two\n")
    assert first_unexpected(tmp_path / "log", b" fatal: ") == "x fatal: one"
    assert first_unexpected(tmp_path / "log", b" panic: ") == ""
