"""queuectl maildrop with very many files; transcripts/maildrop.txt has what it prints."""

import os
import tracemalloc
from collections.abc import Iterator

import pytest

from queue_admin.messages import maildrop_files
from queue_admin.messages.maildrop_files import DroppedFile
from support.queues.listed_queue import Queue


def test_the_names_of_very_many_files_take_little_memory(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand, of which none is there any more when it is to be moved."""

    def many(path: str, uid: int, held: bool) -> Iterator[DroppedFile]:
        for number in range(100_000):
            yield DroppedFile(f"mail.{number:032x}", uid, 1, 0.0, held)

    monkeypatch.setattr(maildrop_files, "_files", many)
    seen: list[str] = []

    def see(commit: object, old: str, new: str) -> bool:
        if len(seen) < 2:
            seen.append(os.path.basename(old))
        return False

    tracemalloc.start()
    try:
        assert maildrop_files._each(queue.home.queue, os.getuid(), (False,), see, lambda: None) == 0
        assert tracemalloc.get_traced_memory()[1] < 100_000 * 40
    finally:
        tracemalloc.stop()
    assert seen == [f"mail.{number:032x}" for number in range(2)]
