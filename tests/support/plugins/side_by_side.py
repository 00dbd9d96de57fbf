"""Marks that matter in a run of several processes (pytest-xdist, --dist worksteal): `alone`, `together` and `long`.

Each process is a pytest of its own with this plugin. Tests marked `alone` come first, and nothing runs beside them:
every test holds a lock on a directory of the checkout, `turn`, shared, and one that is alone holds it for itself. Who
wants it so holds another, `gate`, meanwhile, so that the others let him have it. A process that dies gives both back.

Tests marked `together` come next. What is first in the order is what xdist leaves to the process that has it, and
what it moves to others last: so something that takes long to start is started once.

Tests marked `long` are what the other processes begin with. One that began near the end of the run would be waited
for by all but one process.

In a run of one process there is nothing to do, and tests keep their order.
"""

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

_TURN = Path(__file__).resolve().parents[1]
_GATE = Path(__file__).resolve().parent
# Seconds that the other processes give to the one that has the tests that are alone. It needs less to take the lock;
# after that it would wait for the end of the tests that they have begun.
_START = 0.5


def is_alone(item: pytest.Item) -> bool:
    """Return whether a test wants the machine for itself."""
    return item.get_closest_marker("alone") is not None


def order(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """Return the tests in the order in which xdist deals them out: an equal share to each process, in a row."""
    kinds = {name: [item for item in items if _kind(item) == name] for name in ("alone", "together", "long", "")}
    others = [*kinds["alone"], *kinds["together"], *kinds[""]]
    share = len(items) // processes
    ordered, rest = others[:share], others[share:]
    for process in range(1, processes):
        long = kinds["long"][process - 1 :: processes - 1]
        size = max(0, share - len(long))
        ordered += [*long, *rest[:size]]
        rest = rest[size:]
    return [*ordered, *(kinds["long"] if processes == 1 else ()), *rest]


def _kind(item: pytest.Item) -> str:
    """Return the mark that decides about a test's place."""
    return next((name for name in ("alone", "together", "long") if item.get_closest_marker(name)), "")


class SideBySide:
    """The plugin, for one of so many processes; `turn` and `gate` are directories."""

    def __init__(self, processes: int, turn: Path = _TURN, gate: Path = _GATE) -> None:
        self._processes = processes
        self._turn = os.open(turn, os.O_RDONLY | os.O_CLOEXEC)
        self._gate = os.open(gate, os.O_RDONLY | os.O_CLOEXEC)
        self._alone = False
        self._wait = 0.0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = order(items, self._processes)
        self._wait = _START if any(map(is_alone, items)) else 0.0

    # Around everything else, so that neither time limits nor fixtures of a module begin before the test may run.
    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        if not self._alone:
            self._take(is_alone(item))
        yield
        if not (self._alone and nextitem is not None and is_alone(nextitem)):
            self._give()

    def _take(self, alone: bool) -> None:
        if not alone:
            time.sleep(self._wait)
        self._wait = 0.0
        fcntl.flock(self._gate, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(self._turn, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        if not alone:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        self._alone = alone

    def _give(self) -> None:
        fcntl.flock(self._turn, fcntl.LOCK_UN)
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        self._alone = False
