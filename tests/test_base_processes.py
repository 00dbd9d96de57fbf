"""Control files, the home, failures, pipes, signals and accounts: with real files, processes and signals."""

import os
import select
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base import control
from queue_base.accounts import queue_owner
from queue_base.errors import PERMANENT, TEMPORARY, Failure, Permanent, Temporary, Usage, complain, reason
from queue_base.home import DEFAULT_HOME, Home, find_home, take_home
from queue_base.pipes import OutPipe, PeerLost, read_available
from queue_base.signals import Signals
from support.home import make_home

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
BECOME = """
import os, sys
from queue_base.accounts import Owner, become
from queue_base.errors import Permanent
try:
    become(Owner(65534, 65533))
except Permanent as error:
    print(error)
else:
    print(os.getresuid(), os.getresgid(), os.getgroups())
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path / "home", split=2)


def write(home: Home, name: str, data: bytes) -> None:
    Path(home.control, name).write_bytes(data)


def test_a_control_file_that_is_not_there_is_the_default(home: Home) -> None:
    assert control.read_control(home, "locals") is None
    assert control.read_line(home, "helohost", b"me") == b"me"
    assert control.read_number(home, "queuelifetime", 604800) == 604800
    assert control.read_lines(home, "locals") is None
    assert control.read_set(home, "locals") is None
    assert control.read_map(home, "virtualdomains") is None


def test_a_control_file_that_is_there_is_read(home: Home) -> None:
    write(home, "locals", b"Example.ORG\n#no\n\n")
    write(home, "queuelifetime", b"60\n")
    write(home, "virtualdomains", b"Example.net:net\n")

    assert control.read_line(home, "me", b"") == control.read_me(home) == b"me.example.org"
    assert control.read_lines(home, "locals") == [b"Example.ORG"]
    assert control.read_set(home, "locals") == frozenset([b"example.org"])
    assert control.read_number(home, "queuelifetime", 1) == 60
    assert control.read_map(home, "virtualdomains") == {b"example.net": b"net"}


@pytest.mark.parametrize("data", [b"", b"\nme\n", None])
def test_a_missing_or_empty_me_is_temporary_and_says_what_to_do(home: Home, data: bytes | None) -> None:
    Path(home.control, "me").unlink()
    if data is not None:
        write(home, "me", data)

    with pytest.raises(Temporary, match=f"unable to read {home.control}/me: .*write this host's name"):
        control.read_me(home)


def test_a_number_that_cannot_be_parsed_is_temporary_and_names_the_file(home: Home) -> None:
    write(home, "queuelifetime", b"a week\n")

    with pytest.raises(Temporary, match=f"unable to parse {home.control}/queuelifetime: not a number: 'a week'"):
        control.read_number(home, "queuelifetime", 1)


def test_a_control_file_that_may_not_be_read_is_temporary_and_not_the_default(home: Home) -> None:
    write(home, "locals", b"example.org\n")
    os.chmod(f"{home.control}/locals", 0o600 if os.getuid() == 0 else 0)
    done = subprocess.run([sys.executable, "-c", UNREADABLE, home.path], capture_output=True, timeout=20, check=True)

    assert done.stdout == b"unable to read ./control/locals: permission denied\n"


def test_a_control_file_that_is_a_directory_is_temporary(home: Home) -> None:
    os.mkdir(f"{home.control}/locals")

    with pytest.raises(Temporary, match="locals: is a directory"):
        control.read_set(home, "locals")


def test_without_the_control_directory_nothing_is_the_default(tmp_path: Path) -> None:
    with pytest.raises(Temporary, match=f"{tmp_path}/control is not there"):
        control.read_number(Home(str(tmp_path)), "queuelifetime", 1)


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


def test_failures_have_the_exit_codes_of_the_design() -> None:
    assert (PERMANENT, TEMPORARY) == (100, 111)
    assert [kind.exit_code for kind in (Failure, Temporary, Permanent, Usage)] == [111, 111, 100, 100]


def test_a_reason_is_strerrors_in_lower_case() -> None:
    assert reason(FileNotFoundError(2, "x")) == "no such file or directory"
    assert reason(OSError("no number")) == "no number"


def test_a_complaint_is_one_line_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    complain("queue-x", "fatal: unable to read a\nb\udcff")

    assert capfd.readouterr().err == "queue-x: fatal: unable to read a/b\\udcff\n"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        try:
            os.close(descriptor)
        except OSError:
            continue  # The test has closed it.


def test_an_out_pipe_never_waits_on_a_full_pipe_and_keeps_order(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    out, sent, received = OutPipe(writer), b"", b""
    os.set_blocking(reader, False)
    for number in range(3000):
        piece = b"%d " % number * 20
        out.put(piece)
        sent += piece
        out.flush()
    assert 0 < out.held < len(sent)

    while len(received) < len(sent):
        received += read_available(reader) or b""
        out.flush()

    assert received == sent
    assert out.held == 0


def test_nothing_to_read_is_none_and_the_end_is_a_lost_peer(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.set_blocking(reader, False)

    assert read_available(reader) is None
    os.write(writer, b"abc")
    assert read_available(reader, 2) == b"ab"
    assert read_available(reader) == b"c"
    os.close(writer)
    with pytest.raises(PeerLost):
        read_available(reader)


def test_writing_to_a_peer_that_is_gone_is_a_lost_peer(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    out = OutPipe(writer)
    os.close(reader)
    out.flush()
    out.put(b"abc")

    with pytest.raises(PeerLost):
        out.flush()


def test_signals_make_their_descriptor_readable_and_are_told_once() -> None:
    assert threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    caught = Signals(signal.SIGUSR1, signal.SIGUSR2)
    try:
        assert caught.take() == set()
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR2)
        assert select.select([caught.descriptor], [], [], 20)[0] == [caught.descriptor]
        assert caught.take() == {signal.SIGUSR1, signal.SIGUSR2}
        assert caught.take() == set()
    finally:
        os.close(signal.set_wakeup_fd(-1))
        os.close(caught.descriptor)
        for number, handler in before.items():
            signal.signal(number, handler)


def test_the_owner_of_the_queue_is_the_owner_of_its_directory(home: Home, tmp_path: Path) -> None:
    owner = queue_owner(home)

    assert (owner.uid, owner.gid) == (os.stat(home.queue).st_uid, os.stat(home.queue).st_gid)
    with pytest.raises(Temporary, match=f"unable to use {tmp_path}/none/queue: no such file or directory"):
        queue_owner(Home(f"{tmp_path}/none"))


def test_root_becomes_another_user_for_good_and_nobody_else_can() -> None:
    done = subprocess.run([sys.executable, "-c", BECOME], capture_output=True, timeout=20, check=True)

    if os.getuid() == 0:
        assert done.stdout == b"(65534, 65534, 65534) (65533, 65533, 65533) []\n"
    else:
        assert done.stdout == b"unable to become uid 65534 gid 65533: operation not permitted\n"


def test_the_support_home_has_the_files_of_the_design(home: Home) -> None:
    assert stat.S_ISFIFO(os.stat(f"{home.queue}/lock/trigger").st_mode)
    assert {"mess", "todo", "intd", "info", "local", "remote", "bounce", "pid", "lock"} <= set(os.listdir(home.queue))
