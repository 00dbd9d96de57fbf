"""What the tests of queuectl share."""

from pathlib import Path

import pytest

from support.queues.listed_queue import Queue


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    """Return the queue of a new home, to put messages into."""
    return Queue(tmp_path / "home")
