"""A home with two queues: a set of daemons for each, queue-intake in front, and limits that hold over both."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.trigger import is_read
from support.intake.intake_daemon import Client, ask, qmtp
from support.processes.suite import DEADLINE, Suite, program, wait_until
from support.queues.home import make_several
from support.send.control import queuectl


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("QUEUE_SHARES_ROUND", "0.05")
    found = make_several(tmp_path / "home", "a", "b", split=3)
    Path(found.control, "locals").write_text("me.example.org\n")
    Path(found.alias, ".qmail-default").write_text(f"{tmp_path}/box/\n")
    for name in ("cur", "new", "tmp"):
        (tmp_path / "box" / name).mkdir(parents=True)
    return found


@pytest.fixture
def intake(home: Home) -> Iterator[subprocess.Popen[bytes]]:
    words = [*program("queue-start"), "--home", home.path, "--intake"]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_until(lambda: listens(home), why="queue-intake to listen")
    yield process
    process.terminate()
    assert process.wait(DEADLINE) == 0


def listens(home: Home) -> bool:
    """Return whether queue-intake takes connections."""
    try:
        Client(home).close()
    except OSError:
        return False
    return True


def hand_in(home: Home, count: int) -> list[str]:
    """Hand in messages to a local recipient; return the queues that have taken them."""
    mail = qmtp(b"Subject: hello\n\n", b"ann@me.example.org", [b"bob@me.example.org"])

    answers = ask(home, mail * count, count)
    assert all(answer.startswith(b"K") for answer in answers)
    return sorted(answer.split()[-1].decode().partition("/")[0] for answer in answers)


def hand_in_until(home: Home, queues: set[str]) -> list[str]:
    """Hand in messages until these queues take them and no other; return the queues that have taken each."""
    taken: list[str] = []

    def only_these() -> bool:
        found = hand_in(home, 6)
        taken.extend(found)
        return set(found) == queues

    wait_until(only_these, why=f"mail for {queues} alone")
    return taken


def inject(home: Home, name: str, recipient: str) -> None:
    """Have a program queue a message, without queue-intake."""
    environment = {**os.environ, "QUEUE_HOME": home.path}
    done = subprocess.run(
        [*program(name), recipient], input=b"\nhello\n", env=environment, check=False, timeout=DEADLINE
    )
    assert done.returncode == 0


def delivered(home: Home) -> int:
    return len(list(Path(home.path).parent.joinpath("box/new").iterdir()))


def test_each_set_delivers_its_own_mail_and_queue_intake_lives_on_without_one(
    home: Home, intake: subprocess.Popen[bytes]
) -> None:
    with ExitStack() as stack:
        sets = {name: stack.enter_context(Suite(home, options=("--queue", name))) for name in home.queues}
        # Both run, so each has its part of what is allowed over all.
        sets["a"].wait_for(r"^status: local 0/5 remote 0/125$")
        sets["b"].wait_for(r"^status: local 0/5 remote 0/125$")
        wait_until(lambda: all(map(is_read, home.each())), why="each queue-todo")
        assert hand_in(home, 4) == ["a", "a", "b", "b"]
        wait_until(lambda: delivered(home) == 4, why="the mail")
        for name in home.queues:
            sets[name].wait_for("^end msg", times=2)
        shown = queuectl(home, "stat")
        assert shown.returncode == 0 and shown.stdout.startswith("queue a:\n")
        assert sets["a"].stop() == 0
        assert intake.poll() is None
        # All mail goes to the queue that runs, once queue-intake has looked again.
        taken = hand_in_until(home, {"b"})
        for name in ("queue-inject", "queue-inject", "sendmail"):
            inject(home, name, "bob@me.example.org")
        count = 7 + taken.count("b")
        wait_until(lambda: delivered(home) == count, why="the mail of the queue that runs")
        sets["b"].wait_for(r"^status: local 0/10 remote 0/250$")
        # Killed, it leaves nothing behind that says that it runs.
        sets["b"].kill()
        # If none runs, all take mail, which waits on their disks.
        taken += hand_in_until(home, {"a", "b"})
        stack.enter_context(Suite(home, options=("--queue", "a")))
        count += taken.count("a")
        wait_until(lambda: delivered(home) == count, why="the mail that has waited in one queue")
        hand_in_until(home, {"a"})


def test_a_set_is_started_by_the_name_of_its_queue_and_once(home: Home) -> None:
    for options, code, why in (
        ((), 100, "unable to choose a queue: .* has a, b; --queue NAME names one"),
        (("--queue", "c"), 100, "unable to use queue c: .* has a, b"),
    ):
        suite = Suite(home, options=options, executed=True)
        assert suite.process.wait(DEADLINE) == code
        suite.stop()
        assert suite.count(f"^queue-start: alert: cannot start: {why}")
    os.rename(home.queues["b"], home.queues["b"] + ".out")
    without = Suite(home, options=("--queue", "b"), executed=True)
    assert without.process.wait(DEADLINE) == 111, "it is started again until its disk is there"
    without.stop()
    assert without.count(f"unable to use {home.queues['b']}: no such file or directory; is its disk mounted")
    with Suite(home, options=("--queue", "a")):
        second = Suite(home, options=("--queue", "a"))
        assert second.process.wait(DEADLINE) == 111
        second.stop()
        assert second.count("queue-send is already running on this queue")


def test_the_intake_of_a_home_with_one_queue_is_no_service(home: Home) -> None:
    Path(home.control, "queues").unlink()
    Path(home.path, "a").rename(Path(home.path, "only"))
    done = subprocess.run(
        [*program("queue-start"), "--home", home.path, "--intake"], capture_output=True, check=False, timeout=DEADLINE
    )
    assert done.returncode == 100
    assert b"has one queue, whose queue-start starts queue-intake too" in done.stderr


def test_mail_of_queue_inject_is_spread_without_queue_intake(home: Home) -> None:
    for _ in range(8):
        inject(home, "queue-inject", "bob@example.net")
    counts = [len(list(Path(path, "todo").glob("*/*"))) for path in home.queues.values()]
    assert sum(counts) == 8
