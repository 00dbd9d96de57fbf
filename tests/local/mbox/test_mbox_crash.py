"""kill -9 of an mbox delivery at each of its system calls, and what the next delivery makes of it."""

import os
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from queue_local.mbox.dotlock import STALE, Journal, fold, take_dotlock
from support.local.mbox import HEAD, deliver, delivering, finish, payloads, start
from support.tools import need

FIRST = b"Subject: first\n\n1\n"
# Two writes, so that a kill between them leaves half of it. Few lines, because Python's mailbox reads line by line.
LINE = b"x" * 900 + b"\n"
BODY = b"Subject: killed\n\n" + (b"From here\n" + LINE) * 600
KILLED = b"Subject: killed\n\n" + (b">From here\n" + LINE) * 600
LAST = b"Subject: last\n\n3\n"
ALARM = """
import signal
from queue_base.errors import Temporary
def late(*_):
    raise Temporary("Timeout on delivery")
signal.signal(signal.SIGUSR2, late)
"""
# The calls that change something on the disk, beside an openat that makes a file.
CHANGING = {"write", "pwrite64", "fsync", "ftruncate", "link", "linkat", "unlink", "utimensat"}
_CALL = re.compile(r"(\w+)\(")


def traced(box: Path, message: Path, fault: str = "", name: Path | None = None) -> tuple[int, list[str]]:
    """Deliver a message in a process under strace, which looks at the mbox and its lock; return exit and calls.

    `name` is the name that it is delivered to, where that is a link.
    """
    trace = box.parent / "trace"
    names = {box, name or box}
    watched = [*names, *(f"{each}.lock" for each in names), *{each.parent for each in names}]
    paths = [word for path in watched for word in ("-P", str(path))]
    words = [need("strace"), "-q", "-y", "-s", "40", "-o", str(trace), *paths, *(["-e", fault] if fault else [])]
    process = start([*words, *delivering(name or box, message)])
    process.communicate(timeout=60)
    return process.returncode, trace.read_text("utf-8", "replace").splitlines()


def points(lines: list[str], every: bool = True) -> list[tuple[str, int]]:
    """Return each call of a trace as its name and number; or those that change something, and the last."""
    counts: Counter[str] = Counter()
    found, changing = [], []
    for line in lines:
        if call := _CALL.match(line):
            counts[call[1]] += 1
            found.append((call[1], counts[call[1]]))
            if call[1] in CHANGING or "O_CREAT" in line:
                changing.append(found[-1])
    return found if every else [*changing, *(found[-1:] if found[-1] not in changing else [])]


# strace sends both at the entry of the call. KILL ends it before, USR1 after: a call on the disk goes on to its end.
# After a call all is as it is before the next one that changes something.
@pytest.mark.parametrize(
    ("number", "every"),
    [
        (signal.SIGKILL, False),
        pytest.param(signal.SIGKILL, True, marks=pytest.mark.exhaustive),
        pytest.param(signal.SIGUSR1, True, marks=pytest.mark.exhaustive),
    ],
    ids=["before each that changes something", "before", "after"],
)
@pytest.mark.parametrize(
    ("new", "name"),
    [(False, "place/box"), (True, "place/box"), (False, "links/link")],
    ids=["an old file", "a new file", "a link"],
)
@pytest.mark.long
def test_a_kill_at_any_call_leaves_nothing_half_after_the_next_delivery(
    tmp_path: Path, number: signal.Signals, every: bool, new: bool, name: str
) -> None:
    message, box = tmp_path / "killed", tmp_path / "place/box"
    message.write_bytes(BODY)
    box.parent.mkdir()
    (tmp_path / "links").mkdir()
    (tmp_path / "links/link").symlink_to("../place/box")
    before = [] if new else [FIRST]
    for data in before:
        deliver(box, data, tmp_path)
    start_bytes = None if new else box.read_bytes()
    code, lines = traced(box, message, name=tmp_path / name)
    assert code == 0 and payloads(box) == [*before, KILLED]
    at = points(lines)
    calls = {call for call, _ in at}
    assert {"openat", "write", "fsync", "flock", "fcntl", "unlink", "close"} <= calls and len(at) > 15
    halves = 0
    for call, count in points(lines, every):
        box.unlink()
        if start_bytes is not None:
            box.write_bytes(start_bytes)
        fault = f"inject={call}:signal={number.name}:when={count}"
        code, lines = traced(box, message, fault, tmp_path / name)
        assert "killed by" in lines[-1], f"{call} {count} was not reached"
        if not box.exists():
            box.touch()
        halves += payloads(box) not in (before, [*before, KILLED])
        deliver(tmp_path / name, LAST, tmp_path)
        found = payloads(box)
        assert found in ([*before, LAST], [*before, KILLED, LAST]), f"{call} {count}: {len(found)} messages"
        assert sorted(os.listdir(box.parent)) == ["box", "trace"] and os.listdir(tmp_path / "links") == ["link"]
    assert halves, "no kill left half of a message, so nothing was tested"


def cut(box: Path, journal: Journal) -> None:
    """Leave a lock file with a journal, as a delivery that was killed."""
    lock = take_dotlock(f"{box}.lock", alone=True)
    assert lock is not None
    lock.write(journal)
    lock.close(remove=False)


def test_what_somebody_else_appended_to_a_cut_message_is_kept(tmp_path: Path) -> None:
    box = tmp_path / "box"
    deliver(box, FIRST, tmp_path)
    length = box.stat().st_size
    cut(box, Journal(length, 1000, 7, fold(HEAD)))
    piece = HEAD + b"Subject: half\n\nof a li"
    other = b"From eve@far.example Fri Nov 20 19:06:26 2026\nSubject: kept\n\n2\n\n"
    box.write_bytes(box.read_bytes() + piece + other)
    before = box.read_bytes()
    deliver(box, LAST, tmp_path)
    assert box.read_bytes() == before + HEAD + LAST + b"\n"


def test_a_message_that_is_whole_stays_where_its_lock_file_came_back(tmp_path: Path) -> None:
    # The removal of a lock file is not synced, so a power cut may undo it after the message was reported.
    box = tmp_path / "box"
    deliver(box, FIRST, tmp_path)
    length = box.stat().st_size
    deliver(box, b"whole\n", tmp_path)
    text = box.read_bytes()[length:]
    cut(box, Journal(length, len(text), fold(text), fold(HEAD)))
    deliver(box, LAST, tmp_path)
    assert payloads(box) == [FIRST, b"whole\n", LAST]


def test_a_message_whose_bytes_never_reached_the_disk_goes(tmp_path: Path) -> None:
    # A power cut may keep the length of a file that was not synced, and zeros in the place of its bytes.
    box = tmp_path / "box"
    deliver(box, FIRST, tmp_path)
    length = box.stat().st_size
    text = HEAD + b"lost\n\n"
    box.write_bytes(box.read_bytes() + text[:10] + bytes(len(text) - 10))
    cut(box, Journal(length, len(text), fold(text), fold(HEAD)))
    deliver(box, LAST, tmp_path)
    assert payloads(box) == [FIRST, LAST]


@pytest.mark.parametrize("length", [0, 5, 10_000])
def test_a_journal_of_a_file_that_has_changed_since_does_nothing(tmp_path: Path, length: int) -> None:
    box = tmp_path / "box"
    deliver(box, FIRST, tmp_path)
    cut(box, Journal(length, 900, 7, 7))
    deliver(box, LAST, tmp_path)
    assert payloads(box) == [FIRST, LAST]


def test_a_lock_of_ours_whose_maker_may_live_is_waited_for_without_flock(tmp_path: Path) -> None:
    path = f"{tmp_path}/box.lock"
    lock = take_dotlock(path, alone=False)
    assert lock is not None and take_dotlock(path, alone=False) is None
    os.utime(path, (1, 1))
    assert STALE < 10_000
    taken = take_dotlock(path, alone=False)
    assert taken is not None and os.stat(path).st_mtime > 1
    taken.close()
    lock.close()
    assert not os.path.exists(path)


def test_a_timeout_in_the_middle_of_a_write_truncates_back(tmp_path: Path) -> None:
    box, message = tmp_path / "box", tmp_path / "killed"
    deliver(box, FIRST, tmp_path)
    before = box.read_bytes()
    message.write_bytes(BODY)
    command = delivering(box, message)
    command[2] = ALARM + command[2]
    words = [need("strace"), "-q", "-o", str(tmp_path / "trace"), "-P", str(box)]
    process = start([*words, "-e", "inject=write:signal=USR2:when=1", *command])
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 1 and said == b"Timeout on delivery\n"
    assert box.read_bytes() == before and not Path(f"{box}.lock").exists()
    finish(start(delivering(box, message)))
    assert payloads(box) == [FIRST, KILLED]
