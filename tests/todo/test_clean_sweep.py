"""The sweep: what injectors that died have left goes after 36 hours, and nothing else does."""

import os
import time
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import Presence, is_there, open_layout
from queue_base.queue.marks_file import LeftMarks, MarksFile
from queue_base.queue.sightings import SEEN_SECONDS, Sightings
from queue_clean.main import answer
from queue_clean.sweep import OLD, sweep
from queue_wire.files.marks import DoneMarks, identify
from queue_wire.pipes.cleaning import REMOVED, TODO, TROUBLE, pack_clean
from support.processes.suite import wait_until
from support.queues.home import make_home
from support.queues.queued import classified_message, put_mess, queue_message
from support.send.piped import Piped
from support.tools import need

# No program can set a ctime, so the tests move the clock that the sweep is given.
LATER = OLD + 60


def swept(home: Home, age: float = LATER) -> int:
    """Sweep as if `age` seconds had passed; return how many files or messages went."""
    return sum(swept.removed for swept in sweep(open_layout(home.queue), time.time() + age))


def put_mess_anywhere(home: Home) -> int:
    """Make an S2 without pid/; return its id."""
    layout = open_layout(home.queue)
    path = Path(home.queue, "mess", "new")
    path.write_bytes(b"x")
    message = path.stat().st_ino
    path.rename(layout.mess(message))
    return message


@pytest.mark.parametrize("flat", [False, True])
def test_messages_that_were_never_queued_are_swept_after_36_hours(tmp_path: Path, flat: bool) -> None:
    home = make_home(tmp_path / "home", flat=flat)
    layout = open_layout(home.queue)
    alone, with_intd = put_mess(layout), put_mess(layout)
    Path(layout.intd(with_intd)).write_bytes(b"u1\0p1\0Fa@b\0Tc")
    assert [Presence(layout, message).state() for message in (alone, with_intd)] == [2, 3]
    assert swept(home, OLD - 60) == 0
    assert [Presence(layout, message).state() for message in (alone, with_intd)] == [2, 3]
    assert swept(home) == 2
    assert [Presence(layout, message).state() for message in (alone, with_intd)] == [1, 1]


def test_the_records_of_what_is_swept_are_cleared_first_and_no_others(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    layout = open_layout(home.queue)
    envelopes = [identify(each, 5, b"x") for each in (put_mess(layout), queue_message(home, [b"b@example.net"]))]
    marks = MarksFile(layout)
    for envelope in envelopes:
        slot = marks.take()
        assert slot is not None
        marks.write(slot, DoneMarks(envelope, 1))
    marks.close()
    assert swept(home) == 1
    assert [LeftMarks(layout).done(each) for each in envelopes] == [0, 1]


def test_nothing_is_swept_whose_records_cannot_be_cleared(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    layout = open_layout(home.queue)
    message = put_mess(layout)
    os.mkfifo(home.queue + "/marks")
    troubles = [found.trouble for found in sweep(layout, time.time() + LATER) if found.trouble]
    assert len(troubles) == 1 and f"{home.queue}/marks" in troubles[0]
    assert Presence(layout, message).state() == 2


def test_a_message_whose_name_changed_lately_is_not_old_whatever_its_mtime_says(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    layout = open_layout(home.queue)
    message = put_mess(layout)
    os.utime(layout.mess(message), (1000, 1000))
    assert swept(home, 0) == 0
    assert Presence(layout, message).state() == 2


@pytest.mark.parametrize("flat", [False, True])
def test_a_queued_and_a_classified_message_are_never_swept(tmp_path: Path, flat: bool) -> None:
    home = make_home(tmp_path / "home", flat=flat)
    layout = open_layout(home.queue)
    queued = queue_message(home, [b"b@example.net"])
    without_intd = queue_message(home, [b"b@example.net"])
    os.unlink(layout.intd(without_intd))
    classified = classified_message(home, remote=[b"b@example.net"])
    done = classified_message(home)
    assert swept(home, 100 * OLD) == 0
    assert [Presence(layout, message).state() for message in (queued, without_intd, classified, done)] == [4, 4, 5, 5]


def test_a_message_in_no_state_is_left_to_a_person(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    layout = open_layout(home.queue)
    message = put_mess(layout)
    Path(layout.hashed("remote", message)).write_bytes(b"Tb@example.net\0")
    assert swept(home) == 0
    assert os.path.exists(layout.mess(message))


def test_a_step_of_the_clock_removes_nothing_of_an_injector_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home(tmp_path / "home", split=3)
    layout = open_layout(home.queue)
    message = put_mess(layout)
    Path(home.queue, "pid", "1.2.3").touch()
    sightings, boot = Sightings(), time.clock_gettime(time.CLOCK_BOOTTIME)

    def removed(seconds: float) -> int:
        monkeypatch.setattr(time, "clock_gettime", lambda _: boot + seconds)
        return sum(each.removed for each in sweep(layout, time.time() + LATER, (), sightings))

    assert removed(0) == 0 and len(sightings) == 2
    assert removed(SEEN_SECONDS - 1) == 0
    other = put_mess(layout)
    assert removed(SEEN_SECONDS) == 2
    assert [Presence(layout, each).state() for each in (message, other)] == [1, 2]
    queued = queue_message(home, [b"b@example.net"])
    assert removed(3 * SEEN_SECONDS) == 1
    assert [Presence(layout, each).state() for each in (queued, other)] == [4, 1]
    assert removed(9 * SEEN_SECONDS) == 0 and len(sightings) == 0


def test_old_names_in_pid_go_and_young_ones_and_other_files_stay(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    Path(home.queue, "pid", "123.456.1").write_bytes(b"half a mess")
    note = Path(open_layout(home.queue).directories("mess")[0], "README")
    note.write_bytes(b"a person's file")
    assert swept(home, 0) == 0
    assert swept(home) == 1
    assert os.listdir(Path(home.queue, "pid")) == []
    assert note.exists()


def test_a_directory_that_cannot_be_read_does_not_end_the_sweep(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    layout = open_layout(home.queue)
    Path(home.queue, "pid").rmdir()
    message = put_mess_anywhere(home)
    assert swept(home) == 1
    assert Presence(layout, message).state() == 1


def test_the_daemon_sweeps_when_it_starts_and_serves_requests_all_the_same(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    trace = tmp_path / "trace"
    with Piped("queue-clean", home, wrapper=(need("strace"), "-f", "-o", str(trace), "-e", "trace=openat")) as clean:
        wait_until(
            lambda: trace.exists() and "queue/mess/2" in trace.read_text(), why="the sweep of the last directory"
        )
        clean.write(b"4711\0")
        assert clean.take(1) == b"+"


def test_the_sweep_leaves_messages_whose_removal_will_be_asked_for_again(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    layout = open_layout(home.queue)
    ended, other = queue_message(home, [b"b@example.net"]), put_mess(layout)
    marks = Path(home.queue, "marks")
    marks.mkdir()  # Its records cannot be cleared.
    failing: set[int] = set()
    assert answer(layout, [pack_clean(ended, TODO, 3)[:-1]], failing) == TROUBLE
    assert Presence(layout, ended).state() == 2
    marks.rmdir()
    assert sum(swept.removed for swept in sweep(layout, time.time() + LATER, failing)) == 1
    assert not is_there(layout.mess(other))
    assert answer(layout, [pack_clean(ended, TODO, 3)[:-1]], failing) == REMOVED
    assert not failing
