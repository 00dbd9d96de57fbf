"""A writer whose commits a test sees, or adds something to."""

from collections.abc import Callable, Sequence
from typing import Any

from queue_base.queue.writer import Draft, QueueWriter


class Committing:
    """A QueueWriter; `before` and `after` are called with the drafts of each commit.

    It has a writer and does not inherit from it, because no class may inherit from one that is compiled.
    """

    def __init__(
        self,
        writer: QueueWriter,
        before: Callable[[Sequence[Draft]], None] = lambda drafts: None,
        after: Callable[[Sequence[Draft]], None] = lambda drafts: None,
    ) -> None:
        self._writer = writer
        self._before = before
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def commit(self, drafts: Sequence[Draft]) -> None:
        self._before(drafts)
        self._writer.commit(drafts)
        self._after(drafts)


def committing(
    writer: QueueWriter,
    before: Callable[[Sequence[Draft]], None] = lambda drafts: None,
    after: Callable[[Sequence[Draft]], None] = lambda drafts: None,
) -> Any:
    """Return a Committing as what takes its place."""
    return Committing(writer, before, after)
