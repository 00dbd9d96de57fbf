"""queue-intake in front of several queues: who gets a message, and what is said of a queue that fails."""

import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from queue_base.accounts import queue_owner
from queue_base.home import Home
from queue_base.queue.inflow import refuse_mark, slow_mark
from queue_base.queue.trigger import Trigger
from queue_intake.acceptance import Acceptance, Refusal
from queue_intake.entrance import COMMIT_SECONDS, LOOK_SECONDS, RETRY_SECONDS, Door, Entrance
from queue_intake.main import reopen
from support.queues.home import make_several


class Front:
    """An entrance to the queues of a home, and what it has said."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.now = 1000.0
        self.alerts: list[str] = []
        self.warnings: list[str] = []
        owner = queue_owner(home)
        doors = [Door(one.name, partial(reopen, one, owner, self.warnings.append)) for one in home.each()]
        self.entrance = Entrance(doors, self.warnings.append, self.alerts.append)

    def begin(self) -> Acceptance | Refusal:
        """Begin a message; return the acceptance of its queue, or the refusal."""
        found = self.entrance.begin(0, 100, self.now, 100)
        if isinstance(found, Refusal):
            return found
        draft, acceptance = found
        draft.discard()
        acceptance.promised -= 100
        return acceptance

    def names(self, count: int) -> list[str]:
        """Begin messages, which stay in hand; return the names of their queues, in order."""
        found = [self.begin() for _ in range(count)]
        return sorted(each.name if isinstance(each, Acceptance) else each.text for each in found)

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(make_several(tmp_path / "home", "a", "b"))


def test_messages_go_to_the_queue_that_has_less_in_hand(front: Front) -> None:
    assert front.names(6) == ["a", "a", "a", "b", "b", "b"]
    (a, b) = (door.acceptance for door in front.entrance.doors)
    assert a is not None and b is not None
    a.in_hand, b.in_hand = 0, 10
    assert front.names(5) == ["a"] * 5


def test_a_queue_that_is_not_there_gets_nothing_and_there_is_one_alert(front: Front) -> None:
    path = front.home.queues["a"]
    os.rename(path, path + ".out")
    for _ in range(5):
        assert front.names(2) == ["b", "b"]
        front.later(RETRY_SECONDS * 10)
    assert len(front.alerts) == 1
    assert front.alerts[0].startswith(f"queue a takes no mail: unable to use {path}: no such file or directory; ")
    assert front.alerts[0].endswith("; the others do, and it is tried again")
    os.rename(path + ".out", path)
    front.later(1000.0)
    assert "a" in front.names(20)
    acceptance = front.entrance.doors[0].acceptance
    assert acceptance is not None
    front.entrance.succeed(acceptance, front.now)
    assert front.warnings == ["queue a takes mail again"]


def test_a_queue_that_is_lost_while_it_is_used_is_opened_anew_with_another_split(front: Front, tmp_path: Path) -> None:
    assert front.names(2) == ["a", "b"]
    path = front.home.queues["a"]
    other = make_several(tmp_path / "other", "a", "c", split=11)
    shutil.move(path, path + ".out")
    front.later(LOOK_SECONDS)
    assert front.names(2) == ["b", "b"]
    shutil.move(other.queues["a"], path)
    front.later(1000.0)
    assert "a" in front.names(20)
    assert len(front.alerts) == 1


def test_a_commit_that_fails_closes_its_queue_for_a_while(front: Front) -> None:
    assert front.names(2) == ["a", "b"]
    acceptance = front.entrance.doors[0].acceptance
    assert acceptance is not None
    for _ in range(5):
        front.entrance.fail(acceptance, "unable to sync: read-only file system", front.now)
    assert front.names(4) == ["b"] * 4
    assert front.alerts == [
        "queue a takes no mail: unable to sync: read-only file system; the others do, and it is tried again"
    ]
    # A commit that had begun before says nothing.
    front.entrance.succeed(acceptance, front.now - 1)
    assert front.names(4) == ["b"] * 4 and not front.warnings
    front.later(RETRY_SECONDS)
    assert "a" in front.names(20)


def test_a_queue_whose_commit_takes_long_gets_nothing_while_another_one_is_open(front: Front) -> None:
    assert front.names(2) == ["a", "b"]
    door = front.entrance.doors[0]
    door.busy_since = front.now
    front.later(COMMIT_SECONDS + 1)
    assert front.names(4) == ["b"] * 4
    front.later(1000.0)
    assert front.names(4) == ["b"] * 4
    assert front.alerts == [
        "queue a takes no mail: its disk takes more than 5 s for a commit; the others do, and it is tried again"
    ]
    # If all take long there is no reason to refuse mail: each has what it would have alone.
    other = front.entrance.doors[1]
    other.busy_since = front.now - COMMIT_SECONDS - 1
    assert "a" in front.names(20)
    door.busy_since = other.busy_since = 0.0
    assert door.acceptance is not None
    front.entrance.succeed(door.acceptance, front.now)
    front.later(LOOK_SECONDS)
    assert "a" in front.names(20)


def test_slow_and_refusing_queues_come_last_and_not_at_all(front: Front) -> None:
    slow_mark(front.home.choose("a")).set("slow")
    assert front.names(4) == ["b"] * 4
    assert front.entrance.delay(front.now) == 0.0
    for one in front.home.each():
        slow_mark(one).set("slow")
        refuse_mark(one).set("refuse")
    front.later(1.0)
    found = front.begin()
    assert found == Refusal(b"Z", "no queue takes mail at the moment; try again later (#4.3.2)")
    assert not front.alerts


def test_a_queue_whose_daemons_do_not_run_gets_nothing_while_another_one_can_take_mail(front: Front) -> None:
    trigger = Trigger(front.home.choose("b"))
    assert front.names(4) == ["b"] * 4
    assert not front.alerts, "a service that was stopped is no failure"
    door = front.entrance.doors[1]
    door.busy_since = front.now
    front.later(COMMIT_SECONDS + 1)
    assert front.names(4) == ["a"] * 4, "a disk that hangs is worse than a service that is stopped"
    door.busy_since = 0.0
    trigger.close()
    front.later(LOOK_SECONDS)
    assert "a" in front.names(20)


def test_clients_wait_as_a_queue_that_runs_asks_though_another_one_is_stopped(front: Front) -> None:
    trigger = Trigger(front.home.choose("b"))
    slow_mark(front.home.choose("b")).set("slow")
    assert front.entrance.delay(front.now) > 0.0
    assert front.names(2) == ["b"] * 2
    refuse_mark(front.home.choose("b")).set("refuse")
    front.later(1.0)
    assert front.names(2) == ["a"] * 2, "what no queue that runs takes is taken all the same"
    assert front.entrance.delay(front.now) == 0.0
    trigger.close()
