"""The programs under the crash model: what a power cut may leave at any moment of a real run is a good queue."""

import os
import sys
from pathlib import Path

import pytest

from queue_wire.pipes.cleaning import pack_clean
from support.faults.crash.crash_checks import Message, check_queue
from support.faults.crash.crash_model import Crash, CrashModel
from support.faults.crash.crash_place import (
    BODY,
    ENVELOPE,
    GONE_OR_SWEPT,
    MIXED,
    NAMED,
    WRITER,
    Place,
    announced,
    classified_until_cleaned,
    classified_when_announced,
    dropped_or_queued,
    gone_when_answered,
    make_file,
    nobody_is_forgotten,
    queued_when_exit_code_is_0,
)
from support.faults.traced import HEAD, run_traced
from support.plugins.amount import amount
from support.processes.suite import program


@pytest.mark.parametrize("flat", [False, True], ids=["hashed", "flat"])
def test_what_queue_enqueue_accepts_survives_every_power_cut(tmp_path: Path, flat: bool) -> None:
    place = Place(tmp_path, flat)

    assert place.run("queue-enqueue", stdin=BODY, envelope=ENVELOPE) == 0
    assert check_queue(place.model, place.layout, queued_when_exit_code_is_0(1)) > 15


def test_a_message_of_many_writes_survives_every_power_cut(tmp_path: Path) -> None:
    place = Place(tmp_path)

    assert place.run("queue-enqueue", stdin=b"x" * 200000 + b"\n" + BODY, envelope=ENVELOPE) == 0
    assert check_queue(place.model, place.layout, queued_when_exit_code_is_0(1)) > 20


@pytest.mark.parametrize("writer", [WRITER, NAMED, MIXED], ids=["nameless", "named", "some nameless"])
@pytest.mark.parametrize("count", [3, pytest.param(9, marks=pytest.mark.exhaustive)])
def test_a_group_of_messages_survives_every_power_cut(tmp_path: Path, count: int, writer: str) -> None:
    place = Place(tmp_path)

    place.enqueue(count, writer)

    assert check_queue(place.model, place.layout, queued_when_exit_code_is_0(count), most=128) > 200


# A process that was killed when it had made the directory.
POSTMAN_MADE = f"{WRITER}\nimport os; os.mkdir(sys.argv[1] + '/queue/postman')\n"


@pytest.mark.parametrize("writer", [WRITER, NAMED, POSTMAN_MADE], ids=["nameless", "named", "postman-made"])
def test_what_is_queued_on_hold_is_on_hold_and_copied_after_every_power_cut(tmp_path: Path, writer: str) -> None:
    place = Place(tmp_path)
    if writer == POSTMAN_MADE:
        os.rmdir(place.home.queue + "/postman")
        place.model.restart()
    place.enqueue(1, writer, b"spam")

    def check(crash: Crash, found: dict[int, Message]) -> list[str]:
        wrong = []
        for number, message in found.items():
            if "todo" in message.files:
                mark = crash.files.get(place.layout.hashed("hold", number).lstrip("/"))
                copy = crash.files.get(f"postman/{number}_spam")
                wrong += [] if mark is not None and mark.content == b"spam\n" else [f"{number} is not on hold"]
                wrong += [] if copy is not None and copy.content.endswith(BODY) else [f"{number} is not copied"]
        return wrong

    assert check_queue(place.model, place.layout, queued_when_exit_code_is_0(1), check, most=128) > 30


@pytest.mark.parametrize(
    "fault",
    [
        *[f"fsync:error=EIO:when={number}" for number in range(1, 5)],
        *[f"link,linkat:error=ENOSPC:when={number}" for number in (1, 2)],
    ],
)
def test_an_injection_that_fails_is_refused_and_leaves_a_good_queue_at(tmp_path: Path, fault: str) -> None:
    place = Place(tmp_path)

    code = place.run("queue-enqueue", stdin=BODY, envelope=ENVELOPE, fault=fault)

    assert 51 <= code <= 66
    check_queue(place.model, place.layout, queued_when_exit_code_is_0(1))


@pytest.mark.parametrize("flat", [False, True], ids=["hashed", "flat"])
@pytest.mark.parametrize("count", [1, 4])
def test_queue_todo_leaves_each_message_queued_or_classified(tmp_path: Path, flat: bool, count: int) -> None:
    place = Place(tmp_path, flat)
    place.enqueue(count)
    place.model.restart()

    said = place.converse("queue-todo", b"", lambda output: len(announced(output)) == count)

    assert sorted(announced(said)) == sorted(place.numbers())
    most = amount(16, 256)
    looked = check_queue(place.model, place.layout, nobody_is_forgotten, classified_when_announced, most=most)
    assert looked > 20


BOTH = """
import subprocess, sys
from queue_wire.pipes.notice import NoticeReader
python, todo, enqueue, home, body, envelope = sys.argv[1:]
classifier = subprocess.Popen([python, todo, "--home", home], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
with open(body) as body, open(envelope) as envelope:
    injector = subprocess.Popen([python, enqueue, "--home", home], stdin=body, stdout=envelope)
said = b""
while not any(record[:1] == b"C" for record in NoticeReader().feed(said)):
    said += classifier.stdout.read1()
    if said.endswith(b"\\0W\\0"):
        classifier.stdin.write(b"W")
        classifier.stdin.flush()
code = injector.wait()
classifier.stdin.close()
sys.exit(code or classifier.wait())
"""


def test_a_message_that_is_classified_before_its_injector_has_synced_it_is_never_half_there(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (tmp_path / "body").write_bytes(BODY)
    (tmp_path / "envelope").write_bytes(ENVELOPE)
    programs = [program("queue-todo")[1], program("queue-enqueue")[1]]
    command = [sys.executable, "-c", BOTH, sys.executable, *programs, place.home.path]
    command += [str(tmp_path / "body"), str(tmp_path / "envelope")]

    # The injector's fourth sync is that of todo/, which it has already linked then; the delay is in microseconds.
    code = run_traced(place.model, place.trace, command, fault="fsync:delay_enter=700000:when=4")

    assert code == 0
    assert check_queue(place.model, place.layout, queued_when_exit_code_is_0(1)) > 20


@pytest.mark.parametrize("count", [1, 4])
def test_queue_clean_never_leaves_files_of_a_message_without_its_mess(tmp_path: Path, count: int) -> None:
    place = Place(tmp_path)
    numbers = place.classified(count)
    request = b"".join(map(pack_clean, numbers))

    place.converse("queue-clean", request, lambda output: output == b"+" * count)

    assert check_queue(place.model, place.layout, gone_when_answered(numbers), most=512) > 20
    assert place.numbers() == []


def test_a_message_that_is_removed_as_soon_as_it_is_classified_never_comes_back(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.enqueue(1)
    place.model.restart()
    numbers = place.numbers()

    place.converse("queue-todo", b"", lambda output: announced(output) == numbers)
    place.converse("queue-clean", pack_clean(numbers[0]), lambda output: output == b"+")

    def stays_gone(crash: Crash, found: dict[int, Message]) -> list[str]:
        done = crash.said.endswith(b"\0+")
        return [f"message {number} came back" for number in found if done and found[number].state not in GONE_OR_SWEPT]

    assert check_queue(place.model, place.layout, classified_until_cleaned, stays_gone) > 20


# What a queue-clean or queue-todo that was killed has removed and not synced, of a message in S5.
UNSYNCED = {
    "info": "for kind in ('local', 'remote'): os.unlink(path(kind)); sync_path(os.path.dirname(path(kind)))\n"
    "os.unlink(bounce); sync_path(os.path.dirname(bounce)); os.unlink(path('info'))",
    "todo": "os.unlink(path('todo'))",
}


@pytest.mark.parametrize("kind", ["info", "todo"])
def test_what_a_killed_run_has_removed_and_not_synced_is_safe_before_the_next_run_removes_mess(
    tmp_path: Path, kind: str
) -> None:
    place = Place(tmp_path)
    (number,) = place.classified(1)
    if kind == "todo":
        os.unlink(place.disk.bounce(number))
        make_file(place.disk.todo(number), b"u1\0p2\0Fa@example.org\0Tb@example.net\0", 0o600)
    found = os.stat(place.disk.mess(number))
    line = b"%d %d %d %d\n" % (number, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
    listed = Path(place.disk.queue, "pid", "removing.1")
    listed.write_bytes(line)
    # A list counts for files that are older than it.
    os.utime(listed, ns=(found.st_ctime_ns + 10**9, found.st_ctime_ns + 10**9))
    place.model.restart()
    killed = (
        f"{HEAD}\nqueue, number = sys.argv[1], int(sys.argv[2])\nbounce = f'{{queue}}/bounce/{{number}}'\n"
        "def path(kind): return f'{queue}/{kind}/{number % 3}/{number}'\n" + UNSYNCED[kind]
    )
    assert run_traced(
        place.model, place.trace, [sys.executable, "-c", killed, place.home.queue, str(number)]
    ) == 0

    request = pack_clean(number) if kind == "todo" else b""
    place.converse("queue-clean", request, lambda output: len(output) == bool(request), lambda: not place.numbers())

    assert check_queue(place.model, place.layout) > 5


@pytest.mark.parametrize("count", [1, 3])
def test_mail_in_maildrop_and_its_copy_in_the_queue_survive_every_power_cut(tmp_path: Path, count: int) -> None:
    place = Place(tmp_path)
    place.enqueue(count, "from queue_inject.drop import DropWriter as open_writer")
    assert len(os.listdir(place.disk.queue + "/maildrop")) == count

    maildrop = place.disk.queue + "/maildrop"
    place.converse("queue-pickup", b"", lambda output: True, lambda: not os.listdir(maildrop))

    assert len(place.numbers()) == count
    assert check_queue(place.model, place.layout, dropped_or_queued(count), most=128) > 50


MAILDIR = """
import os, sys
from queue_local.maildir import deliver_maildir
message = os.open(sys.argv[2], os.O_RDONLY)
deliver_maildir(sys.argv[1], b"Return-Path: <a@example.org>\\n", message)
os.write(1, b"K")
"""


def test_a_maildir_delivery_that_was_reported_survives_every_power_cut(tmp_path: Path) -> None:
    maildir = tmp_path / "home" / "Maildir"
    for name in ("tmp", "new", "cur"):
        (maildir / name).mkdir(parents=True)
    (tmp_path / "message").write_bytes(BODY)
    model = CrashModel(tmp_path / "home")
    command = [sys.executable, "-c", MAILDIR, f"{maildir}/", str(tmp_path / "message")]

    assert run_traced(model, tmp_path / "trace", command) == 0

    looked = 0
    for crash in model.crashes():
        looked += 1
        new = [file for path, file in crash.files.items() if path.startswith("Maildir/new/")]
        assert all(file.content == b"Return-Path: <a@example.org>\n" + BODY for file in new), crash.call
        assert new or crash.said != b"K", crash.call
    assert looked > 10


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [2, 8, 20])
def test_groups_survive_every_power_cut_with_many_samples(tmp_path: Path, count: int) -> None:
    place = Place(tmp_path)
    place.enqueue(count)
    check_queue(place.model, place.layout, queued_when_exit_code_is_0(count), most=40000 // count**2)
    place.model.restart()
    numbers = place.numbers()
    place.converse("queue-todo", b"", lambda output: len(announced(output)) == count)
    check_queue(place.model, place.layout, nobody_is_forgotten, classified_when_announced, most=40000 // count**2)
    place.model.restart()
    place.converse("queue-clean", b"".join(map(pack_clean, numbers)), lambda output: output == b"+" * count)
    check_queue(place.model, place.layout, gone_when_answered(numbers), most=40000 // count**2)
