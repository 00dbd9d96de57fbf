"""Whatever stands in the place of queue/marks, the suite delivers and stops; a file that is not the queue's is not
touched, and mail is classified first then. After a clean stop no record is left.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_base.queue.layout import open_layout
from queue_base.queue.marks_file import LeftMarks, MarksFile
from queue_wire.files.marks import EMPTY, FILE_SIZE, HEADER, DoneMarks, EnvelopeIdentity, pack_marks, unpack_file
from support.faults.trouble import disk_full
from support.local.good_mail import GoodMail
from support.processes.suite import Suite, wait_until
from support.tools import need

pytestmark = pytest.mark.one_way
RECORD = pack_marks(DoneMarks(EnvelopeIdentity(457, 1, 2, 3), 0b11), seed=5)
# A record cut in the middle, one of another boot, and bytes that are none.
TORN = RECORD[:32] + bytes(32)
CONTENTS = {
    "nothing": b"",
    "a part of the header": HEADER[:10],
    "too short": HEADER + RECORD * 3 + RECORD[:20],
    "too long": (HEADER + RECORD).ljust(3 * FILE_SIZE, b"\xff"),
    "torn records": (HEADER + TORN * 100 + RECORD * 100 + EMPTY).ljust(FILE_SIZE, b"\0"),
    "garbage": b"\xa5" * FILE_SIZE,
    "another format": b"queue-suite marks 9\n".ljust(FILE_SIZE, b"\x01"),
}


def other_file(path: Path) -> Path:
    other = path.with_name("other")
    other.write_bytes(b"secret")
    return other


def make_link(path: Path) -> None:
    path.symlink_to(other_file(path))


def make_hard_link(path: Path) -> None:
    path.hardlink_to(other_file(path))


def give_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    path.write_bytes(HEADER.ljust(FILE_SIZE, b"\0"))
    os.chown(path, 12345, 12345)


IN_PLACE = {
    "a link": make_link,
    "a hard link": make_hard_link,
    "a FIFO": os.mkfifo,
    "a directory": Path.mkdir,
    "another owner's": give_away,
}


@pytest.fixture
def marks(mail: GoodMail) -> Path:
    mail.site.control("classifyafter", "60\n")
    return Path(mail.home.queue, "marks")


def delivers(mail: GoodMail) -> list[str]:
    """Run the suite, send mail, stop it; return the log."""
    with Suite(mail.home) as suite:
        mail.check_alive(suite, "first")
        mail.check_alive(suite, "second")
        suite.wait_for("end msg", times=2)
        assert suite.stop() == 0
    assert mail.site.files() in ([], ["other"])
    assert mail.site.is_empty()
    return suite.lines


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_file_of_marks_that_is_damaged_is_made_whole_and_used(mail: GoodMail, marks: Path, content: bytes) -> None:
    marks.write_bytes(content)

    log = delivers(mail)

    assert [line for line in log if "marks" in line] == []
    assert marks.stat().st_size == FILE_SIZE
    assert len(LeftMarks(open_layout(mail.home.queue))) == 0


@pytest.mark.parametrize("make", IN_PLACE.values(), ids=IN_PLACE)
def test_what_is_no_file_of_marks_is_not_touched_and_mail_is_classified_first(
    mail: GoodMail, marks: Path, make: Callable[[Path], None]
) -> None:
    make(marks)
    before = marks.lstat()

    log = delivers(mail)

    assert [line for line in log if line.startswith(f"alert: unable to use {marks}: ")]
    after = marks.lstat()
    assert (after.st_mode, after.st_ino, after.st_size, after.st_mtime_ns) == (
        before.st_mode, before.st_ino, before.st_size, before.st_mtime_ns,
    )  # fmt: skip
    if marks.with_name("other").exists():
        assert marks.with_name("other").read_bytes() == b"secret"


def test_a_clean_stop_leaves_no_record_and_nothing_that_counts(mail: GoodMail, marks: Path) -> None:
    delivers(mail)

    assert unpack_file(marks.read_bytes(), 0) == {}
    assert set(marks.read_bytes()[len(HEADER) :]) == {0}
    assert stat.S_IMODE(marks.stat().st_mode) & 0o077 == 0


def test_records_of_messages_that_are_gone_are_cleared_at_the_start(mail: GoodMail, marks: Path) -> None:
    layout = open_layout(mail.home.queue)
    file = MarksFile(layout)
    for number in range(1, 200):
        slot = file.take()
        assert slot is not None
        file.write(slot, DoneMarks(EnvelopeIdentity(number, number, 1, 1), 1))
    file.close()

    delivers(mail)

    assert set(marks.read_bytes()[len(HEADER) :]) == {0}


def test_without_space_for_the_file_mail_is_classified_first(mail: GoodMail, marks: Path) -> None:
    options = ("-f", "-qq", "-o", "/dev/null", "--seccomp-bpf", "-DD")
    fault = ("-e", "trace=fallocate", "-e", "inject=fallocate:error=ENOSPC")
    with Suite(mail.home, wrapper=(need("strace"), *options, *fault, "--")) as suite:
        suite.wait_for(f"^alert: unable to use {marks}: no space left on device; mail is classified before delivery")
        mail.check_alive(suite, "first")
        assert suite.stop() == 0


def test_while_no_mark_can_be_written_mail_is_delivered_and_a_kill_loses_nothing(mail: GoodMail, marks: Path) -> None:
    with Suite(mail.home) as suite:
        mail.check_alive(suite, "before")
        disk_full(suite.process.pid)
        for token in "first", "second", "third":
            mail.check_alive(suite, token)
        suite.wait_for("^warning: .*marks.*file too large")
        suite.kill()
    with Suite(mail.home) as suite:
        mail.check_alive(suite, "after")
        wait_until(mail.site.is_empty, why="an empty queue")
        assert suite.stop() == 0
    assert len(LeftMarks(open_layout(mail.home.queue))) == 0
