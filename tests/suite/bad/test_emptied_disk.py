"""A disk that is full, of blocks or of inodes: queuectl deletes mail from it, with the suite and without."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queue_admin.messages.admin_client import OnDemandClient
from queue_base.errors import Temporary
from queue_base.home import Home
from support.faults.small_disks import FilledDisk, filled_disk
from support.processes.forked import run_program
from support.processes.suite import Suite, enqueue, wait_until
from support.queues.home import make_home
from support.queues.letters import letter_text
from support.servers.ports import refusing_port

MESSAGES = 130  # More than one request of queuectl has.


@pytest.fixture(params=["ext4", "tmpfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FilledDisk]:
    with filled_disk(tmp_path / "filled", request.param) as made:
        yield made


@pytest.fixture(params=["blocks", "names"])
def fill(request: pytest.FixtureRequest, disk: FilledDisk) -> Callable[[], None]:
    """Return what fills the disk."""

    def fill() -> None:
        (disk.take_blocks if request.param == "blocks" else disk.take_names)()
        with pytest.raises(OSError, match="No space left"):
            (disk.path / "more").write_bytes(b"x")

    return fill


@pytest.fixture
def home(disk: FilledDisk) -> Iterator[Home]:
    made = make_home(disk.path / "home", split=3)
    Path(made.control, "queueminfree").write_text("0\n")
    with refusing_port() as port:
        Path(made.control, "smtproutes").write_text(f":127.0.0.1:{port}\n")
        yield made


def put(home: Home, count: int) -> None:
    for number in range(count):
        done = enqueue(home, b"joe@me.example.org", [b"x%d@d%d.example" % (number, number)], letter_text(f"m{number}"))
        assert done.returncode == 0, done.stderr


def queuectl(home: Home, *words: str) -> tuple[int, str]:
    done = run_program("queuectl", "--home", home.path, *words)
    assert b"Traceback" not in done.stderr
    return done.returncode, (done.stdout + done.stderr).decode()


def names(home: Home) -> list[str]:
    return [name for name in queuectl(home, "list", "-0")[1].split("\0") if name]


def left(home: Home) -> list[str]:
    kinds = ("mess", "todo", "intd", "info", "local", "remote", "hold", "last")
    return [str(path) for kind in kinds for path in Path(home.queue, kind).rglob("*") if not path.is_dir()]


def defer_all(home: Home, count: int) -> None:
    """Have the suite classify and defer that many messages."""
    with Suite(home) as suite:
        put(home, count)
        wait_until(lambda: len(list(Path(home.queue, "info").glob("*/*"))) == count, why="the classification")
        assert suite.stop() == 0


def test_with_the_suite_stopped_one_message_and_all_are_deleted_from_a_full_disk(
    home: Home, fill: Callable[[], None]
) -> None:
    defer_all(home, 3)
    put(home, 2)
    fill()
    first, *rest = names(home)
    assert len(rest) == 4
    assert queuectl(home, "delete", first) == (0, "deleted 1 message\n")
    assert queuectl(home, "delete", "--all", "--yes") == (0, "deleted 4 messages\n")
    assert left(home) == []


def test_with_the_suite_running_one_message_and_all_are_deleted_from_a_full_disk(
    home: Home, fill: Callable[[], None]
) -> None:
    defer_all(home, MESSAGES)
    with Suite(home) as suite:
        fill()
        code, text = queuectl(home, "delete", names(home)[0])
        assert (code, "deleted 1 message\n" in text) == (0, True), text
        code, text = queuectl(home, "delete", "--all", "--yes")
        assert (code, f"deleted {MESSAGES - 1} messages\n" in text) == (0, True), text
        wait_until(lambda: left(home) == [], why="the removal of all messages")
        assert suite.stop() == 0


@pytest.mark.parametrize("announces", [True, False])
def test_messages_that_a_full_disk_keeps_in_todo_are_deleted_while_the_suite_runs(
    home: Home, fill: Callable[[], None], announces: bool
) -> None:
    Path(home.control, "classifyafter").write_text("1\n" if announces else "0\n")
    with Suite(home) as suite:
        os.kill(suite.daemon("queue-todo"), signal.SIGSTOP)
        put(home, 3)
        fill()
        os.kill(suite.daemon("queue-todo"), signal.SIGCONT)
        suite.wait_for(r"warning: queue-todo: unable to classify msg \d+.*o space left")
        code, text = queuectl(home, "delete", "--all", "--yes")
        assert (code, "deleted 3 messages\n" in text) == (0, True), text
        wait_until(lambda: left(home) == [], why="the removal of all messages")
        suite.wait_for("^end msg", times=3)
        assert suite.stop() == 0


def test_bounce_says_that_the_disk_is_full_and_leaves_the_message_and_requeue_needs_no_room(
    home: Home, fill: Callable[[], None]
) -> None:
    defer_all(home, 1)
    said = r"^unable to change .*: no space left on device; it is as before; delete, requeue, release and flush need no"

    def check() -> None:
        before = left(home)
        code, text = queuectl(home, "bounce", names(home)[0])
        assert code == 111 and re.search(said, text, re.MULTILINE), text
        assert left(home) == before
        code, text = queuectl(home, "requeue", name := names(home)[0])
        assert (code, text) == (0, f"{name}: is {names(home)[0]} now\nrequeued 1 message\n")

    with Suite(home) as suite:
        fill()
        check()
        assert suite.stop() == 0
    fill()
    check()


def store_three(home: Home, suite: Suite) -> list[str]:
    """Have three messages of two recipients stored for an on-demand domain; return their long ids."""
    for number in range(3):
        recipients = [b"%s%d@customer.example" % (who, number) for who in (b"a", b"b")]
        done = enqueue(home, b"joe@me.example.org", recipients, letter_text(f"m{number}"))
        assert done.returncode == 0, done.stderr
        suite.wait_for("^end msg", times=number + 1)
    wait_until(lambda: not list(Path(home.queue, "mess").glob("*/*")), why="the removal from the queue")
    return list(dict.fromkeys(line.split()[0] for line in stored(home)))


def stored(home: Home) -> list[str]:
    code, text = queuectl(home, "stored", "customer.example")
    return [] if code == 1 else text.splitlines()  # Nothing is stored.


def listens(home: Home) -> bool:
    """Return whether queue-ondemand takes requests."""
    try:
        with OnDemandClient(home):
            return True
    except Temporary:
        return False


def links(home: Home) -> list[str]:
    return sorted(os.listdir(f"{home.queue}/ondemand/customer.example/mess"))


@pytest.mark.parametrize("runs", [True, False])
def test_stored_mail_is_deleted_from_a_full_disk(home: Home, fill: Callable[[], None], runs: bool) -> None:
    Path(home.control, "ondemand").write_text("customer.example:etrn probe never\n")
    with Suite(home) as suite:
        first, second, third = store_three(home, suite)
        assert suite.stop() == 0
    with Suite(home) as suite:  # So the cluster is not appended to any more, and is compacted when most of it is done.
        suite.wait_for("^status: ")
        wait_until(lambda: listens(home), why="the socket of queue-ondemand, which is a name on the disk")
        if not runs:
            assert suite.stop() == 0
        fill()
        done = queuectl(home, "delete", "--recipient", "a1@customer.example")
        assert done == (0, "deleted 1 stored message of customer.example\n")
        assert [line.split()[-1] for line in stored(home) if line.split()[0] == second] == ["b1@customer.example"]
        assert len(links(home)) == 3
        assert queuectl(home, "delete", first, second) == (0, "deleted 2 stored messages of customer.example\n")
        assert links(home) == [f"1.{third}"], "the room of the others is free"
        # There may be room for an order again, which a queue-ondemand that does not run cannot carry out yet.
        code, text = queuectl(home, "delete", "--domain", "customer.example")
        assert (code, text.startswith("deleted 1 stored message of customer.example")) == (0, True), text
        assert stored(home) == [] or not runs
        assert not list(Path(home.queue, "pid").iterdir())
        assert not runs or suite.stop() == 0
    with Suite(home) as suite:
        wait_until(lambda: not Path(home.queue, "ondemand/customer.example").exists(), why="an empty store")
        assert suite.stop() == 0
