"""Progress: a line on the terminal, and nothing anywhere else."""

import io
import os
import re
import sys
from pathlib import Path

import pytest

from queue_admin import progress as module
from queue_admin.home.adoption import adopt
from queue_admin.progress import Progress
from queue_base.accounts import Owner
from support.queues.listed_queue import Queue


class Terminal(io.StringIO):
    """A stderr that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_it_writes_nothing_where_stderr_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_AFTER", 0.0)
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with Progress(3, "messages") as progress:
        progress.step()
    assert stderr.getvalue() == ""


def test_it_writes_nothing_in_the_first_second(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    with Progress(3, "messages") as progress:
        progress.step()
    assert stderr.getvalue() == ""


def test_it_shows_how_much_is_done_and_erases_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_AFTER", 0.0)
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    with Progress(4, "messages", "deleted") as progress:
        progress.step(2)
    assert stderr.getvalue() == "\r\x1b[Kdeleted 2 of 4 messages, 50 %\r\x1b[K"


def test_a_total_that_is_not_known_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_AFTER", 0.0)
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    with Progress(None, "files") as progress:
        progress.step()
    assert stderr.getvalue() == "\r\x1b[K1 files\r\x1b[K"


@pytest.mark.parametrize("words", ["list", "list --state queued", "list --sort age", "mailq", "maildrop list --uid ME"])
def test_what_prints_a_line_each_shows_progress_only_where_stdout_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    queue = Queue(tmp_path / "home")
    queue.queued()
    Path(queue.home.queue, "maildrop", "mail." + "a" * 32).touch()
    monkeypatch.setattr(module, "FIRST_AFTER", 0.0)
    arguments = words.replace("ME", str(os.getuid())).split()
    shown = {}
    for name in ("file", "terminal"):
        stderr = Terminal()
        with Path(tmp_path, "out").open("w") if name == "file" else Terminal() as stdout:
            monkeypatch.setattr(sys, "stdout", stdout)
            monkeypatch.setattr(sys, "stderr", stderr)
            assert queue.run(*arguments) == 0 and stdout.tell()
        shown[name] = stderr.getvalue()
    assert re.search(r"(listed|looked at) \d+ (of 1 )?(messages|files)", shown["file"])
    assert "listed" not in shown["terminal"] and (len(arguments) > 1 or not shown["terminal"])


def test_adoption_counts_what_it_looks_at(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "home")
    queue.queued()
    progress = Progress(None, "files", "looked at")
    adopt(queue.home, Owner(os.getuid(), os.getgid()), progress)
    assert progress.done > 2
