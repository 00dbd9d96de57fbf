"""A mark in hold/ is there with its reason, or not at all."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

from queue_base.durable import Commit
from queue_base.home import Home
from queue_base.queue import hold_marks
from queue_base.queue.layout import Presence, open_layout
from queue_base.queue.writer import QueueWriter
from queue_wire.files.hold_mark import HoldMark
from queue_wire.ids import unpack_long_id
from support.queues.queued import classified_message, queue_message
from support.send.control import files


@pytest.mark.parametrize("call", ["write", "rename"])
def test_a_mark_that_the_disk_refuses_leaves_no_file(home: Home, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    message, layout = classified_message(home, remote=[b"a@c.example"]), open_layout(home.queue)
    before = files(home)

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(OSError, match="space"):
        hold_marks.mark(layout, message, HoldMark(b"ask Jo"), Commit())
    assert files(home) == before


def test_the_first_message_of_a_class_has_its_birth_at_once(home: Home) -> None:
    layout = open_layout(home.queue)
    layout.todo(1)  # It has just looked for trees, and does so again in a second.
    writer = QueueWriter(home, open_layout(home.queue), os.getuid())
    writer.priority = "bulk"
    draft = writer.begin()
    draft.write(b"x")
    draft.finish(b"a@b.example", [b"c@d.example"])
    writer.commit([draft])
    message, birth = unpack_long_id(draft.long_id)
    assert not os.path.exists(layout.todo_in("", message))
    assert hold_marks.birth_of(layout, message) == birth


@pytest.mark.parametrize("calls", range(5))
def test_a_message_that_is_taken_out_of_todo_is_never_in_a_state_that_nothing_ends(
    home: Home, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """An attempt to classify it has left files; a kill comes after so many calls that remove one."""
    layout = open_layout(home.queue)
    message = queue_message(home, [b"b@example.net"])
    for kind in ("info", "local", "remote"):
        Path(layout.hashed(kind, message)).write_bytes(b"")
    real, left = os.unlink, calls

    def unlink(path: str) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        real(path)

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(os, "unlink", unlink)
        hold_marks.leave_todo(layout, message, Commit())
    assert Presence(layout, message).state() == (3 if calls == 4 else 4)


def test_so_is_one_that_is_being_classified_at_that_moment(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = open_layout(home.queue)
    message = queue_message(home, [b"b@example.net"])
    real, written = os.unlink, [Path(layout.hashed(kind, message)) for kind in ("info", "local", "remote")]

    def unlink(path: str) -> None:
        if path == layout.todo_in("", message):
            for each in written:
                each.write_bytes(b"")
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        hold_marks.leave_todo(layout, message, Commit())
    assert Presence(layout, message).state() == 3
