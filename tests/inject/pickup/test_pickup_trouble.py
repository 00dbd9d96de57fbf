"""queue-pickup with damaged files, files of others, a full disk, a queue that refuses mail, and kills."""

import errno
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_inject.pickup.untrusted_directory import Directory
from queue_wire.files.maildrop import pack_header
from support.inject.injectors import (
    USER,
    PickupDaemon,
    file_limit,
    only,
    queued,
    states,
)
from support.inject.maildrop import ENVELOPE, NAME, leave, maildrop, put, set_aside, taken
from support.processes.suite import wait_until

pytestmark = pytest.mark.home("shared")

BROKEN = {
    "empty": b"",
    "no header": b"garbage" * 50,
    "cut in the header": pack_header(5)[:20],
    "cut in the message": pack_header(500) + b"hello",
    "cut in the envelope": pack_header(5) + b"hello" + ENVELOPE[:-1],
    "no envelope": pack_header(5) + b"hello",
    "bytes after the envelope": pack_header(5) + b"hello" + ENVELOPE + b"x",
    "a length of 20 digits": pack_header(10**20 - 1) + b"hello" + ENVELOPE,
    "a long address": pack_header(5) + b"helloFa@b\0T" + b"x" * 2000 + b"\0\0",
    "nothing but NULs": b"\0" * 5000,
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
def test_a_damaged_file_is_set_aside_with_one_alert(home: Home, data: bytes) -> None:
    path = put(home, data)
    with PickupDaemon(home) as pickup:
        wait_until(lambda: pickup.said(b"\0"))
        leave(home)
        taken(home, 1)
        assert pickup.end() == (0, b"")
        assert pickup.said(b"Lalert: queue-pickup: unable to take %s of uid %d: " % (os.fsencode(path), USER))

    assert pickup.log.count(b"\0") == 1 and b"\n" not in pickup.log
    (aside,) = set_aside(home)
    assert b"; it is set aside as corrupt/maildrop/%s\0" % os.fsencode(aside.name) in pickup.log
    assert aside.read_bytes() == data and aside.stat().st_uid == USER and aside.name.startswith(f"{USER}.")


def test_a_file_under_construction_is_left_until_it_is_36_hours_old(home: Home) -> None:
    young = put(home, b"young", "tmp." + NAME)
    old = put(home, b"old", "tmp." + NAME[::-1])
    for path, hours in ((young, 35.9), (old, 36.1)):
        os.utime(path, (time.time() - hours * 3600,) * 2)
    with PickupDaemon(home) as pickup:
        wait_until(lambda: not old.exists())
        leave(home)
        wait_until(lambda: states(home) == {4: 1} and maildrop(home) == [young.name])
        pickup.end()

    assert pickup.log == b""


def test_trouble_with_the_queue_leaves_mail_where_it_is_until_it_is_over(home: Home) -> None:
    directory = Path(home.queue, "pid")
    directory.chmod(0o500)
    for _ in range(3):
        leave(home)
    with PickupDaemon(home) as pickup:
        wait_until(lambda: pickup.said(b"and 2 more; it stays in ") and pickup.said(b"tried again"))
        assert len(maildrop(home)) == 3 and states(home) == {}
        directory.chmod(0o700)
        taken(home, 3)


def test_a_message_that_does_not_fit_stands_in_no_other_s_way(home: Home) -> None:
    leave(home, b"x" * 300_000)
    with PickupDaemon(home, file_limit(200_000)) as pickup:
        wait_until(lambda: pickup.said(b"file too large"))
        leave(home, b"small")
        # The file is removed after its message is queued.
        wait_until(lambda: states(home) == {4: 1} and len(maildrop(home)) == 1)
    assert only(home).message == b"small"
    with PickupDaemon(home):
        taken(home, 2)


def test_nothing_is_reached_across_a_mount_point() -> None:
    with pytest.raises(OSError) as caught:
        Directory("/").look("proc")
    assert caught.value.errno == errno.EXDEV


def test_sigkill_at_any_moment_loses_no_message(home: Home) -> None:
    left = set()
    for number in range(12):
        for piece in range(10):
            message = b"%d.%d" % (number, piece)
            left.add(message)
            put(home, pack_header(len(message)) + message + ENVELOPE, f"mail.{number * 100 + piece:032x}")
        pickup = PickupDaemon(home)
        with pickup:
            try:
                pickup.process.wait(random.uniform(0.02, 0.2))
            except subprocess.TimeoutExpired:
                pickup.process.send_signal(signal.SIGKILL)
                pickup.process.wait(60)
    with PickupDaemon(home):
        wait_until(lambda: not maildrop(home))

    assert set(states(home)) <= {2, 3, 4}
    found = Counter(message.message for message in queued(home))
    assert set(found) == left
