"""A write that the disk refuses later is never taken for done, whoever else was told of it before."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_base.errors import QueueTrouble
from queue_base.queue.layout import open_layout
from queue_base.queue.writer import Draft, QueueWriter
from queue_inject.drop import DropWriter
from queue_wire.ids import ID_MAX
from support.faults.small_disks import thin_disk
from support.faults.strace import strace_command
from support.faults.sync_order import SyncOrder
from support.inject.batches import batch_command, make_file
from support.inject.injectors import states
from support.processes.suite import program
from support.processes.todo_daemon import TodoDaemon, todo_home
from support.queues.home import make_home
from support.queues.queued import queue_message
from support.tools import need

TEXT = b"A line of a message that must not be lost.\n" * 400


def finished(begin: Callable[[], Draft], count: int) -> list[Draft]:
    drafts = []
    for number in range(count):
        draft = begin()
        draft.write(b"Subject: %d\n\n" % number + TEXT)
        draft.finish(b"a@example.org", [b"b@example.net"])
        drafts.append(draft)
    return drafts


@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize("place", ["the queue", "maildrop"])
def test_messages_whose_text_cannot_be_written_are_not_queued_although_another_sync_was_told(
    tmp_path: Path, count: int, place: str
) -> None:
    with thin_disk(tmp_path / "thin") as disk:
        home = make_home(disk.path / "mail")
        writer: QueueWriter | DropWriter = DropWriter(home)
        if place == "the queue":
            writer = QueueWriter(home, open_layout(home.queue), os.getuid())
        (first,) = finished(writer.begin, 1)
        writer.commit([first])
        assert first.queued
        disk.fill()
        drafts = finished(writer.begin, count)
        assert disk.sync_by_another() != 0
        with pytest.raises(QueueTrouble) as failure:
            writer.commit(drafts)
    assert failure.value.code == 53
    assert not any(draft.queued for draft in drafts)


def test_a_message_is_refused_where_the_file_system_gives_it_a_number_that_queue_send_cannot_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home(tmp_path / "home")
    draft = QueueWriter(home, open_layout(home.queue), os.getuid()).begin()
    draft.write(TEXT)
    found = os.fstat

    def look(handle: int) -> os.stat_result:
        status = found(handle)
        fields = [*status[:1], ID_MAX + 1, *status[2:]]
        return os.stat_result(fields, {"st_mtime_ns": status.st_mtime_ns})

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", look)
        with pytest.raises(QueueTrouble, match=f"above {ID_MAX}, such as {ID_MAX + 1}; put queue/ on another one"):
            draft.finish(b"a@example.org", [b"b@example.net"])
    draft.discard()
    assert not states(home)


@pytest.mark.parametrize("count", [1, 4, 300])
def test_a_batch_syncs_each_file_by_the_descriptor_that_wrote_it(tmp_path: Path, count: int) -> None:
    home = make_home(tmp_path / "home")
    file = make_file(tmp_path / "batch", "netstring", count)
    order = SyncOrder.of_directory(Path(home.queue))
    with file.open("rb") as data:
        command = strace_command(tmp_path / "trace", batch_command(home, "netstring"))
        subprocess.run(command, stdin=data, stdout=subprocess.DEVNULL, check=True, timeout=120)
    order.load(tmp_path / "trace")

    assert order.wrong == [] and order.left() == []
    assert len(order.synced) <= count * 2 + 4 * 23


@pytest.mark.parametrize("soft", [1024, 48])
def test_a_batch_with_few_descriptors_is_queued_and_synced_as_well(tmp_path: Path, soft: int) -> None:
    home = make_home(tmp_path / "home")
    file = make_file(tmp_path / "batch", "netstring", 60)
    order = SyncOrder.of_directory(Path(home.queue))
    with file.open("rb") as data:
        command = [need("prlimit"), f"--nofile={soft}:{soft}", *batch_command(home, "netstring")]
        command = strace_command(tmp_path / "trace", command)
        subprocess.run(command, stdin=data, stdout=subprocess.DEVNULL, check=True, timeout=120)
    order.load(tmp_path / "trace")

    assert states(home) == {4: 60} and order.left() == []
    # A directory may be opened after its names changed where there is no other way; a file is never.
    assert [call for call in order.wrong if "/home/queue/" not in call] == []
    assert [call for call in order.wrong if not re.search(r"/(mess|todo|intd)/\d+>", call)] == []
    assert order.wrong == [] or soft == 48


def test_one_message_is_synced_by_the_descriptors_that_wrote_it(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    order = SyncOrder.of_directory(Path(home.queue))
    command = [*program("queue-inject"), "--home", home.path, "b@example.net"]
    subprocess.run(strace_command(tmp_path / "trace", command), input=TEXT, check=True, timeout=120)
    order.load(tmp_path / "trace")

    assert order.wrong == [] and order.left() == [] and len(order.synced) == 4


@pytest.mark.parametrize("count", [1, 100])
def test_a_classification_syncs_each_file_by_the_descriptor_that_wrote_it(tmp_path: Path, count: int) -> None:
    home = todo_home(tmp_path / "home")
    messages = {queue_message(home, [b"b@example.net", b"c@me.example.org"]) for _ in range(count)}
    order = SyncOrder.of_directory(Path(home.queue))
    with TodoDaemon(home, wrapper=tuple(strace_command(tmp_path / "trace", []))) as todo:
        assert set(todo.notices(count)) == messages
        assert todo.exit() == 0
    order.load(tmp_path / "trace")

    assert order.wrong == [] and order.left() == []
    assert sum(path.count("/") == 2 for path in order.synced) == count * 3


def test_a_maildir_delivery_syncs_by_the_descriptor_that_wrote(tmp_path: Path) -> None:
    for name in ("tmp", "new", "cur"):
        (tmp_path / "Maildir" / name).mkdir(parents=True)
    (tmp_path / "message").write_bytes(TEXT)
    order = SyncOrder.of_directory(tmp_path / "Maildir")
    script = "import os, sys\nfrom queue_local.maildir import deliver_maildir\n"
    script += "deliver_maildir(sys.argv[1], b'', os.open(sys.argv[2], os.O_RDONLY))"
    command = [sys.executable, "-c", script, f"{tmp_path}/Maildir/", f"{tmp_path}/message"]
    subprocess.run(strace_command(tmp_path / "trace", command), check=True, timeout=60)
    order.load(tmp_path / "trace")

    assert order.wrong == [] and order.left() == [] and len(order.synced) == 2


def test_bounces_are_synced_by_the_descriptors_that_wrote_them(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    Path(home.queue, "bounce/7").write_bytes(b"<a@b>:\ngone\n\n<cut o")
    order = SyncOrder.of_directory(Path(home.queue))
    script = "import sys\nfrom queue_base.queue.layout import open_layout\n"
    script += "from queue_send.messages.bounce_file import FailedRecipient as Failed, append_failures\n"
    script += "append_failures(open_layout(sys.argv[1]), [Failed(n % 20, b'a@b', b'no') for n in range(40)])"
    subprocess.run(strace_command(tmp_path / "trace", [sys.executable, "-c", script, home.queue]), check=True)
    order.load(tmp_path / "trace")

    assert order.wrong == [] and order.left() == [] and len(order.synced) == 21
