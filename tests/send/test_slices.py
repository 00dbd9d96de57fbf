"""Messages with many recipients: loaded a slice at a time, each read once, in steps between other mail."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_send.delivery import loading as slices
from queue_send.messages.message_files import PIECE
from queue_wire.pipes.notice import Classified
from support.processes.suite import wait_until
from support.queues.queued import classified_message
from support.send.control import file, long_id, order
from support.send.loop import Loop
from support.send.scripted_send import ScriptedSend
from support.tools import need

MANY = 20_000


@pytest.fixture
def loop(home: Home) -> Iterator[Loop]:
    made = Loop(home)
    yield made
    made.close()


def recipients(count: int, domain: bytes = b"c.example") -> list[bytes]:
    return [b"user%d@%s" % (number, domain) for number in range(count)]


def waits(home: Home, message: int) -> bool:
    return file(home, "remote", message).stat().st_mtime > time.time() + 60


def test_all_slices_together_read_the_file_little_more_than_once_and_a_turn_reads_little(
    home: Home, tmp_path: Path
) -> None:
    Path(home.control, "destinationinitial").write_text("1\n")
    Path(home.control, "destinationcohorts").write_text("1\n")
    first = classified_message(home, remote=[b"b@c.example"])
    trace = tmp_path / "trace"
    strace = (need("strace"), "-D", "-y", "-s", "1", "-o", str(trace), "-e", "trace=poll,read,pread64")
    with ScriptedSend(home, wrapper=strace) as send:
        send.remote.report(send.remote.job(), b"Zno route", scope=b"h")
        send.wait_for("dest c.example dead: .*")
        message = classified_message(home, remote=recipients(MANY))
        send.todo.classified(message)
        wait_until(lambda: waits(home, message), why="all recipients are deferred")
        assert first != message
        send.kill()
    path = re.escape(open_layout(home.queue).hashed("remote", message))
    size = file(home, "remote", message).stat().st_size
    turns = [0]
    for line in trace.read_text().splitlines():
        if line.startswith("poll("):
            turns.append(0)
        elif found := re.search(rf"^p?read(?:64)?\(\d+<{path}>.* = (\d+)$", line):
            turns[-1] += int(found[1])
    assert size <= sum(turns) <= 2 * size
    assert max(turns) <= 20 * PIECE


def test_every_recipient_of_many_slices_is_tried_once_and_those_that_are_left_wait(home: Home, loop: Loop) -> None:
    names = recipients(2 * slices.RECIPIENTS_MAX + 300)
    message = classified_message(home, remote=names)
    loop.arrive(message)
    tried: list[bytes] = []
    while len(tried) < len(names):
        loop.settle()
        assert loop.jobs
        assert sum(len(job.recipients) for job in loop.jobs) <= slices.RECIPIENTS_MAX
        for job in list(loop.jobs):
            # Of the first slice one is deferred; the others are done.
            verdicts = [b"Zlater" if name == b"user7@c.example" else b"Kok" for name in job.recipients]
            tried += job.recipients
            loop.report(job, *verdicts)
    loop.settle()
    assert sorted(tried) == sorted(names)
    assert loop.jobs == [] and loop.channel._loader._slices == {}
    left = [each for each in loop.messages.store.left(message, "remote") if each is not None]
    assert [address for _, address in left] == [b"user7@c.example"]
    assert waits(home, message)


def test_a_message_of_many_slices_whose_recipients_are_all_done_ends(home: Home, loop: Loop) -> None:
    message = classified_message(home, remote=recipients(slices.RECIPIENTS_MAX + 1))
    loop.arrive(message)
    for _ in range(30):
        loop.settle()
        for job in list(loop.jobs):
            loop.report(job, *[b"Kok"] * len(job.recipients))
    assert loop.has_ended(message)


def test_short_mail_is_started_while_a_long_message_is_being_loaded(
    home: Home, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A pause of the machine does not end the first turn before it comes to the short message.
    monkeypatch.setattr("queue_send.loop.TURN", 60)
    monkeypatch.setattr("queue_send.delivery.channel.STARTING", 60)
    long = classified_message(home, remote=recipients(900))
    loop.arrive(long)
    short = classified_message(home, remote=[b"b@quick.example"])
    loop.arrive(short)
    loop.turn()
    while not loop.jobs:
        loop.turn()
    assert loop.jobs[0].recipients == [b"b@quick.example"]


def test_the_first_message_with_many_recipients_of_a_user_is_not_loaded_behind_all_those_of_another(
    home: Home, loop: Loop
) -> None:
    loop.messages.none_late()
    sent = []
    for number, uid in enumerate([1000] * 20 + [1001]):
        sent.append(classified_message(home, remote=recipients(101, b"%d.example" % number)))
        loop.messages.arrive(Classified(sent[-1], False, True, uid=uid), loop.clock.now())
    order = []
    while (found := loop.channel.scheduler.next_load(loop.clock.now())) is not None:
        order.append(found[0])
    assert sorted(order) == sorted(sent) and sent[-1] in order[:2]


def test_a_message_that_is_held_while_it_is_loaded_is_not_tried_and_goes_on_after_its_release(
    home: Home, loop: Loop
) -> None:
    message = classified_message(home, remote=recipients(900))
    loop.arrive(message)
    assert loop.channel._load(loop.clock.now())
    loop.channel._load_step(loop.clock.now())
    assert loop.messages.is_loaded(message)
    loop.messages.hold_new(message)
    assert loop.messages.withdraw(message, loop.clock.now())
    loop.settle()
    assert loop.jobs == [] and not loop.messages.is_loaded(message)
    loop.messages.release(message)
    assert loop.messages.make_due(message)
    loop.settle()
    assert loop.jobs


def test_a_file_that_cannot_be_read_while_its_message_is_loaded_is_tried_again_later(home: Home, loop: Loop) -> None:
    message = classified_message(home, remote=recipients(900))
    loop.arrive(message)
    assert loop.channel._load(loop.clock.now())
    path = file(home, "remote", message)
    path.rename(path.with_name("kept"))
    path.mkdir()
    loop.settle()
    assert loop.jobs == [] and not loop.messages.is_loaded(message)
    assert loop.channel.scheduler.next_time(loop.clock.now()) is not None
    path.rmdir()
    path.with_name("kept").rename(path)
    loop.messages.flush(loop.clock.now())
    loop.settle()
    assert loop.jobs


def test_a_long_file_with_garbage_in_it_is_parked_and_what_was_loaded_before_is_delivered(
    home: Home, loop: Loop
) -> None:
    message = classified_message(home, remote=recipients(3000))
    path = file(home, "remote", message)
    data = bytearray(path.read_bytes())
    place = data.index(b"Tuser2500@")
    data[place : place + 1] = b"?"
    path.write_bytes(data)
    loop.arrive(message)
    delivered = 0
    for _ in range(200):
        loop.settle()
        for job in list(loop.jobs):
            delivered += len(job.recipients)
            loop.report(job, *[b"Kok"] * len(job.recipients))
    assert loop.is_parked(message) and not loop.messages.is_loaded(message)
    assert 0 < delivered < 2500 and delivered % slices.RECIPIENTS_MAX == 0
    assert file(home, "corrupt", message).exists()


def test_a_long_file_that_a_crash_has_cut_is_parked_at_once(home: Home, loop: Loop) -> None:
    message = classified_message(home, remote=recipients(3000))
    path = file(home, "remote", message)
    os.truncate(path, path.stat().st_size - 5)
    loop.arrive(message)
    loop.settle()
    assert loop.jobs == [] and loop.is_parked(message)


def test_what_is_known_of_a_slice_does_not_count_for_a_later_message_of_the_same_number(home: Home, loop: Loop) -> None:
    message = classified_message(home, remote=recipients(150))
    loop.channel._loader._slices[message] = slices.Slice(40, 7, 1_000_000, False)
    loop.arrive(message)
    tried: list[bytes] = []
    for _ in range(10):
        loop.settle()
        for job in list(loop.jobs):
            tried += job.recipients
            loop.report(job, *[b"Kok"] * len(job.recipients))
    assert sorted(tried) == sorted(recipients(150))


def test_a_bounce_that_is_asked_for_reads_the_recipients_once(home: Home, tmp_path: Path) -> None:
    message = classified_message(home, remote=recipients(2500), due=4_000_000_000)
    trace = tmp_path / "trace"
    strace = (need("strace"), "-D", "-f", "-y", "-s", "1", "-o", str(trace), "-e", "trace=read,pread64")
    with ScriptedSend(home, wrapper=strace) as send:
        send.fence()
        order(home, "bounce", long_id(home, message))
        send.wait_for("bounce msg .*")
        failed = [line for line in send.lines if "failure: The_administrator" in line]
        assert len(failed) == 2500
        assert send.clean.removed() == message
        send.kill()
    path = re.escape(open_layout(home.queue).hashed("remote", message))
    size = sum(len(name) + 2 for name in recipients(2500))
    reads = [int(found[1]) for found in re.finditer(rf"p?read(?:64)?\(\d+<{path}>[^\n]* = (\d+)\n", trace.read_text())]
    assert size <= sum(reads) <= 1.5 * size


@pytest.mark.parametrize("count", [15, 150, 2500])
def test_recipients_that_were_deferred_wait_while_others_of_the_message_wait_for_room(
    home: Home, loop: Loop, count: int
) -> None:
    # Each recipient of a VERP sender has a job of its own, more of them than its host has room for.
    names = recipients(count)
    message = classified_message(home, remote=names, sender=b"list-@b.example-@[]")
    loop.arrive(message)
    tried: list[bytes] = []
    for _ in range(3 * count):
        loop.settle()
        if not loop.jobs:
            break
        for job in list(loop.jobs):
            tried += job.recipients
            loop.report(job, b"Zlater")
    assert sorted(tried) == sorted(names)
    assert waits(home, message)
    loop.messages.flush(loop.clock.now())
    again: list[bytes] = []
    for _ in range(3 * count):
        loop.settle()
        if not loop.jobs:
            break
        for job in list(loop.jobs):
            again += job.recipients
            loop.report(job, b"Kok")
    assert sorted(again) == sorted(names)
    assert loop.has_ended(message)
    assert loop.channel.scheduler._tried == {} and loop.channel.scheduler._tried_count == 0
