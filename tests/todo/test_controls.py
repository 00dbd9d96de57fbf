"""queue-todo and its control files: reread on request; rules that are not known judge nobody."""

import os
from pathlib import Path

import pytest

from queue_base.queue.layout import open_layout
from support.processes.todo_daemon import TodoDaemon, todo_home
from support.queues.queued import queue_message

REMOTE = [b"b@example.net"]


def test_a_reread_changes_the_rules_for_what_comes_after(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    with TodoDaemon(home) as todo:
        queue_message(home, [b"c@new.example.org"])
        assert todo.notice().remote
        Path(home.control, "locals").write_bytes(b"new.example.org\n")
        todo.reread()
        queue_message(home, [b"c@new.example.org"])
        assert todo.notice().local


@pytest.mark.parametrize("name", ["me", "locals", "virtualdomains", "percenthack", "envnoathost"])
def test_controls_that_cannot_be_read_at_the_start_stop_classification_until_they_can(
    tmp_path: Path, name: str
) -> None:
    home = todo_home(tmp_path / "home")
    bad = Path(home.control, name)
    kept = bad.read_bytes() if bad.exists() else None
    bad.unlink(missing_ok=True)
    bad.mkdir()
    first = queue_message(home, REMOTE)
    with TodoDaemon(home) as todo:
        line = todo.line()
        assert line.startswith(f"alert: queue-todo: unable to reread controls: unable to read {bad}: ")
        assert line.endswith("; nothing is classified; trying again in 60 s")
        second = queue_message(home, REMOTE)
        todo.reread()
        assert todo.line() == line
        assert not os.path.exists(open_layout(home.queue).hashed("info", first))
        bad.rmdir()
        if kept is not None:
            bad.write_bytes(kept)
        todo.reread()
        assert set(todo.notices(2)) == {first, second}


@pytest.mark.parametrize(
    ("name", "content"), [("me", b"\n"), ("virtualdomains", b"new.example:a\0b\n"), ("locals", b"new\0x\n")]
)
def test_controls_that_cannot_be_parsed_at_a_reread_leave_the_old_ones(
    tmp_path: Path, name: str, content: bytes
) -> None:
    home = todo_home(tmp_path / "home")
    with TodoDaemon(home) as todo:
        queue_message(home, [b"c@me.example.org"])
        assert todo.notice().local
        Path(home.control, name).write_bytes(content)
        todo.reread()
        line = todo.line()
        assert line.startswith("alert: queue-todo: unable to reread controls: ")
        assert line.endswith("; the old ones stay")
        assert f"{home.control}/{name}" in line
        queue_message(home, [b"c@me.example.org", b"joe@new.example"])
        notice = todo.notice()
        assert notice.local and notice.remote


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("locals", b"", "locals line 1: it is empty, so no domain would be local"),
        ("virtualdomains", b"a.example:a\nb.example\n", "virtualdomains line 2: it has no colon, and has no effect"),
    ],
)
def test_what_qmail_takes_but_looks_like_a_slip_is_an_alert_at_the_start_and_refused_later(
    tmp_path: Path, name: str, content: bytes, why: str
) -> None:
    home = todo_home(tmp_path / "home")
    path = Path(home.control, name)
    kept = path.read_bytes() if path.exists() else b"c.example:c\n"
    path.write_bytes(content)
    with TodoDaemon(home) as todo:
        assert todo.line().startswith(f"alert: queue-todo: unable to use {home.control}/{why}")
        queue_message(home, [b"c@c.example"])
        assert todo.notice().remote
        path.write_bytes(kept)
        todo.reread()
        assert todo.line().startswith(f"config {name} 1 line, ")
        path.write_bytes(content)
        todo.reread()
        line = todo.line()
        assert line.startswith(f"alert: queue-todo: unable to reread controls: unable to parse {home.control}/{why}")
        assert line.endswith("; the old ones stay")
        queue_message(home, [b"c@me.example.org" if name == "locals" else b"c@c.example"])
        assert todo.notice().local
        assert [found.asked for found in todo.rereads] == [False, True, True]


def test_a_locals_with_only_a_comment_says_that_no_domain_is_local(tmp_path: Path) -> None:
    home = todo_home(tmp_path / "home")
    with TodoDaemon(home) as todo:
        queue_message(home, [b"c@me.example.org"])
        assert todo.notice().local
        Path(home.control, "locals").write_bytes(b"# none\n")
        todo.reread()
        assert todo.line() == "config locals 0 lines, was 1 line"
        queue_message(home, [b"c@me.example.org"])
        assert todo.notice().remote


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("locals", b"new.example\n# a\0b\n", 2),
        ("locals", bytes(4096), 1),
        ("percenthack", b"new.example \0\n", 1),
        ("virtualdomains", b"new\0.example:a\n", 1),
        ("envnoathost", b"new.example\n\0", 2),
    ],
)
def test_a_nul_in_the_rules_is_named_with_its_line_and_the_old_ones_stay(
    tmp_path: Path, name: str, content: bytes, line: int
) -> None:
    home = todo_home(tmp_path / "home", split=5)
    with TodoDaemon(home) as todo:
        queue_message(home, [b"c@me.example.org"])
        assert todo.notice().local
        Path(home.control, name).write_bytes(content)
        todo.reread()
        assert todo.line().endswith(f"{home.control}/{name} line {line}: it holds a NUL byte; the old ones stay")
        for _ in range(5):
            queue_message(home, [b"c@me.example.org", b"joe@new.example"])
        assert all(notice.local and notice.remote for notice in todo.notices(5).values())
