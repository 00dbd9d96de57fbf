"""Messages whose notice had the envelope: what queue-send reads of their files, and when."""

import errno
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_base.queue.removal import remove_messages
from queue_send import cleaner, disk_retry
from queue_send.admin.queries import Explainer
from queue_send.messages.records import BYTES_MAX
from queue_wire.admin.cause import CONCURRENCY_FULL, DISK_FAILED, IN_FLIGHT, REMOVALS_BEHIND
from queue_wire.files.envelope import pack_info
from queue_wire.files.hold_mark import HoldOrder
from queue_wire.pipes import cleaning
from queue_wire.pipes.cleaning import Removal
from queue_wire.pipes.notice import LOCAL, REMOTE, Arrived
from support.processes.suite import wait_until
from support.queues.home import make_home
from support.queues.queued import classified_message
from support.send.loop import Loop

TWO = [b"b@c.example", b"d@e.example"]
SUBMITTER = b"0123456789abcdef"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path / "home", split=3)


@pytest.fixture
def loop(home: Home) -> Iterator[Loop]:
    found = Loop(home)
    yield found
    found.close()


def arrived(home: Home, message: int, *recipients: bytes) -> Arrived:
    birth = Path(open_layout(home.queue).hashed("info", message)).stat().st_mtime_ns // 1000
    return Arrived(message, birth, 18, b"a@example.org", [(REMOTE, recipient) for recipient in recipients])


def test_a_new_message_is_delivered_and_ends_without_its_files_being_read(home: Home, loop: Loop) -> None:
    message = classified_message(home, sender=b"a@example.org", remote=TWO)
    notice = arrived(home, message, *TWO)
    loop.messages.all_found()
    loop.messages.none_late()
    hidden = Path(open_layout(home.queue).hashed("info", message))
    hidden.unlink()
    loop.messages.arrive(notice, loop.clock.now())
    loop.settle()
    jobs = sorted(loop.jobs, key=lambda job: job.recipients)
    assert [(job.sender, job.recipients) for job in jobs] == [(b"a@example.org", [each]) for each in TWO]
    for job in jobs:
        loop.report(job, b"Kdone")
    loop.settle()
    assert next(iter(loop.cleaner._asked))[0] == Removal(message, cleaning.REMOTE)
    assert Path(open_layout(home.queue).hashed("remote", message)).read_bytes() == b"Db@c.example\0Dd@e.example\0"


def test_a_deferred_message_is_read_from_its_files_at_the_next_attempt(home: Home, loop: Loop) -> None:
    message = classified_message(home, sender=b"a@example.org", remote=TWO)
    loop.messages.none_late()
    loop.messages.arrive(arrived(home, message, *TWO), loop.clock.now())
    loop.settle()
    for job in list(loop.jobs):
        loop.report(job, b"Kdone" if job.recipients == TWO[:1] else b"Zlater")
    loop.settle()
    assert loop.messages.store.records.get(message) is None
    loop.messages.flush(loop.clock.now())
    loop.settle()
    assert [job.recipients for job in loop.jobs] == [TWO[1:]]


def test_until_all_notices_of_the_time_of_the_backlog_have_come_the_disk_says_whether_a_message_is_new(
    home: Home, loop: Loop
) -> None:
    message = classified_message(home, sender=b"a@example.org", remote=TWO)
    notice = arrived(home, message, *TWO)
    Path(open_layout(home.queue).hashed("info", message)).unlink()
    loop.messages.arrive(notice, loop.clock.now())
    loop.settle()
    assert not loop.jobs
    loop.messages.none_late()
    loop.messages.arrive(notice, loop.clock.now())
    loop.settle()
    assert loop.jobs


def test_a_late_notice_that_waited_for_the_removal_of_its_message_is_not_one_about_a_new_message(
    home: Home, loop: Loop
) -> None:
    message = classified_message(home, sender=b"a@example.org")
    notice = arrived(home, message, *TWO)
    assert not loop.messages.discover(message)
    loop.messages.all_found()
    loop.settle()
    assert loop.has_ended(message)
    loop.messages.arrive(notice, loop.clock.now())
    loop.messages.none_late()
    remove_messages(open_layout(home.queue), [Removal(message)])
    os.write(loop._pipes[3][1], cleaning.REMOVED)
    loop.settle()
    assert not loop.has_ended(message)
    assert not loop.jobs


@pytest.mark.parametrize("order", ["delete", "flush"])
def test_a_notice_that_comes_after_an_order_has_ended_its_message_starts_nothing(
    home: Home, loop: Loop, order: str
) -> None:
    message = classified_message(home, sender=b"a@example.org", remote=TWO)
    notice = arrived(home, message, *TWO)
    loop.messages.all_found()
    loop.messages.none_late()
    loop.asked.clear()
    if order == "delete":
        loop.messages.hold(message, HoldOrder.DELETE)
    else:
        loop.messages.make_due(message)
        loop.settle()
        for job in list(loop.jobs):
            loop.report(job, b"Kdone")
        loop.settle()
    assert loop.has_ended(message) and loop.asked
    remove_messages(open_layout(home.queue), [Removal(message)])
    os.write(loop._pipes[3][1], cleaning.REMOVED)
    loop.settle()
    loop.messages.arrive(notice, loop.clock.now())
    loop.settle()
    assert not loop.jobs
    # When all have come, a full notice is again about a new message.
    for _ in loop.asked:
        loop.messages.none_late()
    loop.messages.arrive(notice, loop.clock.now())
    loop.settle()
    assert loop.jobs


def test_nothing_of_a_deleted_message_is_started_while_queue_clean_has_still_to_remove_it(
    home: Home, loop: Loop
) -> None:
    settings = loop.channel.scheduler.settings
    loop.channel.scheduler.apply_settings(settings._replace(concurrency=0))
    message = classified_message(home, sender=b"a@example.org", remote=TWO)
    loop.messages.all_found()
    loop.messages.none_late()
    loop.messages.arrive(arrived(home, message, *TWO), loop.clock.now())
    loop.settle()
    loop.messages.hold(message, HoldOrder.DELETE)
    assert loop.has_ended(message)
    loop.channel.scheduler.apply_settings(settings)
    loop.messages.flush(loop.clock.now())
    loop.settle()
    assert not loop.jobs


@pytest.mark.parametrize(
    ("uid", "named", "submitter"),
    [
        (None, b"", b"\0a<example.org"),
        (os.getuid(), b"", b"\0a<example.org"),
        (os.getuid(), SUBMITTER, b"\0" + SUBMITTER),
        (12346, b"", b"\0uid 12346"),
    ],
)
def test_the_submitter_is_the_same_by_the_notice_and_by_info_as_after_a_restart(
    home: Home, loop: Loop, uid: int | None, named: bytes, submitter: bytes
) -> None:
    read, told = (classified_message(home, remote=TWO) for _ in range(2))
    info = Path(open_layout(home.queue).hashed("info", read))
    found = info.stat()
    info.write_bytes(pack_info(b"a@example.org", "", uid, named))
    os.utime(info, ns=(found.st_mtime_ns, found.st_mtime_ns))
    loop.messages.all_found()
    loop.messages.none_late()
    loop.arrive(read)
    loop.messages.arrive(arrived(home, told, *TWO)._replace(uid=uid or 0, submitter=named), loop.clock.now())
    loop.settle()
    for message in (read, told):
        attempt = loop.channel.scheduler.attempts[message]
        assert attempt is not None and attempt.submitter == submitter


def test_the_envelopes_that_are_kept_have_a_limit(home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queue_send.messages.records.KEPT_MAX", 3)
    envelopes = loop.messages.store.records
    notice = Arrived(1, 5, 18, b"a@b", [(LOCAL, b"x" * 100)])
    for message in range(5):
        envelopes.keep(notice._replace(message=message), 5)
    assert [envelopes.get(message) is None for message in range(5)] == [False, False, False, True, True]
    envelopes.forget(0)
    envelopes.keep(notice._replace(message=9), 5)
    assert envelopes.get(9) is not None
    for message in range(10):
        envelopes.forget(message)
    monkeypatch.setattr("queue_send.messages.records.KEPT_MAX", 10**9)
    for message in range(200_000):
        envelopes.keep(notice._replace(message=message), 5)
    assert sum(envelopes.get(message) is not None for message in range(200_000)) < 100_000


def test_no_delivery_starts_while_too_many_messages_wait_for_their_removal(home: Home, loop: Loop) -> None:
    message = classified_message(home, remote=TWO)
    loop.settle()
    for number in range(1, cleaner.WAITING_MAX + 2):
        loop.cleaner._asked.append((Removal(number), 0.0))
    assert loop.channel.stopped == REMOVALS_BEHIND
    loop.arrive(message)
    loop.settle()
    assert not loop.jobs
    loop.cleaner._asked.popleft()
    loop.settle()
    assert loop.jobs


def test_no_delivery_starts_on_a_disk_that_takes_no_marks_until_it_does(
    home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_retry, "LOOK_EVERY", 0.1)
    first, second = (classified_message(home, remote=[b"a@%d.example" % number]) for number in range(2))
    loop.settle()
    loop.arrive(first)
    loop.settle()
    (job,) = loop.jobs
    os.rename(home.queue, home.queue + ".out")
    loop.report(job, b"Kok")
    loop.settle()
    assert loop.channel.stopped == DISK_FAILED
    os.rename(home.queue + ".out", home.queue)
    loop.arrive(second)
    loop.settle()
    assert loop.channel.stopped == DISK_FAILED and not loop.jobs
    wait_until(lambda: not loop.channel.stopped or loop.turn() < 0, why="the next look")
    loop.settle()
    assert loop.jobs


def test_one_file_that_takes_no_mark_stops_nothing(home: Home, loop: Loop) -> None:
    message = classified_message(home, remote=[b"a@b.example"])
    loop.settle()
    loop.arrive(message)
    loop.settle()
    os.unlink(open_layout(home.queue).hashed("remote", message))
    loop.report(loop.jobs[0], b"Kok")
    loop.settle()
    assert not loop.channel.stopped


def test_the_envelopes_that_are_kept_have_a_limit_of_memory_whatever_the_length_of_their_addresses(
    home: Home, loop: Loop
) -> None:
    envelopes = loop.messages.store.records
    tracemalloc.start()
    try:
        for message in range(1, 5000):
            recipients = [(LOCAL, b"%d" % (at + message)) for at in range(100)]
            envelopes.keep(Arrived(message, 5, 18, b"", recipients), 5)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 1.5 * BYTES_MAX


def test_a_notice_whose_files_cannot_be_read_yet_is_no_longer_a_full_one(
    home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # While it waits, the message may end by an order, and its number become that of another one.
    message = classified_message(home, sender=b"a@example.org", remote=TWO)
    loop.messages.all_found()
    loop.messages.none_late()

    def refuse(path: str) -> os.stat_result:
        raise OSError(5, "Input/output error")

    loop.messages.hold_new(message)  # Of an earlier message of this number, and gone from the disk.
    with monkeypatch.context() as patched:
        patched.setattr(os, "lstat", refuse)
        loop.messages.arrive(arrived(home, message, *TWO), loop.clock.now())
    layout = open_layout(home.queue)
    for kind in "info", "remote", "mess":
        Path(layout.hashed(kind, message)).unlink()
    [again] = loop.messages._retry._work.values()
    again(loop.clock.now())
    loop.settle()
    assert not loop.jobs


def arrive_all(home: Home, loop: Loop, *recipients: bytes) -> list[int]:
    """Let a message come for each recipient, all notices in time; return their numbers."""
    loop.messages.all_found()
    loop.messages.none_late()
    messages = []
    for recipient in recipients:
        messages.append(classified_message(home, sender=b"a@example.org", remote=[recipient]))
        loop.messages.arrive(arrived(home, messages[-1], recipient), loop.clock.now())
    return messages


def test_mail_beyond_what_a_destination_takes_is_not_loaded_before_mail_for_another(home: Home, loop: Loop) -> None:
    arrive_all(home, loop, *[b"%d@full.example" % number for number in range(50)], b"b@other.example")
    loop.settle()
    started = sorted(recipient for job in loop.jobs for recipient in job.recipients)
    assert started == [b"0@full.example", b"1@full.example", b"b@other.example"]
    assert loop.channel.scheduler.active <= 2 + 2 + 1
    assert loop.channel.scheduler.overflow == 46


def test_the_destination_of_a_message_whose_envelope_is_not_kept_is_known_too(
    home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queue_send.messages.records.KEPT_MAX", 0)
    arrive_all(home, loop, *[b"%d@full.example" % number for number in range(9)])
    loop.settle()
    assert [job.recipients for job in loop.jobs] == [[b"0@full.example"], [b"1@full.example"]]
    assert loop.channel.scheduler.overflow == 5


def test_a_late_notice_does_not_tell_the_destination(home: Home, loop: Loop) -> None:
    message = classified_message(home, sender=b"a@example.org", remote=[b"now@new.example"])
    loop.messages.all_found()
    loop.messages.arrive(arrived(home, message, b"before@old.example"), loop.clock.now())
    assert loop.channel.scheduler.overflow == 0
    loop.settle()
    assert [job.recipients for job in loop.jobs] == [[b"now@new.example"]]


def test_a_message_that_waits_goes_where_the_control_files_say_when_it_is_loaded(home: Home, loop: Loop) -> None:
    Path(home.control, "concurrencyremote").write_text("0\n")
    loop.config.reread()
    loop.channel.apply_config()
    arrive_all(home, loop, b"b@c.example")
    loop.settle()
    assert list(loop.channel.scheduler.destinations) == [b"c.example"]
    Path(home.control, "concurrencyremote").unlink()
    Path(home.control, "smtproutes").write_text("c.example:relay.example\n")
    loop.config.reread()
    loop.channel.apply_config()
    loop.settle()
    assert [job.recipients for job in loop.jobs] == [[b"b@c.example"]]
    assert [entry.nexthop for entry in loop.channel.in_flight] == [b"relay.example"]


def test_a_message_that_waits_only_for_a_place_is_due_and_not_behind_others(home: Home, loop: Loop) -> None:
    Path(home.control, "concurrencyremote").write_text("1\n")
    loop.config.reread()
    loop.channel.apply_config()
    first, second = arrive_all(home, loop, b"b@c.example", b"b@d.example")
    loop.settle()
    explainer = Explainer(b"remote", loop.channel.scheduler)
    nexthops, jobs, now = [b"c.example", b"d.example"], loop.channel.in_flight, loop.clock.now()
    kinds = [
        [cause.kind for cause in explainer.message(message, [int(now)], nexthops, jobs, b"", now)]
        for message in (first, second)
    ]
    assert kinds == [[IN_FLIGHT], [CONCURRENCY_FULL]]


def test_a_recipient_that_is_done_is_not_started_again_by_a_second_entry_of_its_message(home: Home, loop: Loop) -> None:
    loop.messages.all_found()
    loop.messages.none_late()
    message = classified_message(home, sender=b"a@example.org", local=[b"ann"], remote=[b"b@c.example"])
    notice = arrived(home, message, b"b@c.example")
    both = notice._replace(recipients=[(LOCAL, b"ann"), *notice.recipients])
    loop.messages.arrive(both, loop.clock.now())
    loop.settle()
    loop.report(loop.jobs[0], b"Kdone")
    loop.settle()
    loop.channel.scheduler.make_due(message)
    loop.settle()
    assert not loop.jobs


def test_a_message_that_has_no_recipient_left_is_not_loaded_again_though_the_disk_has_refused_its_mark(
    home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.channel.scheduler.apply_settings(loop.channel.scheduler.settings._replace(concurrency=1))
    message = classified_message(home, sender=b"a@example.org", remote=TWO[:1])
    loop.arrive(message)
    loop.messages.make_due(message)  # A second entry, which is not taken while the first one is in flight.
    other = classified_message(home, sender=b"a@example.org", remote=TWO[1:])
    loop.arrive(other)
    loop.settle()
    assert [job.recipients for job in loop.jobs] == [TWO[:1]]
    remote = open_layout(home.queue).hashed("remote", message)
    real_open = os.open

    def open_or_refuse(path: str, flags: int, *more: int) -> int:
        if path == remote and flags & os.O_WRONLY:
            raise OSError(errno.EIO, "Input/output error", path)
        return real_open(path, flags, *more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_or_refuse)
        loop.report(loop.jobs[0], b"Kdone")
        loop.settle()
    assert [removal for removal, _ in loop.cleaner._asked] == [Removal(message)]
    assert [job.recipients for job in loop.jobs] == [TWO[1:]]
