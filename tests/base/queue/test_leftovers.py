"""An envelope without its text: injectors never leave one and replace one that is there; queuectl removes it."""

import errno
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from queue_base.errors import QueueTrouble
from queue_base.home import Home
from queue_base.queue.layout import Layout, files_beside_mess, open_layout
from queue_base.queue.writer import QueueDraft, QueueWriter
from queue_inject.writers import open_writer
from queue_todo.classify import TodoGroup
from queue_wire.control.rewrite import Rules
from support.faults.crash.crash_model import Crash
from support.faults.nameless import without_nameless
from support.faults.traced import traced_script
from support.inject.batches import batch_command, make_file
from support.inject.injectors import inject, only, states
from support.processes.suite import Suite, wait_until
from support.queues.home import make_home
from support.send.control import files, long_id, order
from support.tools import need

KINDS = ("todo", "intd", "info", "local", "remote", "hold", "corrupt", "bounce")
OLD = {
    "todo": b"u1\0p2\0Fold@example.org\0Told@example.net\0",
    "intd": b"u1\0p2\0Fold@example.org\0Told@example.net\0",
    "info": b"Fold@example.org\0",
    "local": b"Told@me.example.org\0",
    "remote": b"Told@example.net\0",
    "hold": b"an old reason\n",
    "corrupt": b"mess is missing\n",
    "bounce": b"<old@example.net>:\nno\n\n",
}
RULES = Rules(b"me.example.org", {b"me.example.org"}, set(), {})


@pytest.fixture(params=[True, False], ids=["nameless", "named"])
def nameless(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the file system has files without names."""
    if not request.param:
        without_nameless(monkeypatch)
    return bool(request.param)


def open_queue(home: Home) -> tuple[QueueWriter, Layout]:
    writer = open_writer(home)
    assert isinstance(writer, QueueWriter)
    return writer, open_layout(home.queue)


def put_old(layout: Layout, message: int, kinds: tuple[str, ...] = KINDS) -> None:
    """Leave files of an earlier message under a number."""
    for path in files_beside_mess(layout, message):
        kind = Path(path).relative_to(layout.queue).parts[0]
        if kind in kinds:
            Path(path).write_bytes(OLD[kind])


def begin(writer: QueueWriter) -> tuple[QueueDraft, int]:
    """Return a draft, and the number that it is going to have."""
    draft = writer.begin()
    draft.write(b"Subject: new\n\n")
    return draft, os.fstat(draft._handle).st_ino


@pytest.mark.parametrize("kinds", [KINDS, *((kind,) for kind in KINDS)], ids=lambda kinds: "+".join(kinds))
@pytest.mark.parametrize("flat", [False, True], ids=["hashed", "flat"])
def test_an_injector_that_meets_what_an_earlier_message_left_replaces_it(
    tmp_path: Path, kinds: tuple[str, ...], flat: bool, nameless: bool
) -> None:
    home = make_home(tmp_path / "home", flat=flat)
    writer, layout = open_queue(home)
    draft, message = begin(writer)
    put_old(layout, message, kinds)

    draft.finish(b"new@example.org", [b"new@example.net"])
    if not {"todo", "info", "hold"}.isdisjoint(kinds):
        assert not any(map(os.path.lexists, files_beside_mess(layout, message))), "before the text has its name"
    writer.commit([draft])

    assert only(home).envelope.recipients == [b"new@example.net"]
    group = TodoGroup(layout, RULES, [message])
    assert group.prepare()
    group.finish()
    assert [entry.message for entry in group.entries] == [message]
    bucket = f"{message % layout.split}/{message}"
    assert files(home) == sorted(f"{kind}/{bucket}" for kind in ("info", "mess", "remote"))
    assert Path(layout.hashed("remote", message)).read_bytes() == b"Tnew@example.net\0"


def test_a_new_message_takes_another_number_where_a_copied_message_has_its_name(tmp_path: Path, nameless: bool) -> None:
    """In a queue that was copied, the names are not the inode numbers."""
    home = make_home(tmp_path / "home")
    writer, layout = open_queue(home)
    draft, message = begin(writer)
    put_old(layout, message)
    Path(layout.mess(message)).write_bytes(b"another's text\n")
    before = files(home)

    draft.finish(b"new@example.org", [b"new@example.net"])
    writer.commit([draft])

    assert draft.message != message
    kept = {path for path in before if not path.startswith("pid/")}
    assert kept < set(files(home)), "nothing of the other message is removed"
    text = Path(layout.mess(draft.message))
    assert text.stat().st_ino == draft.message
    assert text.read_bytes().endswith(b"Subject: new\n\n") and text.read_bytes().startswith(b"Received: ")
    assert os.listdir(f"{home.queue}/pid") == []


def test_a_message_that_finds_no_free_number_is_refused_for_now_and_names_the_repair(
    tmp_path: Path, nameless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home(tmp_path / "home")
    writer, _ = open_queue(home)
    draft, _ = begin(writer)

    def exists(old: str, new: str, **_: Any) -> None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)

    monkeypatch.setattr(os, "link", exists)

    with pytest.raises(QueueTrouble, match="file exists: the queue was copied; queuectl repair mends it") as caught:
        draft.finish(b"new@example.org", [b"new@example.net"])
    draft.discard()

    assert caught.value.exit_code == 111
    assert files(home) == [] and os.listdir(f"{home.queue}/pid") == []


def test_what_an_earlier_message_left_and_cannot_be_removed_keeps_the_new_one_out(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    writer, layout = open_queue(home)
    draft, message = begin(writer)
    Path(layout.todo(message)).mkdir()

    with pytest.raises(QueueTrouble, match="which an earlier message left: is a directory"):
        draft.finish(b"new@example.org", [b"new@example.net"])
    draft.discard()

    assert not os.path.lexists(layout.mess(message))


# The earlier message's files are there, safe; then a new one comes under their number.
_REPLACE = """
import os, sys
from queue_base.durable import Commit
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_base.queue.layout import files_beside_mess
from queue_inject.writers import open_writer
writer = open_writer(Home(sys.argv[1]))
layout = open_layout(sys.argv[1] + "/queue")
draft = writer.begin()
draft.write(b"Subject: new\\n\\n")
message = os.fstat(draft._handle).st_ino
commit = Commit()
for path in files_beside_mess(layout, message):
    commit.create(path, b"old" + path.encode(), 0o600)
commit.sync()
draft.finish(b"new@example.org", [b"new@example.net"])
writer.commit([draft])
"""


def test_no_power_cut_puts_an_old_envelope_beside_a_new_text(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    model = traced_script(Path(home.queue), _REPLACE, home.path)
    seen: Counter[str] = Counter()

    def look(crash: Crash) -> None:
        there = {path.split("/")[0] for path in crash.files}
        old = [path for path, file in crash.files.items() if file.content.startswith(b"old")]
        if "mess" in there:
            assert not old, f"after {crash.call}: {old}"
            seen["new"] += 1
            seen["queued"] += "todo" in there
        seen["old"] += bool(old)

    for crash in model.crashes(most=64):
        look(crash)
    assert min(seen[what] for what in ("old", "new", "queued")) > 0


@pytest.mark.parametrize("after", [False, True], ids=["before the name is there", "after it"])
def test_an_interrupt_while_the_envelope_gets_its_name_never_takes_the_text_away(
    tmp_path: Path, nameless: bool, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home(tmp_path / "home")
    writer, _ = open_queue(home)
    drafts = [begin(writer)[0] for _ in range(3)]
    for draft in drafts:
        draft.finish(b"a@b", [b"c@d"])
    real = os.link

    def interrupted(old: str, new: str, **more: Any) -> None:
        if after or new != drafts[1].todo:
            real(old, new, **more)
        if new == drafts[1].todo:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", interrupted)
    with pytest.raises(KeyboardInterrupt):
        writer.commit(drafts)

    # What is interrupted before it is queued is swept away in time.
    # A name in intd/ goes with what was not begun to be queued.
    unfinished = {} if after else {2: 1} if nameless else {3: 1}
    assert states(home) == {4: 2 if after else 1, **unfinished}


@pytest.mark.parametrize("number", range(1, 11))
def test_a_batch_that_is_interrupted_as_it_names_a_file_leaves_no_envelope_without_its_text(
    tmp_path: Path, number: int
) -> None:
    home = make_home(tmp_path / "home")
    file = make_file(tmp_path / "batch", "netstring", 5)
    words = [need("strace"), "-o", "/dev/null", "-e", f"inject=linkat:signal=INT:when={number}", "-e", "trace=linkat"]
    with file.open("rb") as data:
        done = subprocess.run(
            [*words, "--", *batch_command(home, "netstring")], stdin=data, capture_output=True, timeout=60, check=False
        )
    assert done.returncode == 111 and b"interrupted" in done.stderr
    assert set(states(home)) <= {2, 4} and sum(states(home).values()) <= 5
    for _ in range(5):
        assert inject(home, "b@example.net", message=b"Subject: after\n\n").code == 0


def orphan(home: Home, *kinds: str) -> int:
    """Leave the envelope of a message that has lost its text; return its number."""
    layout = open_layout(home.queue)
    path = Path(home.queue, "pid/by-hand")
    path.touch()
    message = path.stat().st_ino
    put_old(layout, message, kinds)
    path.unlink()
    return message


@pytest.mark.parametrize("kinds", [("todo",), ("todo", "corrupt"), ("info", "remote"), ("bounce",), ("hold",), KINDS])
def test_queuectl_shows_what_is_left_of_a_message_and_deletes_it(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    home = make_home(tmp_path / "home")
    message = orphan(home, *kinds)
    name = long_id(home, message)
    (line,) = order(home, "list").splitlines()
    assert line.startswith(f"{name} unknown ") and "queuectl delete removes" in line
    assert name in order(home, "show", name)

    assert order(home, "delete", name) == "deleted 1 message"

    assert files(home) == [] and order(home, "list") == ""


@pytest.mark.parametrize("kinds", [("todo",), ("bounce",), ("remote",), ("info", "remote")])
def test_queuectl_deletes_what_is_left_of_a_message_under_the_suite(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    home = make_home(tmp_path / "home", split=3)
    message = orphan(home, *kinds)
    name = long_id(home, message)
    with Suite(home) as suite:
        if "todo" in kinds:
            suite.wait_for(f"^corrupt msg {message}: ")
        suite.wait_for("^status: ")
        assert name in order(home, "list", "--state", "unknown")
        assert order(home, "delete", name) == "deleted 1 message"
        suite.wait_for(f"^end msg {message}$")
        wait_until(lambda: files(home) == [], why="the removal")


def test_a_parked_envelope_is_replaced_under_a_running_suite_and_the_new_message_is_classified(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    Path(home.control, "smtproutes").write_text(":127.0.0.1:1\n")
    writer, layout = open_queue(home)
    draft, message = begin(writer)
    put_old(layout, message, ("todo",))
    with Suite(home) as suite:
        suite.wait_for(f"^corrupt msg {message}: ")
        draft.finish(b"new@example.org", [b"new@example.net"])
        writer.commit([draft])
        suite.wait_for(f"^info msg {message}: bytes \\d+ from <new@example.org>")
        suite.wait_for(f"^starting delivery 1: msg {message} to remote new@example.net")
    assert not os.path.lexists(layout.hashed("corrupt", message))


def test_an_old_envelope_that_an_injector_replaces_while_it_is_classified_gets_none_of_the_new_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home(tmp_path / "home")
    writer, layout = open_queue(home)
    draft, message = begin(writer)
    put_old(layout, message, ("todo",))
    os.utime(layout.todo(message), (1_000_000_000, 1_000_000_000))
    real = os.stat

    def late(path: str | int, **more: Any) -> os.stat_result:
        if path == layout.mess(message) and not os.path.lexists(path):
            draft.finish(b"new@example.org", [b"new@example.net"])
        return real(path, **more)

    group = TodoGroup(layout, RULES, [message])
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", late)
        assert group.prepare()
    group.finish()
    assert not group.entries and not group.unsure
    assert not os.path.lexists(layout.hashed("info", message)), "it would be tried after a crash"
    writer.commit([draft])
    group = TodoGroup(layout, RULES, [message])
    assert group.prepare()
    group.finish()
    assert [entry.sender for entry in group.entries] == [b"new@example.org"]
    assert Path(layout.hashed("remote", message)).read_bytes() == b"Tnew@example.net\0"
