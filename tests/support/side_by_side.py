"""Tests marked `alone`, in a run of several processes (pytest-xdist): they come first, and nothing runs beside them.

Each process is a pytest of its own with this plugin, which locks two directories of the checkout: every test holds
`turn`, shared, and one that is alone holds it for itself. Who wants it for himself holds `gate` meanwhile, so that
the others let him have it. A process that dies gives both back. In a run of one process there is nothing to do.
"""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_TURN = Path(__file__).resolve().parents[1]
_GATE = Path(__file__).resolve().parent


def is_alone(item: pytest.Item) -> bool:
    """Return whether a test wants the machine for itself."""
    return item.get_closest_marker("alone") is not None


class Alone:
    """The plugin, for a process of several."""

    def __init__(self) -> None:
        self._turn = os.open(_TURN, os.O_RDONLY | os.O_CLOEXEC)
        self._gate = os.open(_GATE, os.O_RDONLY | os.O_CLOEXEC)
        self._alone = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # All of them go to one process, which then has the lock once.
        items.sort(key=lambda item: not is_alone(item))

    # Around everything else, so that neither time limits nor fixtures of a module begin before the test may run.
    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        if not self._alone:
            self._take(is_alone(item))
        yield
        if not (self._alone and nextitem is not None and is_alone(nextitem)):
            self._give()

    def _take(self, alone: bool) -> None:
        fcntl.flock(self._gate, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(self._turn, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        if not alone:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        self._alone = alone

    def _give(self) -> None:
        fcntl.flock(self._turn, fcntl.LOCK_UN)
        fcntl.flock(self._gate, fcntl.LOCK_UN)
        self._alone = False
