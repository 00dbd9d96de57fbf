"""What is shown of a build at work: a line that is drawn anew on a terminal, a line each minute elsewhere."""

import io
import threading
from types import SimpleNamespace

import pytest

from queue_report.runtime import progress as module
from queue_report.runtime.progress import LiveProgress, Phase, describe


class Screen(io.StringIO):
    """Sets `drawn` when some words have been written."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words
        self.drawn = threading.Event()

    def write(self, text: str) -> int:
        if self._words in text:
            self.drawn.set()
        return super().write(text)


class FakeSession:
    """A session of a Connect server, which tells its tasks by itself."""

    __module__ = "pyspark.sql.connect.session"

    def registerProgressHandler(self, handler: object) -> None:
        self.handler = handler


def test_a_line_shows_the_phase_tasks_bytes_rate_and_what_is_left() -> None:
    phase = Phase("matching lines", 100.0, 45_000_000)
    assert describe(phase, 0, 0, 101.0, 24) == "queue-report: matching lines"
    assert describe(phase, 0, 12, 101.0) == "queue-report: matching lines 0/12"
    told = "3/12, 11 of 45 MB, 5.6 MB/s, 6 s left"
    assert describe(phase, 3, 12, 102.0) == f"queue-report: matching lines {told}"
    assert describe(phase, 3, 12, 102.0, 8) == f"queue-report: matching lines [##      ] {told}"
    assert describe(phase._replace(size=0), 3, 12, 102.0) == "queue-report: matching lines 3/12"


def test_on_a_terminal_it_is_drawn_until_the_end_and_wiped_away() -> None:
    screen = Screen("moving files in")
    with LiveProgress(screen, on_terminal=True) as progress:
        progress.phase("moving files in")
        assert screen.drawn.wait(30)
    assert screen.getvalue().startswith("\rqueue-report: ") and screen.getvalue().endswith("\r\033[K")


def test_elsewhere_it_is_a_line_now_and_then_with_the_tasks_of_a_connect_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MINUTE", 0.01)
    screen = Screen("matching lines 1/4\n")
    session = FakeSession()
    with LiveProgress(screen, on_terminal=False) as progress:
        progress.watch(session)
        progress.phase("matching lines")
        stages = [SimpleNamespace(num_tasks=4, num_completed_tasks=1)]
        session.handler(stages=stages, inflight_tasks=2, operation_id="1", done=False)  # type: ignore[operator]
        assert screen.drawn.wait(30)
    assert "\r" not in screen.getvalue() and screen.getvalue().endswith("\n")


def test_what_takes_no_minute_says_nothing_elsewhere() -> None:
    screen = Screen("")
    with LiveProgress(screen, on_terminal=False) as progress:
        progress.phase("matching lines")
    assert screen.getvalue() == ""


def test_a_reader_that_is_gone_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with LiveProgress(Gone(), on_terminal=True) as progress:
        progress.phase("matching lines")
