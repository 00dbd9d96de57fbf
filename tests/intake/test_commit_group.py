"""Commits of received messages in-process: what fails refuses its own message, with its own reason, and no other."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_base.queue.writer import QueueWriter
from queue_intake.acceptance import Acceptance, Refusal
from queue_intake.answers import Place
from queue_intake.commit_group import PartSync, ReceivedMessage, commit, sync_contents
from queue_intake.package_reader import Package
from support.queues.home import make_home

PACKAGE = Package(b"ann", [b"bob"], [], 1, False, 67)


def no_disk(*_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def writer(tmp_path: Path) -> QueueWriter:
    home = make_home(tmp_path / "home")
    return QueueWriter(home, open_layout(home.queue), os.getuid())


@pytest.fixture
def receive(writer: QueueWriter, tmp_path: Path) -> Callable[[], ReceivedMessage]:
    """Return a function that makes a message which was received whole."""
    acceptance = Acceptance(Home(str(tmp_path / "home")), writer, lambda text: None)

    def make() -> ReceivedMessage:
        draft = writer.begin()
        draft.write(b"hello\n")
        return ReceivedMessage(draft, PACKAGE, b"ann", Place(), "uid 1", 6, acceptance)

    return make


def test_a_message_whose_sync_has_failed_is_refused_for_that_and_the_others_are_queued(
    writer: QueueWriter, receive: Callable[[], ReceivedMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad, other = receive(), receive(), receive()
    with monkeypatch.context() as patch:
        patch.setattr("queue_base.queue.writer.os.fdatasync", no_disk)
        sync_contents(bad)
    assert bad.refusal is not None
    assert "input/output error" in bad.refusal.text
    assert commit(writer, [good, bad, other]) == bad.refusal.text
    assert good.draft.queued and other.draft.queued and not bad.draft.queued
    assert good.refusal is None and other.refusal is None


def test_a_sync_in_between_that_fails_refuses_the_message(
    receive: Callable[[], ReceivedMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    message = receive()
    message.part = PartSync(message.draft, message.acceptance)
    with monkeypatch.context() as patch:
        patch.setattr("queue_intake.commit_group.os.fdatasync", no_disk)
        message.part.run()
    assert message.part.done
    sync_contents(message)
    assert message.refusal is not None and "input/output error" in message.refusal.text


def test_a_draft_may_be_discarded_before_its_sync_in_between(receive: Callable[[], ReceivedMessage]) -> None:
    message = receive()
    part = PartSync(message.draft, message.acceptance)
    message.give_up(Refusal(b"Z", "gone"))
    part.run()
    assert part.done and part.refusal is None


def test_a_sync_that_is_cancelled_gives_its_descriptor_back_at_once(receive: Callable[[], ReceivedMessage]) -> None:
    message = receive()
    before = len(os.listdir("/proc/self/fd"))
    part = PartSync(message.draft, message.acceptance)
    part.cancel()
    assert len(os.listdir("/proc/self/fd")) == before
    part.run()
    part.cancel()
    assert part.refusal is None and len(os.listdir("/proc/self/fd")) == before


def test_an_error_of_one_message_that_is_no_trouble_of_the_queue_refuses_no_other(
    writer: QueueWriter, receive: Callable[[], ReceivedMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = receive(), receive()
    bad.draft.close()  # fstat(2) fails with EBADF.
    assert "bad file descriptor" in commit(writer, [bad, good])
    assert bad.refusal is not None and bad.refusal.letter == b"Z"
    assert good.refusal is None and good.draft.queued
    third = receive()
    opened = os.open

    def open_closed(path: str, *rest: int) -> int:
        return -1 if path.endswith("/lock/trigger") else opened(path, *rest)  # close(2) fails with EBADF.

    monkeypatch.setattr(os, "open", open_closed)
    assert "bad file descriptor" in commit(writer, [third])
    assert third.refusal is not None or third.draft.queued
