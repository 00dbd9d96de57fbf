"""queue/marks on the disk: what a killed run has left, slots, files that are none of ours, and disks that refuse."""

import errno
import os
from pathlib import Path

import pytest

from queue_base.queue import marks_file
from queue_base.queue.layout import Layout, open_layout
from queue_base.queue.marks_file import LeftMarks, MarksFile, clear_messages, clear_slots, open_marks
from queue_base.safe_open import UnsafePath
from queue_wire.files.marks import FILE_SIZE, HEADER, SLOTS, DoneMarks, EnvelopeIdentity
from support.queues.home import make_home

ONE = EnvelopeIdentity(457, 1_600_000_000_000_000, 21, 7)
TWO = EnvelopeIdentity(458, 1_600_000_000_000_000, 21, 7)
LATER = EnvelopeIdentity(457, 1_600_000_000_000_001, 21, 7)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return open_layout(make_home(tmp_path / "home", split=3).queue)


def path_of(layout: Layout) -> Path:
    return Path(layout.queue, "marks")


def leave(layout: Layout, *marks: DoneMarks) -> list[int]:
    """Write records as a run does that is killed then; return their slots."""
    file = MarksFile(layout)
    slots = []
    for each in marks:
        slot = file.take()
        assert slot is not None
        file.write(slot, each)
        slots.append(slot)
    file.close()
    return slots


def queue(layout: Layout, envelope: EnvelopeIdentity) -> None:
    Path(layout.todo(envelope.message)).touch()


def test_a_new_file_is_of_the_owner_alone_and_has_its_space(layout: Layout) -> None:
    MarksFile(layout).close()

    found = path_of(layout).stat()
    assert (found.st_mode & 0o777, found.st_size) == (0o600, FILE_SIZE)
    assert found.st_blocks * 512 >= FILE_SIZE


def test_what_a_run_has_left_is_adopted_by_the_next_one_with_its_slot_and_bits(layout: Layout) -> None:
    slots = leave(layout, DoneMarks(ONE, 0b101), DoneMarks(TWO, 0b1))

    file = MarksFile(layout)

    assert sorted(file.left) == [ONE, TWO]
    assert file.adopt(ONE) == (slots[0], 0b101)
    assert file.adopt(ONE) is None
    assert file.left == [TWO]


def test_what_was_left_for_another_message_of_the_number_is_cleared(layout: Layout) -> None:
    """An original qmail has delivered it meanwhile, and does not know of the file."""
    slots = leave(layout, DoneMarks(ONE, 0b101), DoneMarks(TWO, 0b1))

    file = MarksFile(layout)

    assert file.adopt(LATER) is None
    assert file.left == [TWO]
    assert file.take() == slots[0]
    assert MarksFile(layout).left == [TWO]


def test_a_slot_with_a_record_that_was_left_is_not_taken_before_it_is_free(layout: Layout) -> None:
    first, second = leave(layout, DoneMarks(ONE, 1), DoneMarks(TWO, 1))
    file = MarksFile(layout)

    taken = [file.take() for _ in range(SLOTS - 2)]

    assert {first, second, None}.isdisjoint(taken) and len(set(taken)) == SLOTS - 2
    assert file.take() is None
    file.drop(ONE.message)
    assert file.take() == first
    assert file.left == [TWO]


def test_a_second_kill_before_a_message_was_adopted_loses_none_of_its_marks(layout: Layout) -> None:
    leave(layout, DoneMarks(ONE, 0b11))
    leave(layout, DoneMarks(TWO, 0b1))

    file = MarksFile(layout)

    assert [found and found[1] for found in map(file.adopt, (ONE, TWO))] == [0b11, 0b1]


def test_a_record_that_was_cleared_before_its_number_was_used_again_is_not_inherited(layout: Layout) -> None:
    """Births are as coarse as the file system's times, and the same person may send the same again."""
    (slot,) = leave(layout, DoneMarks(ONE, 1))
    file, left = MarksFile(layout), LeftMarks(layout)
    handle = open_marks(layout.queue)
    assert handle is not None and left.done(ONE) == 1

    clear_messages(handle, [TWO.message])
    assert left.done(ONE) == 1
    clear_messages(handle, [ONE.message])

    assert left.done(ONE) == 0
    assert file.adopt(ONE) is None
    assert file.take() == slot


def test_marks_of_messages_that_are_not_in_todo_are_cleared(layout: Layout) -> None:
    leave(layout, DoneMarks(ONE, 1), DoneMarks(TWO, 1))
    queue(layout, ONE)

    file = MarksFile(layout)

    assert file.clear_absent() == []
    assert file.left == [ONE]
    file.close()
    assert MarksFile(layout).left == [ONE]


def test_marks_of_a_message_that_cannot_be_looked_up_are_kept(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(layout, DoneMarks(ONE, 1))
    file = MarksFile(layout)

    def refuse(path: str) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "lstat", refuse)
        troubles = file.clear_absent()

    assert [trouble.errno for trouble in troubles] == [errno.EIO]
    assert file.left == [ONE]


def test_two_records_of_one_envelope_become_one_with_the_marks_of_both(layout: Layout) -> None:
    leave(layout, DoneMarks(ONE, 0b01), DoneMarks(ONE, 0b10))
    assert LeftMarks(layout).done(ONE) == 0b11

    MarksFile(layout).close()
    file = MarksFile(layout)

    assert file.adopt(ONE) == (0, 0b11)
    assert [file.take(), file.take()] == [1, 2]


def test_a_cleared_slot_is_free_and_has_no_record(layout: Layout) -> None:
    (slot,) = leave(layout, DoneMarks(ONE, 1))
    file = MarksFile(layout)
    assert file.adopt(ONE) == (slot, 1)

    file.clear(slot)

    assert file.take() == slot
    assert MarksFile(layout).left == []


def test_queue_clean_clears_slots_that_queue_send_then_frees(layout: Layout) -> None:
    file = MarksFile(layout)
    slot = file.take()
    assert slot is not None
    file.write(slot, DoneMarks(ONE, 1))
    handle = open_marks(layout.queue)
    assert handle is not None

    clear_slots(handle, [slot])
    file.release(slot)

    assert file.take() == slot
    assert MarksFile(layout).left == []


def test_the_records_of_a_group_are_written_and_cleared_and_no_others(layout: Layout) -> None:
    file = MarksFile(layout)
    slots = [file.take() for _ in range(12)]
    file.write_all({slot: DoneMarks(ONE._replace(message=slot), 1) for slot in slots if slot is not None})
    assert len(MarksFile(layout).left) == 12
    handle = open_marks(layout.queue)
    assert handle is not None
    clear_slots(handle, [9, 0, 2, 1, 7, 4])
    assert sorted(each.message for each in MarksFile(layout).left) == [3, 5, 6, 8, 10, 11]
    os.close(handle)
    file.close()


def test_marks_of_an_earlier_boot_do_not_count_and_do_not_come_back(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    leave(layout, DoneMarks(ONE, 1))
    boot = tmp_path / "boot"
    boot.write_text("another boot\n")
    monkeypatch.setattr(marks_file, "BOOT_ID", str(boot))

    assert LeftMarks(layout).done(ONE) == 0
    assert MarksFile(layout).left == []


@pytest.mark.parametrize(
    "content", [b"", b"x" * 100, b"\xff" * FILE_SIZE, HEADER, HEADER + b"y" * 99, bytes(3 * FILE_SIZE)]
)
def test_a_file_that_is_short_long_or_of_others_is_made_whole(layout: Layout, content: bytes) -> None:
    path_of(layout).write_bytes(content)
    assert len(LeftMarks(layout)) == 0

    slots = leave(layout, DoneMarks(ONE, 1))

    assert path_of(layout).stat().st_size == FILE_SIZE
    assert MarksFile(layout).adopt(ONE) == (slots[0], 1)


def test_records_below_a_foreign_header_do_not_count_when_the_file_is_made_whole(layout: Layout) -> None:
    leave(layout, DoneMarks(ONE, 1))
    with path_of(layout).open("r+b") as file:
        file.write(b"queue-suite marks 2\n")

    MarksFile(layout).close()

    assert MarksFile(layout).left == []


def test_without_a_file_nothing_was_left_and_nothing_is_made_by_a_reader(layout: Layout) -> None:
    assert LeftMarks(layout).done(ONE) == 0
    assert open_marks(layout.queue) is None
    assert not path_of(layout).exists()


def test_a_reader_of_what_was_left_keeps_no_descriptor(layout: Layout) -> None:
    leave(layout, DoneMarks(ONE, 0b1))
    before = len(os.listdir("/proc/self/fd"))
    readers = [LeftMarks(layout) for _ in range(100)]
    assert all(reader.done(ONE) == 0b1 for reader in readers)
    assert len(os.listdir("/proc/self/fd")) == before


def make_link(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"secret")
    path.symlink_to(other)


def make_hard_link(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"secret")
    path.hardlink_to(other)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (make_link, "symbolic link"),
        (make_hard_link, "2 names"),
        (lambda path: os.mkfifo(path), "not a regular file"),
        (lambda path: path.symlink_to("nowhere"), "symbolic link"),
    ],
    ids=["a link", "a hard link", "a FIFO", "a link to nothing"],
)
def test_what_is_no_file_of_the_queue_is_refused_and_not_changed(layout: Layout, make, why: str) -> None:  # type: ignore[no-untyped-def]
    make(path_of(layout))

    for use in (MarksFile, LeftMarks, lambda each: open_marks(each.queue)):
        with pytest.raises(UnsafePath, match=why):
            use(layout)

    other = path_of(layout).with_name("other")
    assert not other.exists() or other.read_bytes() == b"secret"


def test_a_directory_in_its_place_is_refused(layout: Layout) -> None:
    path_of(layout).mkdir()

    with pytest.raises(OSError):
        MarksFile(layout)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_owner_is_refused(layout: Layout) -> None:
    leave(layout, DoneMarks(ONE, 1))
    os.chown(path_of(layout), 12345, 12345)

    with pytest.raises(UnsafePath, match="uid 12345"):
        MarksFile(layout)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_disk_that_refuses_is_an_error_and_the_slot_stays_taken(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    (slot,) = leave(layout, DoneMarks(ONE, 1))
    file = MarksFile(layout)
    assert file.adopt(ONE) == (slot, 1)

    def refuse(handle: int, data: bytes, at: int) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", refuse)
        with pytest.raises(OSError) as found:
            file.write(slot, DoneMarks(ONE, 3))
        assert found.value.errno == code
        with pytest.raises(OSError):
            file.clear(slot)

    assert file.take() != slot
    file.write(slot, DoneMarks(ONE, 3))
    assert LeftMarks(layout).done(ONE) == 3


def test_a_file_for_which_there_is_no_space_is_an_error_at_start(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)

    with pytest.raises(OSError, match="No space left"):
        MarksFile(layout)
