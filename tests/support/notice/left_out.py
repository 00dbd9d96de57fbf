"""Guards of the real daemons, by the names of those of the model (guards.py), and how each is left out.

`LEFT_OUT` has for each the (object, name, value) to be patched.
"""

from collections.abc import Callable
from typing import Any

from queue_base.queue import marks_file, removal
from queue_send.messages.announced import Announced
from queue_send.messages.life_cycle import Messages
from queue_todo.announcements import Announcements
from queue_todo.pending import Pending
from queue_todo.pipeline import Pipeline

Patch = tuple[object, str, object]

_removed, _request, _get = Announcements.remove, Pipeline._request, Announcements.get
_scan = Pending.__init__
_pipeline = Pipeline.__init__
_end = Announced.end


class _Empty(set[int]):
    """A set to which nothing can be added."""

    def add(self, element: int) -> None: ...

    def update(self, *others: Any) -> None: ...

    def intersection(self, *others: Any) -> set[int]:
        return set()


def _forget_again(self: Announcements, message: int) -> bool:
    _removed(self, message)
    return False


def _request_nothing_done(self: Pipeline, message: int, done: int) -> None:
    _request(self, message, 0)


def _remember_no_scan(self: Pending, *args: Any, **named: Any) -> None:
    _scan(self, *args, **named)
    self.scanned = _Empty()


def _remember_no_begin(self: Pipeline, *args: Any) -> None:
    _pipeline(self, *args)
    self._begun = _Empty()


def _classify_at_once(self: Any, message: int, then: Callable[[bool], None]) -> bool:
    return False


def _nothing(*_: Any) -> None:
    return None


def _none(*_: Any) -> None:
    return None


def _false(*_: Any) -> bool:
    return False


LEFT_OUT: dict[str, list[Patch]] = {
    "again": [(Announcements, "remove", _forget_again)],
    "announced": [(Announcements, "defer", _false)],
    "bits": [(Pipeline, "_request", _request_nothing_done)],
    "late verdicts": [(Messages, "_write_marks", _nothing)],
    "leftovers": [(Pending, "__init__", _remember_no_scan)],
    "begun": [(Pipeline, "__init__", _remember_no_begin)],
    "clear": [(removal, "_clear_marks", lambda layout, removals, failed: removals)],
    "gone": [(Announced, "removed", _nothing)],
    "notice waits": [(Messages, "_keep", _false)],
    "reserved": [(marks_file.MarksFile, "adopt", _none)],
}

_NO_CRASH = {"kill": 0.0, "TERM": 0.0, "lose queue-todo": 0.0, "lose queue-clean": 0.0, "lose a delivery daemon": 0.0}
# Factors for the weights of moves, which make the fault likely that a missing guard allows.
FAVOURED: dict[str, dict[str, float]] = {
    "again": _NO_CRASH | {"inject": 5, "inject on": 10, "send turns": 0.3, "HUP": 0, "overflow": 0, "wait": 0.2},
    "notice waits": _NO_CRASH | {"inject": 5, "inject on": 10, "send turns": 0.2, "todo turns": 5, "todo works": 5},
    "begun": _NO_CRASH | {"the disk refuses todo": 5, "wait": 5},
    "leftovers": {"kill": 3, "wait": 3, "todo works": 0.5},
}
