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
from queue_intake.commit_group import CommitGroup, PartSync, ReceivedMessage, is_large, prepare_large
from queue_wire.pipes.package_reader import Package
from support.queues.home import make_home

PACKAGE = Package(b"ann", [b"bob"], [], 1, False, 67)


def no_disk(*_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def commit(writer: QueueWriter, messages: list[ReceivedMessage]) -> str:
    """Commit messages; return what went wrong."""
    group = CommitGroup(writer)
    for message in messages:
        group.add(message)
    while group.go_on():
        group.sync()
    return group.trouble


@pytest.fixture
def writer(tmp_path: Path) -> QueueWriter:
    home = make_home(tmp_path / "home")
    return QueueWriter(home, open_layout(home.queue), os.getuid())


def accept(writer: QueueWriter, tmp_path: Path) -> Acceptance:
    return Acceptance(Home(str(tmp_path / "home")), writer, lambda text: None)


@pytest.fixture
def receive(writer: QueueWriter, tmp_path: Path) -> Callable[[], ReceivedMessage]:
    """Return a function that makes a message which was received whole."""
    acceptance = accept(writer, tmp_path)

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
        prepare_large(bad)
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
    prepare_large(message)
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


def test_a_commit_waits_only_in_its_syncs_and_a_message_is_queued_after_the_last_one(
    writer: QueueWriter, receive: Callable[[], ReceivedMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    group, message, synced = CommitGroup(writer), receive(), 0
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_disk)
        group.add(message)
        assert group.go_on()
    while True:
        assert not message.draft.queued
        group.sync()
        synced += 1
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", no_disk)
            if not group.go_on():
                break
    assert synced == 2 and message.draft.queued and not group.trouble


@pytest.mark.parametrize("failing", [1, 2])
def test_a_sync_that_fails_refuses_its_group_and_not_the_next_one(
    writer: QueueWriter, receive: Callable[[], ReceivedMessage], monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    group, messages, syncs = CommitGroup(writer), [receive(), receive()], 0
    for message in messages:
        group.add(message)
    while group.go_on():
        syncs += 1
        with monkeypatch.context() as patch:
            if syncs == failing:
                patch.setattr(os, "fsync", no_disk)
            group.sync()
    assert "input/output error" in group.trouble and syncs == failing
    assert [message.refusal and message.refusal.letter for message in messages] == [b"Z", b"Z"]
    # What may be in todo/ must not be taken away from queue-todo.
    assert [Path(message.draft.path).exists() for message in messages] == [failing == 2] * 2
    last = receive()
    assert commit(writer, [last]) == "" and last.draft.queued


def test_lack_of_memory_in_a_sync_refuses_the_group(
    writer: QueueWriter, receive: Callable[[], ReceivedMessage]
) -> None:
    group, message = CommitGroup(writer), receive()
    group.add(message)
    assert group.go_on()
    group.fail(OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)))
    assert not group.go_on() and not group.go_on()
    assert message.refusal is not None and not Path(message.draft.path).exists()


def test_many_recipients_are_packed_before_the_commit(writer: QueueWriter, tmp_path: Path) -> None:
    recipients = [b"%d@example.org" % number for number in range(20_000)]
    package = Package(b"ann", recipients, [], len(recipients), False, sum(map(len, recipients)))
    draft = writer.begin()
    draft.write(b"hello\n")
    message = ReceivedMessage(draft, package, b"ann", Place(), "uid 1", 6, accept(writer, tmp_path))
    assert is_large(message)
    prepare_large(message)
    assert commit(writer, [message]) == "" and draft.queued
    assert Path(draft.todo).read_bytes().count(b"T") == len(recipients)


def test_an_envelope_that_cannot_be_is_refused_for_good(writer: QueueWriter, tmp_path: Path) -> None:
    for prepare in (prepare_large, lambda message: commit(writer, [message])):
        draft = writer.begin()
        package = Package(b"ann", [b"b\0b"], [], 1, False, 3)
        message = ReceivedMessage(draft, package, b"ann", Place(), "uid 1", 0, accept(writer, tmp_path))
        prepare(message)
        assert message.refusal is not None and message.refusal.letter == b"D"


@pytest.mark.parametrize("missing", ["hold", "todo"])
def test_a_directory_that_is_missing_refuses_only_the_messages_that_need_it(
    writer: QueueWriter, receive: Callable[[], ReceivedMessage], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    messages = [receive() for _ in range(5)]
    group = CommitGroup(writer)
    messages[1].draft.hold = messages[3].draft.hold = b"looked at"
    for message in messages:
        group.add(message)
    todo = Path(messages[1].draft.todo)
    bad = [messages[1]] if missing == "todo" else [messages[1], messages[3]]
    if missing == "hold":
        for bucket in (todo.parents[2] / "hold").iterdir():
            bucket.rmdir()
    else:
        # The name of its envelope is taken by then, as by a person.
        todo.write_bytes(b"")
    while group.go_on():
        group.sync()
    good = [message for message in messages if message not in bad]
    assert [message.refusal for message in good] == [None] * len(good)
    assert all(message.draft.queued and Path(message.draft.todo).exists() for message in good)
    for message in bad:
        assert message.refusal is not None and message.refusal.letter == b"Z" and not message.draft.queued
        assert not Path(message.draft.path).exists()
    assert group.trouble
