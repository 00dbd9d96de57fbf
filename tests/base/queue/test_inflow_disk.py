"""control/queueminfree: below it every injector refuses for now and leaves nothing; what is queued goes on."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.errors import Temporary
from queue_base.home import Home
from queue_base.queue import inflow
from queue_wire.control.lines import unpack_size
from queue_wire.files.maildrop import pack_header
from queue_wire.format_error import FormatError
from support.inject.injectors import (
    USER,
    PickupDaemon,
    as_user,
    enqueue,
    inject,
    is_empty,
    queued,
    run,
    shared_home,
)
from support.inject.maildrop import ENVELOPE, leave, maildrop, put, taken
from support.local.good_mail import good_mail
from support.processes.suite import Suite, wait_until
from support.processes.suite import enqueue as send
from support.queues.inflow import TOO_MUCH, free_bytes, patched_programs, set_least, small_disk
from support.queues.letters import letter_text
from support.tools import need_private_mounts

MB = 1 << 20


@pytest.fixture
def home() -> Iterator[Home]:
    with shared_home() as home:
        yield home


@pytest.mark.parametrize(
    ("data", "size"),
    [(b"0\n", 0), (b"1000", 1000), (b"16K", 16384), (b"3 m \n", 3 * MB), (b"2G", 2 << 30), (b"1t", 1 << 40)],
)
def test_a_size_is_a_number_of_bytes_or_has_a_unit(data: bytes, size: int) -> None:
    assert unpack_size(data) == size


@pytest.mark.parametrize("data", [b"", b"M", b"-1", b"1.5G", b"16MB", b"9" * 30])
def test_what_is_no_size_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_size(data)


def test_below_the_limit_every_injector_refuses_for_now_and_leaves_nothing(home: Home) -> None:
    set_least(home, TOO_MUCH)
    why = rb"unable to queue message: the disk is almost full: \d+ bytes free on %s, control/queueminfree wants \d+; "
    here, drop = os.fsencode(home.queue), os.fsencode(home.queue + "/maildrop")
    for outcome, code, place in (
        (enqueue(home, b"x"), 53, here),
        (inject(home, "bob", message=b"Subject: x\n\n"), 111, here),
        (enqueue(home, b"x", command=as_user(USER, "queue_inject.enqueue")), 53, drop),
        (run([*as_user(USER, "queue_inject.main"), "--home", home.path, "bob"], b"Subject: x\n\n"), 111, drop),
    ):
        assert outcome.code == code
        assert re.search(why % re.escape(place), outcome.error), outcome.error
    assert is_empty(home) and maildrop(home) == []
    set_least(home, "0")
    assert enqueue(home, b"x").code == 0


def test_a_limit_that_cannot_be_parsed_is_named_and_refuses_for_now(home: Home) -> None:
    set_least(home, "plenty\n")
    outcome = enqueue(home, b"x")
    assert outcome.code == 55 and f"unable to parse {home.control}/queueminfree".encode() in outcome.error
    assert is_empty(home)
    with pytest.raises(Temporary):
        inflow.read_least(home)


def test_pickup_leaves_mail_in_maildrop_with_one_alert_and_takes_it_when_there_is_room(home: Home) -> None:
    for _ in range(3):
        leave(home)
    set_least(home, TOO_MUCH)
    with PickupDaemon(home) as pickup:
        wait_until(lambda: pickup.said(b"control/queueminfree wants"), why="the alert")
        set_least(home, None)
        leave(home)
        taken(home, 4)
        assert pickup.said(b"Lalert: queue-pickup: unable to queue mail: ")
        assert pickup.end() == (0, b"")
    assert pickup.log.count(b"\0") == 1


def test_queue_todo_says_so_once_and_still_classifies(tmp_path: Path) -> None:
    programs = patched_programs(tmp_path, queue_todo="import queue_todo.backpressure as i\ni.SPACE_EVERY = 0.1")
    with good_mail() as mail:
        assert enqueue(mail.home, letter_text("before"), b"Fjoe@me.example.org\0Tsomebody@me.example.org\0\0").code == 0
        set_least(mail.home, TOO_MUCH)
        with Suite(mail.home, programs=programs) as suite:
            suite.wait_for(r"^alert: queue-todo: unable to take mail: \d+ bytes free on \S+, control/queueminfree")
            wait_until(lambda: mail.has_here("before"), why="what was queued already")
            set_least(mail.home, None)
            suite.wait_for(r"^inflow free: there is room on ")
            assert suite.count("unable to take mail") == 1
            mail.check_alive(suite, "after")


def test_a_bounce_waits_while_the_disk_is_short_and_goes_out_when_there_is_room(tmp_path: Path) -> None:
    programs = patched_programs(tmp_path, queue_send="import queue_send.notify.bounce as b\nb.AGAIN_AFTER = 0.2")
    with good_mail() as mail:
        limit = mail.control("concurrencyremote", "0\n")
        with Suite(mail.home, programs=programs) as suite:
            done = send(mail.home, b"joe@me.example.org", [b"refused@remote.example"], letter_text("no"))
            assert done.returncode == 0
            suite.wait_for("new msg")
            set_least(mail.home, TOO_MUCH)
            limit.write_text("20\n")
            suite.signal(signal.SIGHUP)
            suite.wait_for(r"warning: trouble injecting bounce message of msg \d+: queue-enqueue exited 53; will try")
            assert mail.site.delivered_to("joe@me.example.org") == []
            set_least(mail.home, None)
            suite.wait_for(r"^bounce msg \d+ qp \d+")
            wait_until(lambda: mail.site.delivered_to("joe@me.example.org"), why="the bounce")
            suite.wait_for("end msg", times=2)
            assert suite.count("^bounce msg") == 1


def test_a_large_message_is_refused_before_the_disk_is_full(tmp_path: Path) -> None:
    need_private_mounts()
    with small_disk(tmp_path / "disk", "size=64m,mode=755") as home:
        outcome = enqueue(home, b"x" * (200 * MB))
        assert outcome.code == 53, outcome
        found = re.search(rb"almost full: (\d+) bytes free on ", outcome.error)
        assert found and 16 * MB > int(found[1]) > 14 * MB
        assert is_empty(home) and free_bytes(home) > 60 * MB
        assert enqueue(home, b"x" * (40 * MB)).code == 0
        assert enqueue(home, b"x" * (10 * MB)).code == 53
        assert len(queued(home)) == 1
        set_least(home, "1M\n")
        assert enqueue(home, b"x" * (10 * MB)).code == 0


def test_pickup_begins_no_copy_of_a_message_that_the_disk_has_no_room_for(tmp_path: Path) -> None:
    need_private_mounts()
    with small_disk(tmp_path / "disk", "size=64m,mode=755") as home:
        put(home, pack_header(30 * MB) + b"x" * (30 * MB) + ENVELOPE)
        with PickupDaemon(home) as pickup:
            wait_until(lambda: pickup.said(b" of the message; try again later; it stays in "), why="the warning")
            assert b"control/queueminfree wants 16777216 besides the 31457" in pickup.log
            put(home, pack_header(5) + b"small" + ENVELOPE, f"mail.{1:032x}")
            wait_until(lambda: len(queued(home)) == 1, why="the small one")
            assert queued(home)[0].message == b"small"
            set_least(home, "0\n")
            taken(home, 2)


def test_mail_in_maildrop_that_takes_the_disk_down_to_its_limit_is_moved_all_the_same(tmp_path: Path) -> None:
    need_private_mounts()
    with small_disk(tmp_path / "disk", "size=64m,mode=755") as home:
        for number in range(35):
            put(home, pack_header(MB) + b"x" * MB + ENVELOPE, f"mail.{number:032x}")
        Path(home.path, "others").write_bytes(b"x" * (free_bytes(home) - 12 * MB))
        assert enqueue(home, b"x").code == 53, "others take no mail"
        with PickupDaemon(home) as pickup:
            taken(home, 35)
            assert pickup.end() == (0, b"")


def test_a_disk_without_inodes_takes_nothing(tmp_path: Path) -> None:
    need_private_mounts()
    with small_disk(tmp_path / "disk", "size=64m,nr_inodes=1051,mode=755") as home:
        assert os.statvfs(home.queue).f_favail > inflow.INODES_MIN
        for number in range(100):
            Path(home.path, f"file{number}").touch()
        outcome = enqueue(home, b"x")
        assert outcome.code == 53 and b" inodes free on " in outcome.error
        assert is_empty(home)
