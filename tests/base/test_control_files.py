"""The control files of a daemon: the values of the last reading that succeeded stay, and the reason is known."""

from pathlib import Path

import pytest

from queue_base.control_files import ControlFiles, ControlValues, kept_by, read_rules
from queue_base.errors import Temporary
from queue_base.home import Home
from queue_wire.control.registry import BOUNCEHOST, CONNECTIONIDLE, LOCALS, ME, SMTPROUTES, TIMEOUTREMOTE

FILES = (ME, LOCALS, BOUNCEHOST, SMTPROUTES, CONNECTIONIDLE, TIMEOUTREMOTE)


@pytest.fixture
def files(home: Home) -> ControlFiles[ControlValues]:
    made = ControlFiles(home, FILES, lambda values: values)
    assert made.read() == []
    return made


def current(files: ControlFiles[ControlValues]) -> ControlValues:
    assert files.current is not None
    return files.current


def test_a_file_that_is_not_there_has_its_default_or_the_name_of_this_host(files: ControlFiles[ControlValues]) -> None:
    assert current(files)[CONNECTIONIDLE] == 5 and current(files)[BOUNCEHOST] == b"me.example.org"


def test_a_change_is_told_and_without_one_nothing_is_made_anew(home: Home, files: ControlFiles[ControlValues]) -> None:
    Path(home.control, "connectionidle").write_text("7\n")
    assert files.read() == ["connectionidle 7, was default"]
    before = current(files)
    assert before[CONNECTIONIDLE] == 7
    assert files.read() == [] and files.current is before
    assert files.read(again=True) == [] and files.current is not before


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("timeoutremote", "soon\n", "timeoutremote line 1: not a number from 1 to 86400: 'soon'"),
        ("smtproutes", "relay.example\n", "smtproutes line 1: it has no colon, and has no effect"),
        ("locals", "", "locals line 1: it is empty, so no domain would be local"),
        ("me", "\n", "me: it is missing or empty"),
    ],
)
def test_a_file_that_cannot_be_used_leaves_all_old_values_until_it_is_mended(
    home: Home, files: ControlFiles[ControlValues], name: str, text: str, why: str
) -> None:
    before, good = files.current, Path(home.control, "me").read_text()
    Path(home.control, "connectionidle").write_text("7\n")
    Path(home.control, name).write_text(text)
    with pytest.raises(Temporary, match=why):
        files.read()
    assert files.current is before and why in files.in_force().error
    Path(home.control, name).unlink()
    Path(home.control, "me").write_text(good)
    assert files.read() == ["connectionidle 7, was default"] and not files.in_force().error


def test_a_file_to_which_everybody_may_write_changes_nothing(home: Home, files: ControlFiles[ControlValues]) -> None:
    path = Path(home.control, "connectionidle")
    path.write_text("7\n")
    path.chmod(0o666)
    with pytest.raises(Temporary, match="everybody may write to it"):
        files.read()
    assert current(files)[CONNECTIONIDLE] == 5


def test_at_the_start_a_line_without_a_colon_is_taken_and_told(home: Home) -> None:
    Path(home.control, "smtproutes").write_text("a.example:b.example\nrelay.example\n")
    made = ControlFiles(home, FILES, lambda values: values[SMTPROUTES])
    made.read()
    assert made.current is not None and list(made.current) == [b"a.example"]
    path = f"{home.control}/smtproutes"
    assert made.slips() == [f"unable to use {path} line 2: it has no colon, and has no effect"]


def test_a_daemon_keeps_the_files_of_which_it_is_a_reader() -> None:
    assert [file.name for file in kept_by("queue-todo")] == [
        "me", "locals", "virtualdomains", "percenthack", "envnoathost",
    ]  # fmt: skip
    assert ME not in kept_by("queue-local")


def test_without_locals_the_name_of_this_host_is_local(home: Home) -> None:
    assert read_rules(home).locals == {b"me.example.org"}
