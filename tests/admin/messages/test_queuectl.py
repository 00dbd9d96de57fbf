"""queuectl itself: exit codes, messages, help, and which home it works on."""

import json
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from queue_admin.main import COMMANDS, group, main
from queue_wire.pipes import job
from support.processes.suite import program
from support.queues.home import make_home

NAMES = ["adopt", "config", "init", "list", "route", "show", "stat", "version"]


def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert {module.command.name for module in COMMANDS} >= set(NAMES)
    for name in NAMES:
        assert main(["queuectl", name, "--help"]) == 0
        shown = capsys.readouterr().out
        assert f"Usage: queuectl {name}" in shown
        assert "  queuectl " in shown


@pytest.mark.parametrize(
    "words", [["nonsense"], ["list", "--lost"], ["show"], ["list", "--state", "lost"], ["--home"], ["stat", "extra"]]
)
def test_a_usage_error_is_one_line_and_exit_100(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["queuectl", *words]) == 100
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("queuectl: fatal: ")
    assert shown.err.count("\n") == 1


def test_without_a_command_it_shows_its_help_as_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["queuectl"]) == 100
    assert capfd.readouterr().err.startswith("Usage: queuectl [OPTIONS] COMMAND")


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queuectl", "--version"]) == 0
    assert capsys.readouterr().out.startswith("queuectl")


def test_version_says_whether_the_daemons_are_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    compiled = job.__file__.endswith(".so")
    assert main(["queuectl", "version"]) == 0
    words = capsys.readouterr().out
    assert words.startswith("queue-suite ")
    assert words.endswith(f", {'compiled' if compiled else 'pure Python'}, Python {platform.python_version()}\n")
    assert main(["queuectl", "version", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "name": "queue-suite",
        "version": version("queue-suite"),
        "compiled": compiled,
        "python": platform.python_version(),
    }


def test_home_comes_from_the_option_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_home(tmp_path / "one", split=7)
    make_home(tmp_path / "two", split=5)
    monkeypatch.setenv("QUEUE_HOME", str(tmp_path / "one"))
    assert main(["queuectl", "stat"]) == 111
    assert "split: 7\n" in capsys.readouterr().out
    assert main(["queuectl", "--home", str(tmp_path / "two"), "stat"]) == 111
    assert "split: 5\n" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["list"], ["stat"], ["show", "5"]])
def test_a_queue_that_is_not_there_is_temporary_trouble(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["queuectl", "--home", str(tmp_path), *words]) == 111
    assert capfd.readouterr().err == (
        f"queuectl: fatal: unable to read {tmp_path}/queue/mess: no such file or directory; "
        "mount its disk, or make the queue with queuectl init\n"
    )


def test_an_interruption_is_temporary_trouble(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    @click.command("sleepy")
    def sleepy() -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(group.commands, "sleepy", sleepy)
    assert main(["queuectl", "sleepy"]) == 111
    assert "interrupted" in capfd.readouterr().err


def test_a_reader_that_goes_away_is_no_trouble(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    for number in range(1, 3000):
        Path(home.queue, "mess", str(number % 23), str(number)).touch()
    reader, writer = os.pipe()
    words = [*program("queuectl"), "--home", home.path, "list"]
    with subprocess.Popen(words, stdout=writer, stderr=subprocess.PIPE) as process:
        os.close(writer)
        assert os.read(reader, 10)
        os.close(reader)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")
