"""queuectl check and repair on damaged queues: each kind of damage is found, and mended, and nothing is lost."""

import json
import os
import resource
import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from queue_admin.checks.queue_repair import repair
from queue_admin.checks.structure import guess_split
from queue_admin.home.create import create_home
from queue_admin.main import main
from queue_admin.system_accounts import myself
from queue_base import durable
from queue_base.daemon.lock import take_sendmutex
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_base.queue.marks_file import MarksFile
from queue_wire.files.marks import DoneMarks, identify
from support.faults.cuts import Cut, cut_after, how_many
from support.faults.traced import traced_script
from support.inject.qmail_queue import snapshot
from support.plugins.amount import amount
from support.processes.suite import program
from support.queues.damage import BIRTH, DAMAGE, KnownQueue

pytestmark = pytest.mark.usefixtures("usual_umask")


@pytest.mark.parametrize("name", DAMAGE)
def test_each_damage_is_found_and_mended_and_nothing_deliverable_is_lost(tmp_path: Path, name: str) -> None:
    damage = DAMAGE[name]
    queue = KnownQueue(tmp_path / "home")
    kept = [each for each in queue.deliverable() if each.sender.split(b"@")[0].decode() not in damage.lost]
    assert queue.codes() == []
    damage.does(queue)
    assert queue.codes() == sorted(damage.codes)

    repair(queue.home, damage.split, False)

    after = [each for each in queue.deliverable() if each.sender.split(b"@")[0].decode() not in damage.lost]
    assert after == kept
    assert queue.codes() == sorted(damage.left)
    assert open_layout(queue.home.queue).split == (damage.split or 3)
    assert not os.path.lexists(f"{queue.home.queue}/repair")
    assert os.path.isdir(f"{queue.home.queue}/pid")


def test_copies_for_the_postmaster_get_the_numbers_that_their_files_have_after_a_restore(tmp_path: Path) -> None:
    home = KnownQueue(tmp_path / "home").home
    postman = Path(home.queue, "postman")
    texts = {cause: f"{number}" for number, cause in enumerate(("no-date", "spam", "late"))}
    for cause, text in texts.items():
        (postman / cause).write_text(text)
    numbers = {cause: (postman / cause).stat().st_ino for cause in texts}
    # The first has the number of the second, and the third one that no file has.
    for cause, number in (("no-date", numbers["spam"]), ("spam", numbers["spam"]), ("late", 1)):
        (postman / cause).rename(postman / f"{number}_{cause}")
    done = repair(home, None, False)
    assert "copies for the postmaster given their numbers: 2" in done
    assert {path.name: path.read_text() for path in postman.iterdir()} == {
        f"{numbers[cause]}_{cause}": text for cause, text in texts.items()
    }


def test_copies_whose_names_change_places_lose_nothing_wherever_the_repair_is_killed(tmp_path: Path) -> None:
    def build(path: Path) -> tuple[Home, dict[str, str]]:
        home = KnownQueue(path).home
        postman = Path(home.queue, "postman")
        files = [postman / text for text in ("a", "b")]
        for file in files:
            file.write_text(file.name)
        first, second = (file.stat().st_ino for file in files)
        files[0].rename(postman / f"{second}_spam")
        files[1].rename(postman / f"{first}_spam")
        return home, {f"{first}_spam": "a", f"{second}_spam": "b"}

    spare, _ = build(tmp_path / "spare")
    steps = how_many(lambda: repair(spare, None, False))
    for step in range(steps):
        home, expected = build(tmp_path / str(step))
        with pytest.MonkeyPatch.context() as patch:
            cut_after(patch, step)
            with suppress(Cut):
                repair(home, None, False)
        repair(home, None, False)
        assert {path.name: path.read_text() for path in Path(home.queue, "postman").iterdir()} == expected


# Of so many steps of a repair one is cut.
EACH = amount(3, 1)


@pytest.mark.parametrize("name", ["numbers in a cycle", "a cycle and another split", "mess without the rest"])
def test_a_repair_that_is_killed_anywhere_is_finished_by_the_next(tmp_path: Path, name: str) -> None:
    damage = DAMAGE[name]

    def build(path: Path) -> KnownQueue:
        queue = KnownQueue(path)
        damage.does(queue)
        return queue

    spare = KnownQueue(tmp_path / "spare")
    kept = [each for each in spare.deliverable() if each.sender.split(b"@")[0].decode() not in damage.lost]
    damage.does(spare)
    steps = how_many(lambda: repair(spare.home, damage.split, False))
    cuts = 0
    for step in range(0, steps, EACH):
        queue = build(tmp_path / str(step))
        with pytest.MonkeyPatch.context() as patch:
            cut_after(patch, step)
            # How many steps it takes depends on the numbers that the files have got.
            try:
                repair(queue.home, damage.split, False)
            except Cut:
                cuts += 1
        repair(queue.home, damage.split, False)
        after = [each for each in queue.deliverable() if each.sender.split(b"@")[0].decode() not in damage.lost]
        assert after == kept, f"killed after {step}"
        assert queue.codes() == sorted(damage.left), f"killed after {step}"
    assert cuts > 30 // EACH


def test_an_init_between_two_runs_changes_nothing(tmp_path: Path) -> None:
    queue = KnownQueue(tmp_path / "home")
    kept = queue.deliverable()
    queue.cycle()
    with pytest.MonkeyPatch.context() as patch:
        cut_after(patch, 25)
        with pytest.raises(Cut):
            repair(queue.home, None, False)
    assert "repair" in queue.codes()
    create_home(queue.home, myself(), myself())
    repair(queue.home, None, False)
    assert queue.deliverable() == kept and queue.codes() == []


# Names each message by the number of the next one, and puts that right.
_RENUMBER = """
import sys
from queue_admin.checks.moving import Mover, SetAside
from queue_admin.checks.renumber import make_stages, renumber, unstage
from queue_base.queue.layout import open_layout
layout = open_layout(sys.argv[1])
aside = SetAside(layout.queue)
mover = Mover(aside)
make_stages(layout.queue)
renumber(layout, mover, aside, int)
unstage(layout, mover)
"""


def test_no_power_cut_parts_a_message_from_its_envelope(tmp_path: Path) -> None:
    queue = KnownQueue(tmp_path / "home", fill=False)
    queue.messages = {name: queue.classified(name, remote=[(b"c@example.net", False)]) for name in ("a", "b")}
    queue.messages["c"] = queue.queued("c")
    right = dict(queue.messages)
    queue.cycle()
    os.mkdir(f"{queue.home.queue}/repair")
    wrong = dict(zip(right, [*list(right.values())[1:], right["a"]], strict=True))
    model = traced_script(Path(queue.home.queue), _RENUMBER, queue.home.queue)
    seen: Counter[str] = Counter()
    for crash in model.crashes(most=32):
        for name, number in right.items():
            rest = "todo" if name == "c" else "info"
            old, waits, new = [
                {kind: f"{top}{kind}/{'' if top else f'{at % 3}/'}{at}" for kind in ("mess", rest)}
                for top, at in (("", wrong[name]), ("repair/", number), ("", number))
            ]
            text = b"Subject: %s\n\nbody\n" % name.encode()

            def has(place: dict[str, str], kind: str, name: str = name, text: bytes = text) -> bool:
                file = crash.files.get(place[kind])  # noqa: B023
                return file is not None and (file.content == text if kind == "mess" else name.encode() in file.content)

            # The next run finds the old name in mess/ first, then the one in repair/.
            if has(old, "mess"):
                found = [has(place, rest) for place in (old, waits, new)]
                seen["old"] += 1
            elif has(waits, "mess"):
                found = [has(place, rest) for place in (waits, new)]
                seen["waits"] += 1
            else:
                assert has(new, "mess"), f"{name} is lost after {crash.call}"
                found = [has(new, rest)]
                seen["new"] += 1
            assert any(found), f"the envelope of {name} is lost after {crash.call}"
    assert min(seen[what] for what in ("old", "waits", "new")) > 0


# As the next run does after one that was killed when it had made the directory and the second name.
_SET_ASIDE = """
import os, sys
from queue_admin.checks.moving import SetAside
queue = sys.argv[1]
os.mkdir(f"{queue}/corrupt/unplaced/7")
os.link(f"{queue}/bounce/7", f"{queue}/corrupt/unplaced/7/bounce")
aside = SetAside(queue)
aside.put({"bounce": f"{queue}/bounce/7"}, 7, "it belongs to no message")
aside.keep({"mess": b"text"}, 8, "it was lost")
aside.flush()
"""


def test_no_power_cut_takes_what_a_second_run_of_a_repair_sets_aside(tmp_path: Path) -> None:
    queue = KnownQueue(tmp_path / "home", fill=False)
    Path(queue.home.queue, "bounce", "7").write_bytes(b"a bounce")
    model = traced_script(Path(queue.home.queue), _SET_ASIDE, queue.home.queue)
    places = "bounce/7", "corrupt/unplaced/7/bounce"
    for crash in model.crashes(most=32):
        found = [crash.files[place].content for place in places if place in crash.files]
        assert b"a bounce" in found, f"it is lost after {crash.call}"
    assert crash.files["corrupt/unplaced/8/mess"].content == b"text"


def test_an_orphaned_split_is_guessed_from_the_names_of_the_messages() -> None:
    names = [(number * 7919 % 23, number * 7919) for number in range(1, 40)]
    assert guess_split({"mess": {0, 3, 7}, "info": {0, 3}}, names) == 23
    assert guess_split({"mess": {0, 1, 2}, "info": {0, 1, 2}, "local": {0, 1, 2}, "remote": {0, 1, 2, 3}}, []) == 3
    assert guess_split({"mess": set(), "info": set()}, []) == 0


def test_marks_of_recipients_that_are_done_are_applied_before_a_message_gets_its_number(tmp_path: Path) -> None:
    queue = KnownQueue(tmp_path / "home", fill=False)
    message = queue.queued("queued")
    queue.messages = {"queued": message}
    queue.rename(message, message + 10**9)
    data = Path(queue.layout.todo(message + 10**9)).read_bytes()
    marks = MarksFile(queue.layout)
    slot = marks.take()
    assert slot is not None
    marks.write(slot, DoneMarks(identify(message + 10**9, BIRTH // 1000, data), 1))
    marks.close()

    repair(queue.home, None, False)

    assert [each.recipients for each in queue.deliverable()] == [(("todo", False, b"x@example.net"),)]


def test_a_finding_is_a_line_and_an_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queue = KnownQueue(tmp_path / "home")
    assert main(["queuectl", "check", queue.home.path]) == 0
    assert capsys.readouterr().out == ""
    queue.path("info", "local").write_bytes(b"")
    number = queue.messages["local"]
    assert main(["queuectl", "check", queue.home.path]) == 1
    line = capsys.readouterr().out
    path = f"info/{number % 3}/{number}"
    assert line.startswith(f"{path} cannot be understood: ") and line.count("\n") == 1
    assert line.endswith("; repair parks it; the file stays for a person\n")
    assert main(["queuectl", "--home", queue.home.path, "check", "--format", "json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert list(facts) == ["finding", "path", "message", "what", "means", "repair"]
    assert facts["finding"] == "unreadable" and facts["path"] == path
    assert facts["message"].startswith(f"{number}-")


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = KnownQueue(tmp_path / "home")
    queue.shift()
    before = snapshot(Path(queue.home.path))
    assert main(["queuectl", "repair", queue.home.path, "--dry-run", "--split", "5"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 6 and out[-2:] == ["findings: 4", "the split would be 5; it is 3"]
    assert all("repair gives the message its right number" in line for line in out[:4])
    assert snapshot(Path(queue.home.path)) == before


def test_a_split_that_is_not_prime_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    queue = KnownQueue(tmp_path / "home")
    assert main(["queuectl", "repair", queue.home.path, "--split", "24"]) == 100
    assert "not prime; the nearest are 23 and 29" in capfd.readouterr().err


def test_repair_names_what_to_stop_while_queue_send_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    queue = KnownQueue(tmp_path / "home")
    lock = take_sendmutex(queue.home)
    assert main(["queuectl", "repair", queue.home.path]) == 111
    os.close(lock)
    assert "already running on this queue; stop the suite first, as with svc -d" in capfd.readouterr().err


def test_a_queue_with_more_directories_than_descriptors_is_mended(tmp_path: Path) -> None:
    home = Home(str(tmp_path / "home"))
    create_home(home, myself(), myself(), me="me.example.org", split=97)
    for message in range(10**12, 10**12 + 97):
        for kind, data in (("mess", b"\n"), ("info", b"Fa@b\0"), ("remote", b"Tc@d\0")):
            Path(home.queue, kind, str(message % 97), str(message)).write_bytes(data)
    words = ["sh", "-c", 'ulimit -n 100; exec "$@"', "sh", *program("queuectl"), "repair", home.path]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "messages given their numbers: 97" in done.stdout


@pytest.mark.pure("replaces a function of a compiled module")
def test_a_directory_is_synced_once_for_all_messages_that_it_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(str(tmp_path / "home"))
    create_home(home, myself(), myself(), me="me.example.org", split=23)
    for message in range(10**12, 10**12 + 200):
        for kind, data in (("mess", b"\n"), ("info", b"Fa@b\0"), ("remote", b"Tc@d\0")):
            Path(home.queue, kind, str(message % 23), str(message)).write_bytes(data)
    syncs: Counter[str] = Counter()
    monkeypatch.setattr(durable, "_sync_handle", lambda handle, path: syncs.update([path]))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, limits[1]))
    try:
        assert main(["queuectl", "repair", home.path]) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    # Once for the new names, and once for the old ones.
    assert {syncs[f"{home.queue}/info/{number}"] for number in range(23)} == {2}
