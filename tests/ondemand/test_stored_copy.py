"""`queuectl copy` of a home with stored mail: all of it, and no record without its message."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_admin.checks import home_copy
from queue_admin.checks.home_copy import copy_home
from queue_admin.messages.survey import Snapshot, Stray, survey
from queue_base.home import Home
from queue_base.queue.layout import Layout
from queue_ondemand.domain_store import DomainStore, StoreRequest
from queue_wire.files.cluster import StoredRecipient
from support.queues.damage import deliverables
from support.queues.home import make_home
from support.queues.queued import queue_message
from support.queues.stored_mail import store


def test_stored_mail_is_copied_but_for_what_was_finished_while_it_was_copied(tmp_path: Path) -> None:
    home, target = make_home(tmp_path / "home", split=3), Home(str(tmp_path / "copy"))
    store = DomainStore(home.queue)
    requests = []
    for number in range(3):
        Path(home.queue, "mess", "0", str(number)).write_bytes(b"Subject: %d\n\nx\n" % number)
        stored = StoredRecipient(number + 1, 5, 20, b"a@b", b"r%d" % number)
        requests.append(StoreRequest(b"example.net", f"mess/0/{number}", [stored]))
    assert store.append(requests) == [None] * 3
    for number in range(3):
        os.unlink(f"{home.queue}/mess/0/{number}")
    path = store.message_path(b"example.net", 1, requests[1].recipients[0])
    os.unlink(f"{home.queue}/{path}")  # As if it was delivered when the cluster had been copied.

    assert copy_home(home, target).left == []

    copied = DomainStore(target.queue)
    pending = copied.read(b"example.net", 1).pending
    assert [each.stored.recipient for each in pending] == [b"r0", b"r2"]
    for each in pending:
        path = copied.message_path(b"example.net", 1, each.stored)
        assert Path(target.queue, path).read_bytes().startswith(b"Subject: ")
        assert os.stat(f"{target.queue}/{path}").st_mode == os.stat(f"{home.queue}/{path}").st_mode
    assert os.stat(f"{target.queue}/ondemand/example.net/mess").st_mode & 0o7777 == 0o2750


@pytest.mark.parametrize("look", [1, 2])
def test_a_stored_message_that_is_requeued_while_the_copy_runs_is_in_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    home, target, looks = make_home(tmp_path / "home", split=3), Home(str(tmp_path / "copy")), [0]
    store(home, "one", "ann@example.net")

    def requeueing(layout: Layout) -> Iterator[Snapshot | Stray]:
        """After one of the looks at the queue the message goes from the store to the queue."""
        yield from list(survey(layout))
        looks[0] += 1
        if looks[0] == look:
            queue_message(home, [b"ann@example.net"])
            files = DomainStore(home.queue)
            files.mark(b"example.net", 1, [files.read(b"example.net", 1).pending[0].offset])
            files.settle(b"example.net", 1)

    monkeypatch.setattr(home_copy, "survey", requeueing)
    assert copy_home(home, target).left == []
    assert [each.recipients for each in deliverables(target)] == [(("todo", False, b"ann@example.net"),)]
    assert not os.listdir(f"{target.queue}/ondemand")


def test_a_stray_in_ondemand_is_named_and_what_is_stored_is_copied(tmp_path: Path) -> None:
    home, target = make_home(tmp_path / "home", split=3), Home(str(tmp_path / "copy"))
    store(home, "one", "ann@example.net")
    top = Path(home.queue, "ondemand")
    (top / "notes").write_text("x")
    os.mkfifo(top / "pipe")
    (top / "gone").symlink_to("nowhere")
    (top / "example.net" / "2.cluster").symlink_to("/etc/passwd")
    left = copy_home(home, target).left
    assert sorted(each.split(":")[0] for each in left) == [
        "queue/ondemand/example.net/2.cluster", "queue/ondemand/gone", "queue/ondemand/pipe"
    ]  # fmt: skip
    assert len(DomainStore(target.queue).read(b"example.net", 1).pending) == 1
