"""A lake's storage that dies before, or in the middle of, a chosen call that changes the disk."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from spark.runtime.places import LocalPlace

from support.spark.logs.scripted_logs import Crash

CHANGES = ("write", "rename", "remove", "remove_empty", "make_directory")


class Countdown:
    """Crashes at the call that is `left` changes from now, None for never; `done` counts them."""

    def __init__(self, left: int | None, torn: bool) -> None:
        self.left, self.torn, self.done = left, torn, 0

    def is_due(self) -> bool:
        self.done += 1
        return self.left is not None and self.done > self.left


@contextmanager
def counting(patch: pytest.MonkeyPatch, left: int | None = None, torn: bool = False) -> Iterator[Countdown]:
    """Have every place die after `left` changes. torn: a write that dies leaves the first half of its content."""
    countdown = Countdown(left, torn)
    with patch.context() as inner:
        for name in CHANGES:
            inner.setattr(LocalPlace, name, _dying(countdown, name))
        yield countdown


def _dying(countdown: Countdown, name: str) -> object:
    original = getattr(LocalPlace, name)

    def change(self: LocalPlace, *arguments: object, **others: object) -> object:
        if countdown.is_due():
            if countdown.torn and name == "write":
                path, content = arguments[0], arguments[1]
                assert isinstance(content, bytes)
                original(self, path, content[: len(content) // 2])
            raise Crash(f"{name} {arguments[0] if arguments else ''}")
        return original(self, *arguments, **others)

    return change
