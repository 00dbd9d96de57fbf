"""queuectl postman show prints a copy byte for byte; transcripts/postman.txt has the rest."""

from pathlib import Path

import pytest

from queue_base.queue.postman import copy_path
from support.queues.listed_queue import Queue

TEXT = b"Subject: \xff\n\nbody\n"


def keep(queue: Queue, message: int, cause: bytes, text: bytes = TEXT) -> Path:
    path = Path(copy_path(queue.home.queue, message, cause))
    path.write_bytes(text)
    return path


def test_a_copy_is_printed_byte_for_byte(queue: Queue, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    keep(queue, 457, b"no-date")
    assert queue.run("postman", "show", "457_no-date") == 0
    assert capfdbinary.readouterr().out == TEXT
    assert queue.run("postman", "show", "458_no-date") == 1
    assert queue.run("postman", "show", "../mess") == 100
