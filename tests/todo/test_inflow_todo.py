"""todo/ that waits longer than classification keeps up with: injectors are slowed, then refused, and let go again."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_base.queue.inflow import MARK_SECONDS, SLOW_SECONDS, refuse_mark, slow_mark
from queue_wire.files.maildrop import pack_header
from support.inject.injectors import ROOT, USER, PickupDaemon, as_user, enqueue, inject, shared_home, states
from support.inject.maildrop import ENVELOPE, maildrop, put, taken
from support.processes.suite import Suite, wait_until
from support.processes.todo_daemon import TodoDaemon
from support.queues.home import make_home
from support.queues.inflow import SlowTodo
from support.queues.letters import Letter
from support.send.feeding import bulk
from support.site import Site

INJECTORS = 8
NEVER = 3600.0
WAIT_MIN = SLOW_SECONDS / 2


def letters(count: int) -> list[Letter]:
    return [Letter(f"burst{number}", "joe@me.example.org", ["ann@me.example.org"]) for number in range(count)]


class Injectors:
    """INJECTORS processes at a time inject one message after the other; `took` are (seconds, slowed, exit code).

    `slowed` is whether the mark that slows injectors was set before the injection and after it.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._leaving = threading.Event()
        self.took: list[tuple[float, bool, int]] = []
        self._threads = [threading.Thread(target=self._work) for _ in range(INJECTORS)]

    def _work(self) -> None:
        mark = slow_mark(self._site.home)
        while not self._leaving.is_set():
            slowed, begin = mark.holds(), time.monotonic()
            code = enqueue(self._site.home, b"Subject: x\n\n", b"Fjoe@me.example.org\0Tann@me.example.org\0\0").code
            self.took.append((time.monotonic() - begin, slowed and mark.holds(), code))

    def __enter__(self) -> "Injectors":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        for thread in self._threads:
            thread.join(60)


def test_injectors_are_slowed_until_todo_is_worked_off_though_they_never_stop(site: Site, tmp_path: Path) -> None:
    slow = SlowTodo(tmp_path, group=5, pace=0.125, slow_after=0.5, refuse_after=NEVER)
    with Suite(site.home, programs=slow.programs) as suite:
        # 100 messages at 40 a second; INJECTORS that wait half a second or more add fewer than 16 a second.
        bulk(site.home, letters(100), group=50)
        suite.wait_for(r"^inflow slow: \d+ messages wait in todo, the next one for \d+ s$")
        with Injectors(site) as injectors:
            suite.wait_for(r"^inflow free: ")
        meanwhile = [seconds for seconds, slowed, _ in injectors.took if slowed]
        assert meanwhile and min(meanwhile) >= WAIT_MIN
        assert {code for _, _, code in injectors.took} == {0}
        slow.hurry()
        suite.wait_for("new msg", times=100 + len(injectors.took))
        assert suite.count("inflow refused") == 0


def test_while_queue_todo_is_stopped_mail_is_taken_and_then_injectors_are_slowed(site: Site, tmp_path: Path) -> None:
    slow = SlowTodo(tmp_path, group=5, pace=0.125, slow_after=0.5, refuse_after=NEVER)
    with Suite(site.home, programs=slow.programs) as suite:
        todo = suite.daemon("queue-todo")
        os.kill(todo, signal.SIGSTOP)
        with Injectors(site) as injectors:
            wait_until(lambda: len(injectors.took) >= 60, why="60 messages")
            assert suite.count("inflow") == 0 and {code for _, _, code in injectors.took} == {0}
            os.kill(todo, signal.SIGCONT)
            suite.wait_for(r"^inflow slow: ")
            suite.wait_for(r"^inflow free: ")
        slow.hurry()
        suite.wait_for("new msg", times=len(injectors.took))


def test_injectors_are_refused_with_71_where_slowing_is_not_enough(site: Site, tmp_path: Path) -> None:
    slow = SlowTodo(tmp_path, group=1, pace=0.2, slow_after=0.2, refuse_after=4.0)
    with Suite(site.home, programs=slow.programs) as suite:
        bulk(site.home, letters(1))
        # Its line is in the log before it is classified, and what arrives until then may be the backlog of the start.
        suite.wait_for("end msg")
        bulk(site.home, letters(100), group=100)
        suite.wait_for(r"^inflow refused: \d+ messages wait in todo, the next one for \d+ s$")
        outcome = enqueue(site.home, b"x")
        assert outcome.code == 71
        assert outcome.error.endswith(b"unable to queue message: todo/ of %s is behind; try again later\n" % (
            os.fsencode(site.home.queue)
        ))
        assert inject(site.home, "ann", message=b"Subject: x\n\n").code == 111
        # Beside what queue-clean has there while it removes messages that were delivered.
        assert [name for name in os.listdir(f"{site.home.queue}/pid") if not name.startswith("finished.")] == []
        slow.hurry()
        suite.wait_for(r"^inflow free: ")
        suite.wait_for("new msg", times=101)
        assert enqueue(site.home, b"x").code == 0
        # The last message, too, may have waited long enough to set a mark.
        lock = f"{site.home.queue}/lock"
        wait_until(lambda: not {"slow", "refuse"}.intersection(os.listdir(lock)), why="the marks to go")


def test_what_waits_at_the_start_slows_injectors_and_never_refuses_them(site: Site, tmp_path: Path) -> None:
    bulk(site.home, letters(60), group=60)
    slow = SlowTodo(tmp_path, group=2, pace=0.1, slow_after=0.2, refuse_after=0.6)
    with Suite(site.home, programs=slow.programs) as suite:
        suite.wait_for(r"^inflow slow: ")
        suite.wait_for(r"new msg", times=30)
        assert enqueue(site.home, b"x").code == 0
        suite.wait_for(r"^inflow free: ")
        suite.wait_for(r"new msg", times=61)
        assert suite.count("inflow refused") == 0


def test_a_killed_queue_todo_stops_no_injection_for_longer_than_its_mark_lasts(site: Site, tmp_path: Path) -> None:
    slow = SlowTodo(tmp_path, group=1, pace=0.2, slow_after=0.2, refuse_after=NEVER)
    mark = slow_mark(site.home)
    with Suite(site.home, programs=slow.programs) as suite:
        bulk(site.home, letters(50), group=50)
        suite.wait_for(r"^inflow slow: ")
        wait_until(mark.holds, why="the mark")
        suite.kill()
    left = os.stat(mark.path).st_mtime - time.time()
    assert left <= MARK_SECONDS
    os.utime(mark.path, (0, time.time() - 0.001))
    assert not mark.holds()
    slow.hurry()
    with Suite(site.home, programs=slow.programs) as suite:
        wait_until(lambda: states(site.home)[4] == 0, why="todo/ to be empty")
        assert not os.path.exists(mark.path)


@pytest.mark.parametrize("how", ["told to exit", "queue-send is gone"])
def test_queue_todo_removes_its_marks_at_its_end(tmp_path: Path, how: str) -> None:
    home = make_home(tmp_path / "home", split=3)
    slow = SlowTodo(tmp_path, group=1, pace=0.2, slow_after=0.2, refuse_after=NEVER)
    with TodoDaemon(home, programs=slow.programs) as todo:
        bulk(home, letters(50), group=50)
        todo.notice()
        wait_until(slow_mark(home).holds, why="the mark")
        assert (todo.exit() if how == "told to exit" else todo.end()) == 0
        assert sorted(os.listdir(f"{home.queue}/lock")) == ["sendmutex", "trigger"]


def assert_no_event(what: Callable[[], object], seconds: float) -> None:
    """Fail if `what()` becomes true within some seconds: many times what it takes where nothing hinders it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert not what()
        threading.Event().wait(0.05)


def with_mtime(ahead: float) -> Callable[[str], None]:
    return lambda path: os.utime(path, (0, time.time() + ahead))


@pytest.mark.parametrize(("ahead", "holds"), [(-1, False), (MARK_SECONDS - 1, True), (MARK_SECONDS + 5, False)])
def test_a_mark_counts_while_it_is_ahead_but_not_where_the_clock_was_wrong(
    site: Site, ahead: float, holds: bool
) -> None:
    mark = slow_mark(site.home)
    assert not mark.holds()
    mark.set("slow\n")
    assert mark.holds()
    with_mtime(ahead)(mark.path)
    assert mark.holds() is holds


def test_pickup_takes_a_group_a_second_while_slowed_and_nothing_while_refused() -> None:
    with shared_home() as home:
        for _ in range(250):
            put(home, pack_header(4) + b"mail" + ENVELOPE, f"mail.{os.urandom(16).hex()}")
        marks = [slow_mark(home), refuse_mark(home)]
        for mark in marks:
            mark.set("x\n")
        begin = time.monotonic()
        with PickupDaemon(home) as pickup:
            assert_no_event(lambda: states(home), seconds=1.0)
            marks[1].clear()
            wait_until(lambda: states(home)[4] == 100 and len(maildrop(home)) == 150, why="the first group")
            taken(home, 250)
            assert time.monotonic() - begin >= 1.0 + 2 * SLOW_SECONDS
            assert pickup.end() == (0, b"") and pickup.log == b""


@pytest.mark.skipif(not ROOT, reason="needs another user")
def test_a_user_who_cannot_see_the_marks_leaves_mail_in_maildrop_without_waiting() -> None:
    with shared_home() as home:
        os.chmod(f"{home.queue}/lock", 0o700)
        for name in ("slow", "refuse"):
            path = Path(home.queue, "lock", name)
            path.touch()
            with_mtime(MARK_SECONDS - 1)(str(path))
        begin = time.monotonic()
        assert enqueue(home, b"x", command=as_user(USER, "queue_inject.enqueue")).code == 0
        assert len(maildrop(home)) == 1 and time.monotonic() - begin < MARK_SECONDS
