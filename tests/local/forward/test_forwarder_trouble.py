"""A forwarder that dies, hangs or says nonsense: its forwards are deferred in time, and there is a new one."""

import os
import signal

import pytest

from queue_base.home import Home
from queue_local import forwarding as module
from queue_local.forwarding import Forwards
from support.local.forwards import ended, finish, forwarding, make, put_message, turn
from support.processes.programs import Stopwatch
from support.processes.suite import wait_until

# A forward that is late is reported long before this.
SOON = 30.0


def pid_of(forwards: Forwards) -> int:
    assert forwards._process is not None
    return forwards._process.pid


def test_what_a_killed_forwarder_had_is_deferred_and_the_next_goes_on(
    home: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    path = put_message(home, b"x")
    with forwarding(home) as forwards:
        os.kill(pid_of(forwards), signal.SIGSTOP)
        for number in range(3):
            forwards.take(ended(number, path, [b"a@b"]), 60)
        turn(forwards, 0)
        os.kill(pid_of(forwards), signal.SIGKILL)
        verdicts = finish(forwards)
        assert verdicts == dict.fromkeys(
            range(3), (b"Z", b"Unable to forward message: the forwarder ended by signal 9. (#4.3.0)\n")
        )
        assert make(forwards, path, [b"a@b"])[0] == b"K"
    assert "alert: the forwarder ended by signal 9; its mail is deferred" in capfd.readouterr().err


def test_a_forwarder_that_dies_while_it_has_nothing_is_replaced(home: Home) -> None:
    path = put_message(home, b"x")
    with forwarding(home) as forwards:
        first = pid_of(forwards)
        os.kill(first, signal.SIGKILL)
        turn(forwards)
        assert make(forwards, path, [b"a@b"])[0] == b"K"
        assert pid_of(forwards) != first


def test_a_forwarder_that_died_unnoticed_defers(home: Home) -> None:
    path = put_message(home, b"x")
    with forwarding(home) as forwards:
        pid = pid_of(forwards)
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert make(forwards, path, [b"a@b"])[0] == b"Z"
        assert make(forwards, path, [b"a@b"])[0] == b"K"


def test_a_forward_that_takes_too_long_is_deferred_and_its_forwarder_killed(
    home: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    path, watch = put_message(home, b"x"), Stopwatch()
    with forwarding(home) as forwards:
        os.kill(pid_of(forwards), signal.SIGSTOP)
        forwards.take(ended(1, path, [b"a@b"]), 0.2)
        forwards.take(ended(2, path, [b"a@b"]), 60)
        verdicts = finish(forwards)
        assert make(forwards, path, [b"a@b"])[0] == b"K"
    assert verdicts[1] == (b"Z", b"Unable to forward message: it took too long. (#4.3.0)\n")
    assert verdicts[2][0] == b"Z" and watch.seconds < SOON
    assert "1 forwards took too long; the forwarder is killed" in capfd.readouterr().err


def test_while_a_forwarder_hangs_in_the_kernel_forwards_are_deferred_at_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, watch = put_message(home, b"x"), Stopwatch()

    def hang(process: module._ForwarderProcess) -> None:
        # KILL has no effect on a process that waits for a disk, until that answers.
        process.killed = True

    monkeypatch.setattr(module._ForwarderProcess, "kill", hang)
    with forwarding(home) as forwards:
        pid = pid_of(forwards)
        os.kill(pid, signal.SIGSTOP)
        forwards.take(ended(1, path, [b"a@b"]), 0.2)
        assert finish(forwards)[1][0] == b"Z"
        report = forwards.take(ended(2, path, [b"a@b"]), 60)
        assert report is not None and report.verdicts[0][0] == b"Z" and b"hangs" in report.verdicts[0][1]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: turn(forwards, 0.1) == [] and forwards._process is None)
        assert make(forwards, path, [b"a@b"])[0] == b"K"
    assert watch.seconds < SOON


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.0\r\n\r\n", b"0:,", b"5:x\0x\0y,", b"99999999:"])
def test_a_forwarder_that_does_not_understand_ends_and_is_replaced(home: Home, noise: bytes) -> None:
    path = put_message(home, b"x")
    with forwarding(home) as forwards:
        assert forwards._process is not None
        forwards._process.requests.put(noise)
        assert make(forwards, path, [b"a@b"])[0] == b"Z"
        assert make(forwards, path, [b"a@b"])[0] == b"K"


@pytest.mark.parametrize("noise", [b"hello", b"3:abc,", b"0:,", b"1:7,", b"999999:"])
def test_nonsense_from_a_forwarder_defers_what_it_had(
    home: Home, monkeypatch: pytest.MonkeyPatch, noise: bytes
) -> None:
    def talk(home: Home, requests: int, answers: int) -> None:
        os.read(requests, 100)
        os.write(answers, noise)
        os.read(requests, 100)
        os._exit(0)

    path = put_message(home, b"x")
    with monkeypatch.context() as patch:
        patch.setattr(module, "run_forwarder", talk)
        forwards = Forwards(home)
    assert make(forwards, path, [b"a@b"])[0] == b"Z"
    assert make(forwards, path, [b"a@b"])[0] == b"K"
    forwards.close()


def test_an_answer_to_a_forward_that_nobody_waits_for_is_passed_over(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def talk(home: Home, requests: int, answers: int) -> None:
        os.read(requests, 100)
        os.write(answers, b"8:99\0Kqp 1,7:7\0Kqp 1,")
        os._exit(0)

    path = put_message(home, b"x")
    with monkeypatch.context() as patch:
        patch.setattr(module, "run_forwarder", talk)
        forwards = Forwards(home)
    assert make(forwards, path, [b"a@b"]) == (b"K", b"did 0+1+0\nqp 1")
    forwards.close()


def test_a_machine_without_room_for_the_forwarder_defers(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(home: Home) -> module._ForwarderProcess:
        raise BlockingIOError(11, "")

    with monkeypatch.context() as patch:
        patch.setattr(module, "_ForwarderProcess", no_room)
        forwards = Forwards(home)
        verdict = make(forwards, b"mess/0/1", [b"a@b"])
    assert verdict == (
        b"Z",
        b"Unable to forward message: unable to start the forwarder: resource temporarily unavailable. (#4.3.0)\n",
    )
    assert make(forwards, put_message(home, b"x"), [b"a@b"])[0] == b"K"
    forwards.close()
