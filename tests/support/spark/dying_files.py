"""A lake's storage that dies before, or in the middle of, a chosen call that changes the disk."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from deltalake import DeltaTable

from queue_report.runtime.files import LocalFiles
from support.spark.killed_build import Crash

CHANGES = (
    *((LocalFiles, name) for name in ("write", "remove", "sync")),
    *((DeltaTable, name) for name in ("create", "create_write_transaction", "create_checkpoint", "vacuum")),
)  # fmt: skip


class Countdown:
    """Crashes at the call that is `left` changes from now, None for never; `done` counts them."""

    def __init__(self, left: int | None, torn: bool) -> None:
        self.left, self.torn, self.done = left, torn, 0

    def is_due(self) -> bool:
        self.done += 1
        return self.left is not None and self.done > self.left


@contextmanager
def counting(patch: pytest.MonkeyPatch, left: int | None = None, torn: bool = False) -> Iterator[Countdown]:
    """Have lakes die after `left` changes. torn: a write that dies leaves the first half of its content."""
    countdown = Countdown(left, torn)
    with patch.context() as inner:
        for kind, name in CHANGES:
            inner.setattr(kind, name, _dying(countdown, name, getattr(kind, name)))
        yield countdown


def _dying(countdown: Countdown, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def change(*arguments: Any, **others: Any) -> Any:
        if countdown.is_due():
            if countdown.torn and name == "write":
                files, path, content = arguments
                original(files, path, content[: len(content) // 2])
            raise Crash(name)
        return original(*arguments, **others)

    return change
