"""The loop of queue-intake, without its process: turns of clients, limits of descriptors, what it waits for."""

import resource
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from queue_intake import main as module
from queue_intake.commit_lane import CommitLane
from queue_intake.main import Intake, raise_limit
from queue_intake.sharing import Turns

INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "found"),
    [
        (1024, 1024, 1024),
        (1024, 1 << 20, 8192),
        (1 << 20, 1 << 20, 8192),
        (1024, 4096, 4096),
        (256, INFINITY, 8192),
        (INFINITY, INFINITY, 8192),
    ],
)
def test_it_counts_on_no_more_descriptors_than_it_may_have(
    soft: int, hard: int, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: asked.append(limits))
    assert raise_limit(8192) == found
    assert asked == ([(found, hard)] if soft != INFINITY and soft < found else [])


def connection(client: str, **more: object) -> Any:
    """Return what the loop sees of a connection."""
    state = {"closed": False, "blocked": False, "yields": False, "waits": 0.0}
    return type("Stub", (SimpleNamespace,), {"__hash__": object.__hash__})(
        client=SimpleNamespace(name=client), **{**state, **more}
    )


@pytest.fixture
def intake() -> Intake:
    """Return one without descriptors and threads."""
    found = Intake.__new__(Intake)
    found._ready, found._lanes, found._events, found._delayed = Turns(), {}, {}, set()
    found._connections = {}
    found._accept_at = found._check_at = 0.0
    found._closing_by = None
    idle: Any = SimpleNamespace(has_results=False, busy=False, due=None)
    found._troubles = found._strangers = idle
    return found


def test_connections_are_served_by_turns_of_their_clients(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[str] = []

    def serve(_: Intake, each: Any, events: int, now: float) -> None:
        served.append(each.client.name)
        if each.yields:
            intake._plan(each)

    monkeypatch.setattr(Intake, "_serve", serve)
    monkeypatch.setattr(module, "TURN", 0.02)
    for _ in range(200):
        intake._plan(connection("ann", yields=True))
    bob = connection("bob")
    intake._plan(bob, 1)
    intake._plan(bob, 4)
    assert intake._events[bob] == 5
    assert intake._wait(0.0) == 0.0
    intake._serve_ready(0.0)
    assert served[1] == "bob" and served.count("bob") == 1


def test_a_connection_that_is_blocked_does_not_keep_the_loop_busy_for_its_time_that_has_come(intake: Intake) -> None:
    now = time.monotonic()
    blocked = connection("ann", blocked=True, waits=now - 5)
    intake._delayed.add(blocked)
    assert intake._wait(now) > 100
    intake._resume(now)
    assert not intake._events
    blocked.blocked = False
    assert intake._wait(now) == 0.0
    intake._resume(now)
    assert list(intake._events) == [blocked]


def test_contents_are_synced_one_message_at_a_time_by_turns_of_clients() -> None:
    lane = CommitLane.__new__(CommitLane)
    lane.large = Turns()
    submitted: list[Any] = []
    disk: Any = SimpleNamespace(busy=False)

    def submit(work: Any, then: Any) -> None:
        submitted.append(work())
        disk.busy = True

    disk.submit = submit
    lane.syncs = disk
    for client, number in [("ann", 1), ("ann", 2), ("ann", 3), ("bob", 4)]:
        lane.large.add(client, SimpleNamespace(run=lambda number=number: number))  # type: ignore[arg-type]
    lane.begin_sync()
    lane.begin_sync()
    assert submitted == [1]
    for _ in range(4):
        disk.busy = False
        lane.begin_sync()
    assert submitted == [1, 4, 2, 3]


def test_a_client_that_seems_late_is_heard_once_more(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    served: deque[Any] = deque()

    class Late(SimpleNamespace):
        def __init__(self, heard: bool) -> None:
            super().__init__(closed=False, late=True, heard=heard, blocked=False)

        def is_late(self, now: float) -> bool:
            return bool(self.late)

        def close(self) -> None:
            self.closed = True

    def serve(_: Intake, each: Any, events: int, now: float) -> None:
        served.append(each)
        each.late = not each.heard

    monkeypatch.setattr(Intake, "_serve", serve)
    monkeypatch.setattr(Intake, "_settle", lambda self, each: None)
    heard, silent = Late(True), Late(False)
    connections: Any = {1: heard, 2: silent}
    intake._connections = connections
    intake._end_late(0.0)
    assert list(served) == [heard, silent]
    assert silent.closed and not heard.closed
