"""last/B/I: a deferral leaves its reason for people, at no cost for mail, and never that of another message."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.daemon.clock import Clock
from queue_base.daemon.disk_thread import DiskThread
from queue_base.durable import Commit
from queue_base.home import Home
from queue_base.queue import hold_marks
from queue_base.queue.layout import Layout, open_layout
from queue_base.queue.removal import remove_messages
from queue_clean.sweep import OLD, sweep
from queue_send.delivery import result_writer
from queue_send.delivery.result_writer import ResultWriter, append_results
from queue_send.events import Events, Happened
from queue_send.log import Log
from queue_send.messages.transitions import MessageEvent
from queue_wire.files.last_result import FILE_MIN, LastResult, pack_header, pack_result, unpack_header, unpack_results
from queue_wire.pipes.cleaning import ANY, Removal
from support.processes.suite import wait_until
from support.queues.queued import classified_message
from support.send.control import file, long_id, order
from support.send.scripted_send import ScriptedSend

BIRTH = 1_700_000_000.0
REPLY = b"192.0.2.1 does not like recipient.\nRemote host said: 450 4.2.0 Greylisted\n"


@pytest.fixture
def layout(home: Home) -> Layout:
    return open_layout(home.queue)


class Disk:
    """A ResultWriter with a disk thread that works only when it is told to."""

    def __init__(self, home: Home) -> None:
        self.layout = open_layout(home.queue)
        self.free = threading.Event()
        self.events = Events()
        self.read, write = os.pipe()
        self.log, self._thread = Log(write), DiskThread()
        self._ends = [self.read, write]
        self.writer = ResultWriter(self.layout, self.log, Clock(), self._thread, self.events)

    def hold(self) -> None:
        """Have the thread wait for `free`."""

        def wait() -> None:
            assert self.free.wait(30)

        self._thread.submit(wait, lambda result: None)

    def work(self) -> None:
        """Have everything done that was submitted."""
        self.free.set()
        end = time.monotonic() + 30
        while self._thread.busy:
            assert time.monotonic() < end
            self._thread.run({}, 0.0)
            time.sleep(0.001)

    def warnings(self) -> list[str]:
        self.log.put(b"fence")
        self.log.flush()
        return os.read(self.read, 65536).decode().splitlines()[:-1]

    def close(self) -> None:
        for end in self._ends:
            os.close(end)


@pytest.fixture
def disk(home: Home) -> Iterator[Disk]:
    found = Disk(home)
    yield found
    found.close()


def put(home: Home, recipients: int = 1) -> int:
    due = time.time() + 3600
    return classified_message(home, remote=[b"u%d@c" % each for each in range(recipients)], birth=BIRTH, due=due)


def read(layout: Layout, message: int) -> list[LastResult]:
    return list(unpack_results(Path(layout.hashed("last", message)).read_bytes()))


def test_a_deferral_leaves_its_time_its_nexthop_and_its_text(home: Home) -> None:
    before = int(time.time())
    message = classified_message(home, remote=[b"b@c.example", b"d@c.example"], local=[b"joe"])
    with ScriptedSend(home) as send:
        job = send.remote.job()
        send.remote.report(job, *[b"Z" + REPLY] * len(job.recipients))
        local = send.local.job()
        send.local.report(local, b"Zdisk full\n")
        path = file(home, "last", message)
        wait_until(lambda: path.exists() and b"disk full" in path.read_bytes(), why="the record")
        if len(job.recipients) < 2:
            send.remote.deliver(b"Z" + REPLY)
        wait_until(lambda: path.read_bytes().count(b"Greylisted") == 2, why="the records")
    found = read(open_layout(home.queue), message)
    assert sorted(each[:2] for each in found) == [("local", 0), ("remote", 0), ("remote", 13)]
    assert {(each.nexthop, each.text) for each in found} == {
        (b"c.example", REPLY.rstrip()), (b"joe", b"disk full"),
    }  # fmt: skip
    assert all(before <= each.when <= time.time() for each in found)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_report_that_made_no_sense_is_said_so_and_a_success_and_a_failure_leave_nothing(home: Home) -> None:
    odd = classified_message(home, local=[b"a"])
    done, failed = classified_message(home, local=[b"b"]), classified_message(home, local=[b"c"])
    verdicts = {b"a": [], b"b": [b"Kdid_1+0+0\n"], b"c": [b"Dno\n"]}
    with ScriptedSend(home) as send:
        for _ in range(3):
            job = send.local.job()
            send.local.report(job, *verdicts[job.recipients[0]])
        path = file(home, "last", odd)
        wait_until(lambda: path.exists() and b"made no sense" in path.read_bytes(), why="the record")
        send.wait_for(f"end msg {done}")
        assert not file(home, "last", done).exists() and not file(home, "last", failed).exists()


def test_mail_for_a_dead_nexthop_has_its_last_failure_as_the_reason(home: Home) -> None:
    Path(home.control, "destinationcohorts").write_text("1\n")
    Path(home.control, "destinationinitial").write_text("1\n")
    messages = [classified_message(home, remote=[b"b@dead.example"]) for _ in range(5)]
    with ScriptedSend(home) as send:
        send.remote.report(send.remote.job(), b"Zconnection refused\n", scope=b"h")
        send.wait_for(r"dest dead\.example dead: .*")
        later = time.time() + 60
        wait_until(lambda: all(file(home, "remote", each).stat().st_mtime > later for each in messages), why="deferral")
        # The disk thread writes them when it has the time.
        wait_until(lambda: all(file(home, "last", each).exists() for each in messages), why="the results")
        send.fence()
    kept = [file(home, "last", each).read_bytes() for each in messages]
    assert all(b"connection refused\n" in each for each in kept)
    assert sum(b"suspended: dead.example is dead: connection refused\n" in each for each in kept) == 4


def test_a_disk_that_refuses_costs_one_warning_and_no_mail(home: Home) -> None:
    for bucket in Path(home.queue, "last").iterdir():
        bucket.rmdir()
        bucket.write_bytes(b"")
    messages = [classified_message(home, local=[b"joe%d" % each]) for each in range(3)]
    with ScriptedSend(home) as send:
        for _ in messages:
            send.local.deliver(b"Zlater\n")
            send.fence()
        send.wait_for(r"warning: unable to write .*/last/.*: not a directory; why mail waits is not kept; mail goes on")
        wait_until(lambda: all(file(home, "local", each).stat().st_mtime > time.time() for each in messages), why="due")
        send.fence()
        assert len(send.found("warning: .*")) == 1


def test_a_removal_takes_the_file_along_and_a_sweep_takes_it_if_the_message_is_gone(home: Home, layout: Layout) -> None:
    message, other, lost = put(home), put(home), put(home)
    for each in (message, other, lost):
        append_results(layout, each, pack_result("remote", 0, 1, b"c", b"x"))
    assert remove_messages(layout, [Removal(message, ANY)]) == {}
    assert not os.path.lexists(layout.hashed("last", message))
    for kind in ("info", "remote", "mess"):
        os.unlink(layout.hashed(kind, lost))
    for moment, left in ((OLD - 60, [other, lost]), (OLD + 60, [other])):
        assert not any(swept.trouble for swept in sweep(layout, time.time() + moment))
        assert [each for each in (message, other, lost) if os.path.lexists(layout.hashed("last", each))] == left


def test_the_file_of_an_earlier_message_with_the_number_is_replaced(home: Home, layout: Layout) -> None:
    message = put(home)
    path = Path(layout.hashed("last", message))
    for before in (pack_header(int(BIRTH) * 10**6 - 1) + pack_result("remote", 0, 1, b"c", b"old"), b"garbage\n"):
        path.write_bytes(before)
        append_results(layout, message, pack_result("remote", 0, 2, b"c", b"new"))
        assert unpack_header(path.read_bytes()) == int(BIRTH) * 10**6
        assert [each.text for each in read(layout, message)] == [b"new"]


def test_an_announced_message_has_the_birth_of_its_text(home: Home, layout: Layout) -> None:
    message = put(home)
    os.unlink(layout.hashed("info", message))
    append_results(layout, message, pack_result("remote", 0, 2, b"c", b"new"))
    assert unpack_header(Path(layout.hashed("last", message)).read_bytes()) == int(BIRTH) * 10**6


def test_a_message_that_is_gone_gets_no_file(home: Home, layout: Layout) -> None:
    append_results(layout, 457, pack_result("remote", 0, 2, b"c", b"new"))
    assert not os.path.lexists(layout.hashed("last", 457))


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_what_is_no_file_is_an_error_and_stays(home: Home, layout: Layout, kind: str, tmp_path: Path) -> None:
    message, path = put(home), Path()
    path = Path(layout.hashed("last", message))
    if kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(OSError) as raised:
        append_results(layout, message, b"x\n")
    assert raised.value.filename == str(path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_never_grows_beyond_its_limit_and_keeps_the_newest(home: Home, layout: Layout) -> None:
    message, many = put(home), put(home, 200)
    for attempt in range(60):
        append_results(layout, message, pack_result("remote", 0, attempt, b"c", b"x" * 400))
        every = b"".join(pack_result("remote", each * 6, attempt, b"c", b"y" * 150) for each in range(200))
        append_results(layout, many, every)
        for one in (message, many):
            assert unpack_header(Path(layout.hashed("last", one)).read_bytes()) == int(BIRTH) * 10**6
            found = read(layout, one)
            assert found[-1].when == attempt
            assert [each.when for each in found] == sorted(each.when for each in found)
    assert os.stat(layout.hashed("last", message)).st_size <= FILE_MIN
    assert {each.offset for each in read(layout, many) if each.when == 59} == set(range(0, 1200, 6))
    assert os.stat(layout.hashed("last", many)).st_size < 40 * 1400 + 40_000


def test_a_full_disk_leaves_no_part_of_a_record(
    home: Home, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = put(home)
    append_results(layout, message, pack_result("remote", 0, 1, b"c", b"first"))

    real, left = os.write, [10]

    def some(handle: int, data: bytes) -> int:
        if not left:
            raise OSError(28, "No space left on device")
        return real(handle, data[: left.pop()])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", some)
        with pytest.raises(OSError, match="No space"):
            append_results(layout, message, pack_result("remote", 0, 2, b"c", b"second"))
    append_results(layout, message, pack_result("remote", 0, 3, b"c", b"third"))
    assert [each.text for each in read(layout, message)] == [b"first", b"third"]


def test_a_requeued_message_keeps_its_last_results(home: Home, layout: Layout) -> None:
    message = put(home)
    append_results(layout, message, pack_result("remote", 0, 1, b"c", b"why"))
    commit = Commit()
    hold_marks.set_birth(layout, message, 1_800_000_000_000_000, commit)
    commit.sync()
    data = Path(layout.hashed("last", message)).read_bytes()
    assert unpack_header(data) == 1_800_000_000_000_000 and len(list(unpack_results(data))) == 1
    append_results(layout, message, pack_result("remote", 0, 2, b"c", b"again"))
    assert [each.text for each in read(layout, message)] == [b"why", b"again"]


def test_a_message_ends_after_its_records_and_those_that_wait_are_dropped(home: Home, disk: Disk) -> None:
    writing, waiting = put(home), put(home)
    disk.hold()
    disk.writer.keep(writing, "remote", b"c", [(0, b"why")], 1.0)
    disk.writer.write()
    disk.writer.keep(waiting, "remote", b"c", [(0, b"why")], 1.0)
    assert not disk.writer.release(writing)
    assert disk.writer.release(waiting)
    assert not disk.events
    disk.work()
    assert list(disk.events) == [Happened(MessageEvent.WRITTEN, writing)]
    assert read(disk.layout, writing) and not os.path.exists(disk.layout.hashed("last", waiting))
    assert disk.writer.release(writing)


def test_a_disk_that_hangs_costs_bounded_memory_and_nothing_else(
    home: Home, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_writer, "PENDING_MAX", 10_000)
    message = put(home)
    disk.hold()
    for when in range(1000):
        disk.writer.keep(message, "remote", b"c", [(0, b"x" * 100)], float(when))
        disk.writer.write()
    disk.work()
    found = [each.when for each in read(disk.layout, message)]
    assert 10 < len(found) < 100


def test_the_disk_is_complained_of_once_until_it_takes_a_record(home: Home, disk: Disk) -> None:
    good, bad = put(home), put(home)
    Path(disk.layout.hashed("last", bad)).mkdir()
    for message in (bad, bad, good, bad):
        disk.writer.keep(message, "remote", b"c", [(0, b"why")], 1.0)
        disk.writer.write()
        disk.work()
    assert len(disk.warnings()) == 2


def test_requeue_by_queue_send_keeps_the_reason_under_the_new_id(home: Home) -> None:
    message = classified_message(home, local=[b"joe"])
    with ScriptedSend(home) as send:
        send.local.deliver(b"Zlater\n")
        path = file(home, "last", message)
        wait_until(path.exists, why="the record")
        send.fence()
        old = long_id(home, message)
        assert f"{old}: is " in order(home, "requeue", old)
        assert unpack_header(path.read_bytes()) == os.stat(file(home, "info", message)).st_mtime_ns // 1000
        assert "later" in order(home, "show", long_id(home, message))
