"""queue-clean as a process: what it removes, in which order, and what it answers."""

import os
import re
import time
from collections import Counter
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import Presence, open_layout
from queue_base.queue.marks_file import LeftMarks, MarksFile
from queue_wire.files.marks import DoneMarks, identify
from queue_wire.pipes import cleaning
from queue_wire.pipes.cleaning import NOT_UNDERSTOOD, REMOVED, TROUBLE, pack_clean
from support.faults.strace import read_trace, strace_command
from support.processes.suite import wait_until
from support.queues.home import make_home
from support.queues.inflow import patched_programs
from support.queues.queued import classified_message, put_mess, queue_message
from support.send.piped import Piped
from support.tools import need

REMOTE = [b"b@example.net"]
FAILED = b"<b@example.net>:\nno\n\n"


def finished(home: Home) -> int:
    """Put in a message that has every file that a finished one may have; return its id."""
    message = classified_message(home, local=[b"c@me.example.org"], remote=REMOTE, bounce=FAILED)
    Path(open_layout(home.queue).intd(message)).write_bytes(b"old")
    return message


def files(home: Home) -> list[str]:
    """Return the files in queue/ but those in lock/."""
    top = Path(home.queue)
    return sorted(
        str(path.relative_to(top)) for path in top.rglob("*") if path.is_file() and path.parent.name != "lock"
    )


def test_every_file_of_a_message_goes_and_no_other(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    message = finished(home)
    before = set(files(home))
    other = finished(home)
    with Piped("queue-clean", home) as clean:
        clean.write(pack_clean(message))
        assert clean.take(1) == REMOVED
        assert before.isdisjoint(files(home))
        assert len(files(home)) == len(before)
        assert Presence(open_layout(home.queue), other).bounce
        assert clean.end() == 0


def test_a_flat_queue_is_cleaned_too(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", flat=True)
    message = finished(home)
    with Piped("queue-clean", home) as clean:
        clean.write(pack_clean(message))
        assert clean.take(1) == REMOVED
    assert files(home) == []


def test_the_files_go_in_the_order_that_a_crash_cannot_turn_against_anybody(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    message = finished(home)
    trace = tmp_path / "trace"
    with Piped("queue-clean", home, wrapper=tuple(strace_command(trace, []))) as clean:
        clean.write(pack_clean(message))
        assert clean.take(1) == REMOVED
        assert clean.end() == 0
    steps = []
    for call in read_trace(trace):
        if call.name == "unlink" and not call.began and call.path(0).endswith(str(message)):
            steps.append(call.path(0).removeprefix(home.queue + "/").split("/")[0])
        elif call.name in ("fsync", "syncfs") and not call.began:
            steps.append("sync " + call.descriptor(0)[1].removeprefix(home.queue + "/").split("/")[0])
    # todo/ and intd/ are synced once, before the first removal.
    first = next(place for place, step in enumerate(steps) if not step.startswith("sync"))
    assert set(steps[:first]) == {"sync todo", "sync intd"}
    steps = steps[first:]
    info, mess = steps.index("info"), steps.index("mess")
    assert set(steps[:info]) == {
        "intd",
        "local",
        "remote",
        "bounce",
        "sync intd",
        "sync local",
        "sync remote",
        "sync bounce",
        "sync pid",
    }
    assert all(steps.index(kind) < steps.index(f"sync {kind}") < info for kind in ("intd", "local", "remote", "bounce"))
    assert steps[info:mess] == ["info", "sync info"]
    assert steps[mess:] == ["mess"]


def test_a_step_that_fails_keeps_the_later_files_and_may_be_asked_for_again(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    layout = open_layout(home.queue)
    message, good = finished(home), finished(home)
    blocked = Path(layout.hashed("info", message))
    blocked.unlink()
    blocked.mkdir()
    with Piped("queue-clean", home) as clean:
        clean.write(pack_clean(message) + pack_clean(good))
        assert clean.take(2) == TROUBLE + REMOVED
        assert b"warning: unable to remove " + os.fsencode(blocked) in clean.complaint()
        assert os.path.exists(layout.mess(message))
        assert not os.path.exists(layout.hashed("local", message))
        blocked.rmdir()
        clean.write(pack_clean(message))
        assert clean.take(1) == REMOVED
    assert files(home) == []


def test_a_group_goes_even_where_it_cannot_have_its_list(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    message = finished(home)
    code = """import os
real = os.open
def opened(path, flags, *more, **named):
    if flags & os.O_CREAT and flags & os.O_EXCL:
        raise OSError(122, os.strerror(122), path)
    return real(path, flags, *more, **named)
os.open = opened"""
    with Piped("queue-clean", home, programs=patched_programs(tmp_path, queue_clean=code)) as clean:
        clean.write(pack_clean(message))
        assert clean.take(1) == REMOVED
    assert files(home) == []


def test_of_a_message_whose_files_are_known_no_others_are_looked_for(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    remote, local = classified_message(home, remote=REMOTE), classified_message(home, local=[b"c@me.example.org"])
    both = classified_message(home, local=[b"c@me.example.org"], remote=REMOTE)
    requests = [(remote, cleaning.REMOTE), (local, cleaning.LOCAL), (both, cleaning.BOTH)]
    trace = tmp_path / "trace"
    with Piped("queue-clean", home, wrapper=tuple(strace_command(trace, []))) as clean:
        clean.write(b"".join(pack_clean(*request) for request in requests))
        assert clean.take(3) == REMOVED * 3
        assert clean.end() == 0
    assert files(home) == []
    calls = [call for call in read_trace(trace) if call.name == "unlink" and not call.began]
    removed = Counter(call.path(0).rpartition("/")[2] for call in calls)
    assert [removed[str(message)] for message, _ in requests] == [3, 3, 4]


def test_requests_of_half_a_second_are_one_group(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    messages = [finished(home) for _ in range(40)]
    trace = tmp_path / "trace"
    with Piped("queue-clean", home, wrapper=tuple(strace_command(trace, []))) as clean:
        for message in messages:
            clean.write(pack_clean(message))
            time.sleep(0.005)
        assert clean.take(40) == REMOVED * 40
        assert clean.end() == 0
    lists = [call for call in read_trace(trace) if call.name == "unlink" and "/pid/removing." in call.path(0)]
    assert len(lists) <= 4


def test_the_requests_of_a_group_are_read_together(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    first, second = ([finished(home) for _ in range(40)] for _ in range(2))
    with Piped("queue-clean", home) as clean:
        clean.write(b"".join(map(pack_clean, first)))  # After these no module is left to be imported.
        assert clean.take(40) == REMOVED * 40
        before = _reads(clean.process.pid)
        for message in second:
            clean.write(pack_clean(message))
            time.sleep(0.002)
        assert clean.take(40) == REMOVED * 40
        assert _reads(clean.process.pid) - before < 10
        assert clean.end() == 0


def test_requests_that_do_not_fit_into_the_pipe_do_not_wait_for_the_next_group(tmp_path: Path) -> None:
    # Of these a pipe holds fewer than a group has. With a wait for each pipe, they would take six times two seconds.
    home = make_home(tmp_path / "home", split=3)
    requests = [pack_clean(12_345_678 + number, cleaning.TODO, 12_345, 10**15) for number in range(12_000)]
    code = "import queue_clean.main\nqueue_clean.main.GROUP_SECONDS = 2.0"
    with Piped("queue-clean", home, programs=patched_programs(tmp_path, queue_clean=code)) as clean:
        clean.write(requests[0])
        assert clean.take(1) == REMOVED
        begun = time.monotonic()
        clean.write(b"".join(requests[1:]))
        assert clean.take(11_999) == REMOVED * 11_999
        assert time.monotonic() - begun < 8.0
        assert clean.end() == 0


def _reads(pid: int) -> int:
    """Return how often a process has called read(2) and its like."""
    counts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(counts["syscr"])


def test_a_first_step_that_fails_leaves_info_as_well(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    layout = open_layout(home.queue)
    message = classified_message(home, remote=REMOTE)
    Path(layout.bounce(message)).mkdir()
    with Piped("queue-clean", home) as clean:
        clean.write(pack_clean(message))
        assert clean.take(1) == TROUBLE
    assert Presence(layout, message).state() == 5


def test_answers_come_in_the_order_of_the_requests(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    good = finished(home)
    blocked = finished(home)
    Path(open_layout(home.queue).bounce(blocked)).unlink()
    Path(open_layout(home.queue).bounce(blocked)).mkdir()
    requests = [b"x\0", pack_clean(blocked), b"\0", pack_clean(good), b"007\0", pack_clean(blocked), pack_clean(4711)]
    with Piped("queue-clean", home) as clean:
        clean.write(b"".join(requests))
        assert clean.take(len(requests)) == b"x!x+x!+"
        assert NOT_UNDERSTOOD == b"x"
        for request in requests:
            clean.write(request)
        assert clean.take(len(requests)) == b"x!x+x!+"


def test_a_message_that_has_gone_already_is_removed(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    with Piped("queue-clean", home) as clean:
        clean.write(pack_clean(123456789))
        assert clean.take(1) == REMOVED


def test_a_group_shares_its_syncs(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    messages = [finished(home) for _ in range(100)]
    trace = tmp_path / "trace"
    with Piped("queue-clean", home, wrapper=tuple(strace_command(trace, []))) as clean:
        clean.write(b"".join(map(pack_clean, messages)))
        assert clean.take(100) == REMOVED * 100
        assert clean.end() == 0
    assert files(home) == []
    syncs = [call for call in read_trace(trace) if call.name in ("fsync", "syncfs") and not call.began]
    # With the three directories each of todo/ and intd/, at the start.
    assert len(syncs) <= 20 + 6


def test_what_was_asked_for_is_removed_even_when_nobody_reads_the_answers(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    first, second = finished(home), finished(home)
    with Piped("queue-clean", home) as clean:
        clean.write(pack_clean(4711))
        assert clean.take(1) == REMOVED
        clean.stdout.close()
        # In two pieces, of which the second comes after an answer that could not be written.
        clean.write(pack_clean(first))
        wait_until(lambda: not Presence(open_layout(home.queue), first).mess, why="the first removal")
        clean.write(pack_clean(second))
        assert clean.end() == 0
    assert files(home) == []


def test_the_end_of_its_input_ends_it(tmp_path: Path) -> None:
    with Piped("queue-clean", make_home(tmp_path / "home", split=3)) as clean:
        assert clean.end() == 0


def line_of(message: int, found: os.stat_result) -> bytes:
    """Return the line of a message in a list of removals."""
    return b"%d %d %d %d\n" % (message, found.st_mtime_ns, found.st_ctime_ns, found.st_size)


def write_list(home: Home, data: bytes, when: int | None = None) -> None:
    """Write a list of removals at a time in nanoseconds since the epoch, by default a second from now."""
    path = Path(home.queue, "pid", "removing.99")
    path.write_bytes(data)
    when = time.time_ns() + 10**9 if when is None else when
    os.utime(path, ns=(when, when))


def test_a_message_that_was_written_when_the_list_was_made_may_be_another_one_by_now(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    layout = open_layout(home.queue)
    message = put_mess(layout)
    found = os.stat(layout.mess(message))
    for line in line_of(message, found), b"%d %d\n" % (message, found.st_mtime_ns // 1000):
        write_list(home, line, found.st_ctime_ns)
        with Piped("queue-clean", home) as clean:
            clean.write(b"x\0")
            assert clean.take(1) == NOT_UNDERSTOOD
            assert Presence(layout, message).state() == 2


def test_the_record_of_a_message_whose_removal_is_finished_is_cleared_first(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    layout = open_layout(home.queue)
    message, other = put_mess(layout), put_mess(layout)
    marks = MarksFile(layout)
    envelopes = [identify(each, 5, b"x") for each in (message, other)]
    for envelope in envelopes:
        slot = marks.take()
        assert slot is not None
        marks.write(slot, DoneMarks(envelope, 1))
    marks.close()
    write_list(home, line_of(message, os.stat(layout.mess(message))))
    with Piped("queue-clean", home) as clean:
        clean.write(b"x\0")
        assert clean.take(1) == NOT_UNDERSTOOD
    assert Presence(layout, message).state() == 1
    assert [LeftMarks(layout).done(each) for each in envelopes] == [0, 1]


def test_what_was_being_removed_when_it_died_is_removed_at_the_next_start(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    layout = open_layout(home.queue)
    gone, injected, classified = put_mess(layout), put_mess(layout), classified_message(home, remote=REMOTE)
    # An injector has got the number of the last one since.
    seen = {each: os.stat(layout.mess(each)) for each in (gone, classified, injected)}
    lines = [line_of(each, seen[each]) for each in (gone, classified)]
    lines += [line_of(injected, seen[injected])[:-2] + b"\n", b"4711 5\n", b"garbage\n", b"%d" % injected]
    write_list(home, b"".join(lines))
    Path(home.queue, "pid", "removing.by-hand").touch()
    with Piped("queue-clean", home) as clean:
        clean.write(b"x\0")
        assert clean.take(1) == NOT_UNDERSTOOD  # It has started.
        assert Presence(layout, gone).state() == 1
        # Somebody may be injecting this one; that one is queue-send's to finish.
        assert Presence(layout, injected).state() == 2
        assert Presence(layout, classified).state() == 5
        assert [path.name for path in Path(home.queue, "pid").iterdir()] == ["removing.by-hand"]


def test_a_message_half_removed_by_a_killed_queue_clean_goes_at_the_next_start(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    message = finished(home)
    # It is killed as it enters the unlink of mess/, its seventh; the first is that of an older list.
    kill = (need("strace"), "-o", "/dev/null", "-e", "trace=unlink", "-e", "inject=unlink:signal=KILL:when=7")
    with Piped("queue-clean", home, wrapper=kill) as clean:
        clean.write(pack_clean(message))
        wait_until(lambda: clean.process.poll() is not None, why="queue-clean to be killed")
    assert not Presence(open_layout(home.queue), message).info
    with Piped("queue-clean", home):
        wait_until(lambda: files(home) == [], why="the rest to be removed")


@pytest.mark.parametrize("call, number", [("fsync", 5), ("pwrite64", 1), ("unlink", 5), ("unlink", 6)])
def test_unclassified_messages_half_removed_by_a_killed_queue_clean_go_at_the_next_start(
    tmp_path: Path, call: str, number: int
) -> None:
    """It is killed while todo/ is synced, while a record is cleared, before the first mess/ and after it."""
    # So few directories are synced by one thread, of which strace counts the calls; the first four syncs are at start.
    home = make_home(tmp_path / "home", split=2)
    layout = open_layout(home.queue)
    messages = [queue_message(home, REMOTE) for _ in range(2)]
    envelopes = [
        identify(each, os.stat(layout.mess(each)).st_mtime_ns // 1000, Path(layout.todo(each)).read_bytes())
        for each in messages
    ]
    marks = MarksFile(layout)
    for slot, envelope in enumerate(envelopes):
        assert marks.take() == slot
        marks.write(slot, DoneMarks(envelope, 1))
    marks.close()
    late = max(os.stat(layout.mess(each)).st_ctime_ns for each in messages)
    clock = tmp_path / "clock"  # The kernel's clock for files, which is behind by a tick.
    wait_until(lambda: clock.write_bytes(b"x") and os.stat(clock).st_mtime_ns > late, why="the next tick")
    trace = tmp_path / "trace"
    kill = (need("strace"), "-y", "-o", str(trace), "-e", f"inject={call}:signal=KILL:when={number}")
    with Piped("queue-clean", home, wrapper=kill) as clean:
        requests = [
            pack_clean(each.message, cleaning.TODO, slot, each.birth) for slot, each in enumerate(envelopes)
        ]
        clean.write(b"".join(requests))
        wait_until(lambda: clean.process.poll() is not None, why="queue-clean to be killed")
    assert {2} <= {Presence(layout, each).state() for each in messages} <= {1, 2}
    with Piped("queue-clean", home):
        wait_until(lambda: files(home) == ["marks"], why="the rest to be removed")
    assert [LeftMarks(layout).done(each) for each in envelopes] == [0, 0]


def test_the_list_of_messages_that_were_not_classified_is_not_synced_and_looks_at_none_of_them(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    messages = [queue_message(home, REMOTE) for _ in range(3)]
    trace = tmp_path / "trace"
    with Piped("queue-clean", home, wrapper=tuple(strace_command(trace, []))) as clean:
        clean.write(b"".join(pack_clean(each, cleaning.TODO, None, 1) for each in messages))
        assert clean.take(3) == REMOVED * 3
        assert clean.end() == 0
    calls = list(read_trace(trace))
    assert not [call for call in calls if call.name == "fsync" and "/pid" in call.descriptor(0)[1]]
    # The sweep, which may have begun, looks at the directories.
    looks = [call.shown() for call in calls if "stat" in call.name and call.arguments]
    assert not [look for look in looks if re.search(r"/mess/\d+/\d+", look)]
    assert [call.path(0) for call in calls if call.name == "unlink" and "/pid/" in call.path(0)]
    assert files(home) == []


def test_an_unfinished_removal_is_synced_before_the_message_goes(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    layout = open_layout(home.queue)
    message = put_mess(layout)
    write_list(home, line_of(message, os.stat(layout.mess(message))))
    trace = tmp_path / "trace"
    with Piped("queue-clean", home, wrapper=tuple(strace_command(trace, []))) as clean:
        assert clean.end() == 0
    steps = [
        "mess" if call.name == "unlink" else call.descriptor(0)[1].removeprefix(home.queue + "/").split("/")[0]
        for call in read_trace(trace)
        if (call.name == "unlink" and call.path(0) == layout.mess(message)) or (call.name == "fsync" and not call.began)
    ]
    assert {"info", "local", "remote"} <= set(steps[: steps.index("mess")])


def test_lists_that_are_none_do_not_stop_it(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    message = put_mess(open_layout(home.queue))
    pid = Path(home.queue) / "pid"
    os.mkfifo(pid / "removing.1")
    (pid / "removing.2").mkdir()
    (pid / "removing.3").symlink_to("/dev/zero")
    lines = [b"\0" * 100_000, b"%d" % message, b"%d 5" % message, b"%d %s" % (message, b"9" * 5000), b"-1 1"]
    (pid / "removing.4").write_bytes(b"\n".join(lines))
    with Piped("queue-clean", home) as clean:
        other = finished(home)
        clean.write(pack_clean(other))
        assert clean.take(1) == REMOVED
        assert Path(open_layout(home.queue).mess(message)).exists()
        assert clean.end() == 0
