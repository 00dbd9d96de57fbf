"""control/remoteprogram: real programs in the built-in client's place, good ones and bad ones."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_remote import program as program_module
from queue_remote.job_parts import PartOutcome
from queue_remote.message.file import open_message
from queue_remote.program import Programs
from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE, PERMANENT, SUCCESS, TEMPORARY, Report
from support.processes.programs import wait_for_end
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.processes.suite import wait_until
from support.servers.smtp.smtp_server import SmtpServer

TEXT = b"Subject: hello\n\nA message.\n"


def program(home: RemoteHome, body: str, name: str = "program") -> Path:
    """Write an executable shell script; return its path."""
    path = home.path / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def run(home: RemoteHome, body: str, *recipients: bytes) -> Report:
    """Deliver by a shell script; return the report."""
    home.control("remoteprogram", str(program(home, body)))
    with RemoteDaemon(home) as daemon:
        return daemon.deliver(home.message(TEXT), *(recipients or (b"to@b.example",)))


def test_it_gets_qmail_remotes_arguments_and_the_message(home: RemoteHome) -> None:
    script = program(home, 'printf "%s|" "$@" "$QUEUE_HOME" "$PWD" >args; cat >message; printf "r\\0r\\0Kdone\\n\\0"')
    home.control("remoteprogram", f"{script}  one  two")
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(
            home.message(TEXT), b"a b@c.example", b"$(x)@c.example", sender=b"", nexthop=b"h.example"
        )
    assert report.scope == MESSAGE_SCOPE
    assert report.verdicts == [(SUCCESS, b"done\n")] * 2
    assert (home.path / "message").read_bytes() == TEXT
    given = (home.path / "args").read_text().split("|")
    assert given == [
        "one",
        "two",
        "h.example",
        "",
        "a b@c.example",
        "$(x)@c.example",
        str(home.path),
        str(home.path),
        "",
    ]


def test_a_domain_that_a_program_would_read_as_an_option_fails_and_is_given_to_none(home: RemoteHome) -> None:
    report = run(home, "touch ran; printf 'Kdone\\0'", b"to@--home")
    assert report.verdicts == [(PERMANENT, b"Sorry, I couldn't find any host named --home. (#5.1.2)\n")]
    assert not (home.path / "ran").exists()


def test_it_has_a_session_of_its_own_and_no_descriptor_and_no_ignored_signal_of_ours(home: RemoteHome) -> None:
    look = home.path / "look.py"
    look.write_text(
        "import os, signal\n"
        "ignored = [n for n in (1, 2, 15) if signal.getsignal(n) == signal.SIG_IGN]\n"
        "print('K', os.getsid(0) == os.getpid(), os.listdir('/proc/self/fd'), ignored, end='\\0')\n"
    )
    report = run(home, f"exec {sys.executable} -I -S {look}")
    # 3 is the directory that it looks at.
    assert report.verdicts == [(SUCCESS, b" True ['0', '1', '2', '3'] []")]


def test_nexthops_may_have_programs_of_their_own_or_none(home: RemoteHome) -> None:
    one = program(home, 'printf "Kone\\0"', "one")
    two = program(home, 'printf "Ktwo\\0"', "two")
    with SmtpServer() as server:
        home.route_all_to(server.port)
        home.control("remoteprogram", f"{one}\n.b.example:{two}\nbuilt.example:\n@special.example:{two}")
        path = home.message(TEXT)
        with RemoteDaemon(home) as daemon:
            texts = [
                daemon.deliver(path, b"x@a.example").verdicts[0][1],
                daemon.deliver(path, b"x@mx.b.example").verdicts[0][1],
                daemon.deliver(path, b"x@a.example", sender=b"x@special.example").verdicts[0][1],
                daemon.deliver(path, b"x@built.example").verdicts[0][1],
            ]
        assert len(server.received) == 1
    assert texts[:3] == [b"one", b"two", b"two"]
    assert b"250 ok" in texts[3]


def test_a_host_that_was_not_there_is_reported_as_such(home: RemoteHome) -> None:
    assert run(home, 'printf "Zno connection (#4.4.1)\\n\\0"').scope == HOST_SCOPE


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("exit 100", b"it exited 100"),
        ("printf 'Kdone\\0'; exit 1", b"it exited 1"),
        ("exit 127", b"it exited 127"),
        ("kill -SEGV $$", b"it was killed by signal 11"),
        ("true", b"no output"),
        ("printf 'r\\0'", b"no report on the message"),
        ("exec cat /dev/zero", b"it said more than"),
    ],
)
def test_a_program_that_fails_defers_with_an_alert(home: RemoteHome, body: str, why: bytes) -> None:
    home.control("remoteprogram", str(program(home, body)))
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(home.message(TEXT), b"one@b.example", b"two@b.example")
        assert (report.scope, [letter for letter, _ in report.verdicts]) == (MESSAGE_SCOPE, [TEMPORARY] * 2)
        assert why in report.verdicts[0][1]
        alert = daemon.wait_for_error(b"deferred\n")
    assert alert.startswith(b"queue-remote: alert: unable to deliver by ")
    assert why in alert


def test_what_it_says_on_stderr_is_for_the_log_and_not_for_the_sender(home: RemoteHome) -> None:
    home.control("remoteprogram", str(program(home, "printf 'the\\nreason\\033[2J' >&2; exit 1")))
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(home.message(TEXT), b"x@b.example")
        assert b"it exited 1; mail for it is deferred; it said: the reason [2J\n" in daemon.wait_for_error(b"[2J\n")
    assert b"reason" not in report.verdicts[0][1]


def test_a_program_that_is_missing_or_not_executable_defers_with_one_alert(home: RemoteHome) -> None:
    home.control("remoteprogram", f"{home.path}/missing\nplain.example:{home.path}/control/me")
    with RemoteDaemon(home) as daemon:
        path = home.message(TEXT)
        reports = [daemon.deliver(path, b"x@b.example") for _ in range(3)] + [daemon.deliver(path, b"x@plain.example")]
        code, errors = daemon.end()
    assert [report.verdicts[0][0] for report in reports] == [TEMPORARY] * 4
    assert (code, errors.count(b"alert:")) == (0, 2)
    assert b"missing: no such file or directory" in errors
    assert b"me: permission denied" in errors


def test_a_control_file_that_names_no_path_defers_everything(home: RemoteHome) -> None:
    home.control("remoteprogram", "qmail-remote")
    with RemoteDaemon(home) as daemon:
        assert daemon.deliver(home.message(TEXT), b"x@b.example").verdicts[0][0] == TEMPORARY
        assert b"remoteprogram line 1: not the whole path of a program" in daemon.wait_for_error(b"deferred")


def gone(pid: int, seconds: float = 30) -> bool:
    """Wait until a process is gone, or a zombie that its new parent has not reaped yet."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def started(home: RemoteHome, name: str) -> int:
    """Return the pid that a program has written into a file, once it is there."""
    deadline = time.monotonic() + 30
    while not ((home.path / name).exists() and (home.path / name).read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int((home.path / name).read_text())


def test_a_program_over_its_time_is_ended_with_all_that_it_has_started(home: RemoteHome) -> None:
    home.control("timeoutprogram", "3")
    report = run(home, "trap '' TERM; sleep 1000 & echo $! >child; wait; sleep 1000")
    assert report.verdicts[0][0] == TEMPORARY
    assert b"it took too long" in report.verdicts[0][1]
    assert gone(started(home, "child"))


def test_a_child_that_keeps_the_pipe_open_holds_up_nothing(home: RemoteHome) -> None:
    before = time.monotonic()
    report = run(home, "sleep 1000 & echo $! >child; printf 'Kdone\\0'")
    assert report.verdicts[0][0] == SUCCESS
    assert time.monotonic() - before < 60
    assert gone(started(home, "child"))


def test_programs_end_with_queue_remote(home: RemoteHome) -> None:
    home.control("remoteprogram", str(program(home, "trap '' TERM; sleep 1000 & echo $! >child; wait")))
    with RemoteDaemon(home) as daemon:
        daemon.start(home.message(TEXT), b"x@b.example")
        child = started(home, "child")
        assert daemon.end()[0] == 0
    assert gone(child)


def test_jobs_run_side_by_side(home: RemoteHome) -> None:
    """Each waits for the other one."""
    both = "while [ ! -e in.x@b.example ] || [ ! -e in.y@b.example ]; do sleep 0.05; done"
    body = f"""touch "in.$3"; {both}; printf 'Kdone\\0'"""
    home.control("remoteprogram", str(program(home, body)))
    home.control("timeoutprogram", "20")
    with RemoteDaemon(home) as daemon:
        jobs = [daemon.start(home.message(TEXT), who) for who in (b"x@b.example", b"y@b.example")]
        assert [daemon.report(job).verdicts[0][0] for job in jobs] == [SUCCESS] * 2


def test_descriptors_stay_flat(home: RemoteHome) -> None:
    home.control("remoteprogram", str(program(home, 'printf "Kdone\\0"')))
    path = home.message(TEXT)
    with RemoteDaemon(home) as daemon:
        daemon.deliver(path, b"x@b.example")
        held = Path(f"/proc/{daemon.process.pid}/fd")
        before = len(os.listdir(held))
        for _ in range(30):
            daemon.deliver(path, b"x@b.example")
        # Those of the last program may be there a little longer than its report.
        wait_until(lambda: len(os.listdir(held)) <= before, why="the last program's descriptors to be closed")


def test_a_wrapper_may_end_in_queue_remote_itself(home: RemoteHome) -> None:
    """By hand it is qmail-remote, and asks no program."""
    remote = Path(__file__).parents[2] / "bin" / "queue-remote"
    with SmtpServer() as server:
        home.route_all_to(server.port)
        report = run(home, f'exec {sys.executable} {remote} "$@"', b"one@b.example", b"two@b.example")
        assert [letter for letter, _ in report.verdicts] == [SUCCESS] * 2
        assert [message.stored for message in server.received] == [TEXT]


class Endless:
    """The module os, but that nothing that is read from ends."""

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def read(self, descriptor: int, most: int) -> bytes:
        return os.read(descriptor, most) or b"x" * most


def deliver_by(home: RemoteHome, body: str) -> PartOutcome:
    """Deliver by a shell script, in this process."""

    async def deliver() -> PartOutcome:
        arguments = [b"b.example", b"from@a.example", b"to@b.example"]
        message = open_message(str(home.path / "queue" / os.fsdecode(home.message(TEXT))))
        words = (os.fsencode(program(home, body)),)
        try:
            return await Programs(Home(str(home.path)), "queue-remote").deliver(words, arguments, message, 20)
        finally:
            message.close()

    return asyncio.run(deliver())


def test_what_a_program_leaves_behind_may_write_for_ever(home: RemoteHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pipes are never empty then: once the program has exited they are read a little, not until they are."""
    monkeypatch.setattr(program_module, "os", Endless())
    # What it says on stderr is not limited in any case.
    monkeypatch.setattr(program_module, "OUTPUT_MAX", 1 << 40)

    # It ends.
    assert len(deliver_by(home, 'printf "Kdone\\n\\0"').verdicts) == 1


def test_what_it_leaves_running_is_killed_before_its_number_can_be_anothers(
    home: RemoteHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[bool] = []
    real = os.killpg

    def kill(group: int, number: int) -> None:
        there.append(os.path.exists(f"/proc/{group}"))
        real(group, number)

    monkeypatch.setattr(os, "killpg", kill)
    found = deliver_by(home, 'sleep 600 & echo $! >left; printf "Kdone\\n\\0"')
    assert found.verdicts == [(SUCCESS, b"done\n")]
    assert there == [True]
    wait_for_end(int((home.path / "left").read_text()))
