"""Control files and the home: with real files, and a process that may not read them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from queue_base import control
from queue_base.errors import Temporary, Usage
from queue_base.home import DEFAULT_HOME, Home, find_home, take_home
from queue_wire.control.registry import LOCALS, QUEUELIFETIME, VIRTUALDOMAINS

# Runs in the home, as nobody where the test runs as root, so that file modes count.
UNREADABLE = """
import os, sys
from queue_base import control
from queue_base.errors import Temporary
from queue_base.home import Home
os.chdir(sys.argv[1])
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    print(control.read_control(Home("."), "locals"))
except Temporary as error:
    print(error)
"""


def write(home: Home, name: str, data: bytes) -> None:
    Path(home.control, name).write_bytes(data)


def test_a_control_file_that_is_not_there_is_the_default(home: Home) -> None:
    assert control.read_control(home, "locals") is None
    assert control.read_line(home, "helohost", b"me") == b"me"
    assert control.read_value(home, QUEUELIFETIME) == 604800
    assert control.read_value(home, LOCALS) is None
    assert control.read_value(home, VIRTUALDOMAINS) == {}


def test_a_control_file_that_is_there_is_read(home: Home) -> None:
    write(home, "locals", b"Example.ORG\n#no\n\n")
    write(home, "queuelifetime", b"60\n")
    write(home, "virtualdomains", b"Example.net:net\n")

    assert control.read_line(home, "me", b"") == control.read_me(home) == b"me.example.org"
    assert control.read_value(home, LOCALS) == frozenset([b"example.org"])
    assert control.read_value(home, QUEUELIFETIME) == 60
    assert control.read_value(home, VIRTUALDOMAINS) == {b"example.net": b"net"}


@pytest.mark.parametrize("data", [b"", b"\nme\n", None])
def test_a_missing_or_empty_me_is_temporary_and_says_what_to_do(home: Home, data: bytes | None) -> None:
    Path(home.control, "me").unlink()
    if data is not None:
        write(home, "me", data)

    with pytest.raises(Temporary, match=f"unable to read {home.control}/me: .*write this host's name"):
        control.read_me(home)


def test_a_number_that_cannot_be_parsed_is_temporary_and_names_the_file(home: Home) -> None:
    write(home, "queuelifetime", b"a week\n")

    why = r"line 1: not a number from 60 to \d+: 'a week'"
    with pytest.raises(Temporary, match=f"unable to parse {home.control}/queuelifetime {why}"):
        control.read_value(home, QUEUELIFETIME)


def test_a_control_file_that_may_not_be_read_is_temporary_and_not_the_default(home: Home) -> None:
    write(home, "locals", b"example.org\n")
    os.chmod(f"{home.control}/locals", 0o600 if os.getuid() == 0 else 0)
    done = subprocess.run([sys.executable, "-c", UNREADABLE, home.path], capture_output=True, timeout=60, check=True)

    assert done.stdout == b"unable to read ./control/locals: permission denied\n"


def test_a_control_file_that_is_a_directory_is_temporary(home: Home) -> None:
    os.mkdir(f"{home.control}/locals")

    with pytest.raises(Temporary, match="locals: is a directory"):
        control.read_value(home, LOCALS)


def test_without_the_control_directory_nothing_is_the_default(tmp_path: Path) -> None:
    with pytest.raises(Temporary, match=f"{tmp_path}/control is not there"):
        control.read_value(Home(str(tmp_path)), QUEUELIFETIME)


def test_the_home_is_the_option_else_the_environment_else_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("QUEUE_HOME", raising=False)
    assert find_home().path == DEFAULT_HOME == "/var/queue"
    monkeypatch.setenv("QUEUE_HOME", "")
    assert find_home().path == "/var/queue"
    monkeypatch.setenv("QUEUE_HOME", "/some/home")
    assert find_home().path == "/some/home"
    monkeypatch.chdir(tmp_path)
    found = find_home("here")
    assert (found.path, found.queue) == (f"{tmp_path}/here", f"{tmp_path}/here/queue")


@pytest.mark.parametrize(
    ("arguments", "path", "rest"),
    [
        (["--home", "/h", "a"], "/h", ["a"]),
        (["--home=/h", "a"], "/h", ["a"]),
        (["a", "--home", "/h"], "/e", ["a", "--home", "/h"]),
        ([], "/e", []),
    ],
)
def test_only_a_leading_home_option_is_taken(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], path: str, rest: list[str]
) -> None:
    monkeypatch.setenv("QUEUE_HOME", "/e")

    home, left = take_home(arguments)

    assert (home.path, left) == (path, rest)


@pytest.mark.parametrize("arguments", [["--home"], ["--home", ""], ["--home="]])
def test_a_home_option_without_a_directory_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(Usage, match="--home needs a directory"):
        take_home(arguments)
