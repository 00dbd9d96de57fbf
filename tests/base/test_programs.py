"""Each program of the suite finds the others, however it was called."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from queue_base.daemon.processes import program_path
from support.processes.forked import BIN


def test_a_program_called_by_a_link_or_a_link_to_one_finds_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sendmail").symlink_to(os.path.relpath(BIN / "sendmail", tmp_path))
    (tmp_path / "mailq").symlink_to("sendmail")
    for name in ("sendmail", "mailq"):
        monkeypatch.setattr(sys, "argv", [str(tmp_path / name)])
        assert Path(program_path("queuectl")).samefile(BIN / "queuectl")


def test_a_directory_that_is_a_link_is_named_as_it_was_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "current").symlink_to(BIN)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "current/queue-start")])
    assert program_path("queue-send") == str(tmp_path / "current/queue-send")


def test_queuectl_called_by_a_link_names_queue_start_in_a_service(tmp_path: Path) -> None:
    (tmp_path / "queuectl").symlink_to(BIN / "queuectl")
    words = [sys.executable, str(tmp_path / "queuectl"), "init", str(tmp_path / "home"), "--as-me"]
    words += ["--me", "me.example", "--service", str(tmp_path / "service")]
    subprocess.run(words, check=True, capture_output=True, env={"PATH": "/bin"})
    assert f"{BIN}/queue-start" in (tmp_path / "service/run").read_text()
