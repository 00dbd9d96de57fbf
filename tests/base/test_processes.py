"""Failures, pipes, signals and accounts: with real processes and signals."""

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

from queue_base.accounts import queue_owner
from queue_base.daemon.pipes import OutPipe, PeerLost, read_available
from queue_base.daemon.signals import Signals
from queue_base.errors import (
    PERMANENT,
    TEMPORARY,
    Failure,
    Permanent,
    Temporary,
    Usage,
    complain,
    reason,
)
from queue_base.home import Home

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
    assert 0 < out.unwritten < len(sent)

    while len(received) < len(sent):
        received += read_available(reader) or b""
        out.flush()

    assert received == sent
    assert out.unwritten == 0


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
    done = subprocess.run([sys.executable, "-c", BECOME], capture_output=True, timeout=60, check=True)

    if os.getuid() == 0:
        assert done.stdout == b"(65534, 65534, 65534) (65533, 65533, 65533) []\n"
    else:
        assert done.stdout == b"unable to become uid 65534 gid 65533: operation not permitted\n"


def test_the_support_home_has_the_files_of_the_design(home: Home) -> None:
    assert stat.S_ISFIFO(os.stat(f"{home.queue}/lock/trigger").st_mode)
    assert {"mess", "todo", "intd", "info", "local", "remote", "bounce", "pid", "lock"} <= set(os.listdir(home.queue))
