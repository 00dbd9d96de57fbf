"""Which directories are streams, and what one that cannot be read is to the others."""

import os
import socket
from pathlib import Path
from typing import BinaryIO

import pytest

from queue_base.errors import Permanent, Temporary
from queue_report.logs.streams import SourceError, find_streams
from queue_report.runtime.files import LocalFiles
from support.spark.logs.log_files import lines_of, write_files
from support.spark.logs.log_lake import Lake

LOG = b"".join(lines_of((1_700_000_000 * 10**9 + number, f"new msg {number}") for number in range(3)))


def numbers(lake: Lake) -> dict[str, int]:
    """Return how many messages are open, by host."""
    hosts = [row["host"] for row in lake.rows("pending")]
    return {host: hosts.count(host) for host in hosts}


def test_links_and_pipes_beside_the_hosts_are_passed_by(tmp_path: Path) -> None:
    write_files(tmp_path / "h" / "q", [("current", LOG)])
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    warnings: list[str] = []
    found = find_streams(LocalFiles(str(tmp_path)), None, None, warnings)
    assert [stream for stream, one in found.items() if one.logs] == [("h", "q")] and not warnings


def test_a_directory_without_files_is_no_stream(tmp_path: Path) -> None:
    write_files(tmp_path / "h" / "q", [(".placeholder", b"x")])
    with pytest.raises(SourceError, match="it has no log files"):
        find_streams(LocalFiles(str(tmp_path)), None, None, [])


@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "directory"])
def test_what_is_called_current_and_is_no_file_does_not_stop_the_build(tmp_path: Path, kind: str) -> None:
    logs = tmp_path / "logs"
    write_files(logs / "h" / "q", [("@400000006553f10a00000001.s", LOG)])
    current = logs / "h" / "q" / "current"
    with socket.socket(socket.AF_UNIX) as listening:
        if kind == "fifo":
            os.mkfifo(current)
        elif kind == "socket":
            listening.bind(str(current))
        elif kind == "device":
            current.symlink_to("/dev/zero")
        else:
            current.mkdir()
        lake = Lake(tmp_path / "lake")
        lake.feed(logs)
        assert numbers(lake) == {"h": 3} and lake.warnings == []


def test_a_host_whose_log_cannot_be_read_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    write_files(logs / "h" / "q", [("current", LOG)])
    write_files(logs / "bad" / "q", [("current", LOG)])
    opened = LocalFiles.open

    def fail(self: LocalFiles, path: str) -> BinaryIO:
        if "bad/q" in f"{self.root}/{path}":
            raise OSError(5, "Input/output error", path)
        return opened(self, path)

    lake = Lake(tmp_path / "lake")
    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "open", fail)
        with pytest.raises(Temporary, match="input/output error"):
            lake.feed(logs / "bad")
        lake.feed(logs)
        assert numbers(lake) == {"h": 3}
        (warning,) = lake.warnings
        assert warning.startswith("queue q of host bad is left as it was: ") and "nput/output error" in warning
    lake.feed(logs)
    assert numbers(lake) == {"h": 3, "bad": 3} and lake.warnings == ["bad/q has the same log as h/q: "
        "each counts as a queue of its own; give one of them"]  # fmt: skip


def test_one_log_of_another_form_does_not_stop_the_others(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write_files(logs / "mx9" / "q", [("mail.log", b"Jan  2 03:04:05 a postfix/smtp[1]: hello\n")])
    with pytest.raises(Permanent, match="have no TAI64N stamps"):
        Lake(tmp_path / "none").feed(logs)
    write_files(logs / "h" / "q", [("current", LOG)])
    lake = Lake(tmp_path / "lake")
    lake.feed(logs)
    assert numbers(lake) == {"h": 3} and "its lines have no TAI64N stamps" in lake.warnings[0]


def test_a_directory_in_which_nothing_is_a_log_is_refused(tmp_path: Path) -> None:
    """As for `build /etc`: what has an empty file alone is no log that was read either."""
    logs = tmp_path / "logs"
    write_files(logs / "cron.d" / "q", [("jobs", b"* * * * * root true\n"), ("more", b"# none\n")])
    write_files(logs / "empty" / "q", [(".placeholder", b"x"), ("README", b"")])
    with pytest.raises(Permanent, match="have no TAI64N stamps"):
        Lake(tmp_path / "lake").feed(logs)
