"""The class of a message: asked for by option, environment, QMTP and maildrop/, or given by control/priorityrules."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from support.inject.injectors import (
    OWNER,
    ROOT,
    USER,
    PickupDaemon,
    as_user,
    inject,
    queued,
    run,
    sendmail,
    shared_home,
)
from support.intake.intake_daemon import IntakeDaemon
from support.processes.suite import program, wait_until
from support.queues.home import make_home

SUBMITTER = "0123456789abcdef"
MAIL = b"From: ann@example.org\nTo: bob@example.net\n\nhello\n"


@pytest.fixture(params=[False, True], ids=["hashed", "flat"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    return make_home(tmp_path / "home", split=3, flat=request.param)


@pytest.fixture
def shared() -> Iterator[Home]:
    with shared_home() as home:
        yield home


def classes(home: Home) -> list[str]:
    """Return the class of each queued message, sorted."""
    layout = open_layout(home.queue)
    found = []
    for priority in ("", *layout.lower):
        for directory in layout.todo_directories(priority):
            for name in os.listdir(directory):
                assert layout.class_of(int(name)) == priority
                assert layout.todo(int(name)) == f"{directory}/{name}"
                found.append(priority)
    return sorted(found)


@pytest.mark.parametrize("words", [["--priority", "bulk"], ["--priority=bulk"]])
def test_the_option_puts_a_message_into_the_tree_of_its_class(home: Home, words: list[str]) -> None:
    assert inject(home, *words, message=MAIL).code == 0
    assert classes(home) == ["bulk"]


def test_the_environment_of_any_injector_names_a_class(home: Home) -> None:
    assert inject(home, message=MAIL, QUEUE_PRIORITY="bulk").code == 0
    assert sendmail(home, "-t", message=MAIL, QUEUE_PRIORITY="bulk").code == 0
    assert sendmail(home, "-t", message=MAIL, QUEUE_PRIORITY="normal").code == 0
    assert inject(home, "--priority", "normal", message=MAIL, QUEUE_PRIORITY="bulk").code == 0
    assert classes(home) == ["", "", "bulk", "bulk"]


def test_a_batch_has_one_class(home: Home) -> None:
    words = ("--priority", "bulk", "--batch", "mbox")
    assert inject(home, *words, message=(b"From x\n" + MAIL) * 3).code == 0
    assert classes(home) == ["bulk"] * 3


def test_the_tree_of_a_class_has_the_modes_of_todo(home: Home) -> None:
    todo = os.stat(f"{home.queue}/todo")
    inject(home, "--priority", "bulk", message=MAIL)
    tree = Path(home.queue, "priority/bulk")
    assert sorted(path.name for path in tree.iterdir()) == ["0", "1", "2"]
    assert [path.name for path in tree.parent.iterdir()] == ["bulk"]
    for path in (tree.parent, tree, *tree.iterdir()):
        found = path.stat()
        assert (found.st_uid, found.st_gid, found.st_mode) == (todo.st_uid, todo.st_gid, todo.st_mode), path
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tree.glob("*/*"))


@pytest.mark.parametrize("words", [["--priority", "Bulk"], ["--priority", "bulk"]])
def test_a_class_that_there_is_not_is_an_error_that_names_those_there_are(home: Home, words: list[str]) -> None:
    Path(home.control, "priorities").write_text("first\nsecond\n")
    outcome = inject(home, *words, message=MAIL)
    assert outcome.code == 100
    assert b"there is no such class; there are first, second" in outcome.error
    assert classes(home) == [] and not Path(home.queue, "priority").exists()


@pytest.mark.parametrize("words", [["--priority"], ["--priority="], ["--prioritybulk"]])
def test_an_option_without_a_class_is_a_usage_error(home: Home, words: list[str]) -> None:
    outcome = inject(home, *words, message=MAIL)
    assert outcome.code == 100 and b"--priority needs a class; usage:" in outcome.error


def test_a_rule_gives_the_class_by_uid_or_sender_and_the_owner_may_raise_it(home: Home) -> None:
    Path(home.control, "priorityrules").write_text(f"sender:@lists.example.org:bulk\nuid:{os.getuid() + 1}:bulk\n")
    for sender in ("a@lists.example.org", "b@example.org"):
        assert inject(home, "-f", sender, message=MAIL).code == 0
    assert classes(home) == ["", "bulk"]
    assert inject(home, "--priority", "normal", "-f", "a@lists.example.org", message=MAIL).code == 0
    assert classes(home) == ["", "", "bulk"]


@pytest.mark.parametrize("text", ["uid:x:bulk\n", "uid:0:gone\nsender:@example.org:gone\n"])
def test_no_mail_is_refused_for_a_rule_that_cannot_be_used(home: Home, text: str) -> None:
    Path(home.control, "priorityrules").write_text(text)
    assert inject(home, "-f", "a@example.org", message=MAIL).code == 0
    assert classes(home) == [""]


def test_where_the_tree_cannot_be_made_mail_is_of_the_first_class(home: Home) -> None:
    Path(home.queue, "priority").write_text("a person's file")
    assert inject(home, "--priority", "bulk", message=MAIL).code == 0
    assert [path.name for path in Path(home.queue, "todo").rglob("[0-9]*") if path.is_file()]


@pytest.mark.skipif(not ROOT, reason="needs root to be another user")
def test_others_may_lower_the_class_of_their_mail_and_not_raise_it(shared: Home) -> None:
    Path(shared.control, "priorities").write_text("urgent\nnormal\nbulk\n")
    Path(shared.control, "priorityrules").write_text(f"uid:{USER}:normal\n")
    command = [*as_user(USER, "queue_inject.main"), "--home", shared.path]
    with IntakeDaemon(shared):
        for asked in ("urgent", "bulk", "normal"):
            assert run(command, MAIL, QUEUE_PRIORITY=asked).code == 0
        assert run(command, MAIL).code == 0
    assert classes(shared) == ["bulk", "normal", "normal", "normal"]


@pytest.mark.skipif(not ROOT, reason="needs root to be another user")
def test_mail_in_maildrop_keeps_the_class_that_was_asked_for(shared: Home) -> None:
    Path(shared.control, "priorityrules").write_text(f"sender:low@example.org:bulk\nuid:{OWNER}:bulk\n")
    command = [*as_user(USER, "queue_inject.main"), "--home", shared.path]
    for words in (["--priority", "bulk"], [], ["--priority", "normal", "-f", "low@example.org"]):
        assert run([*command, *words], MAIL).code == 0
    maildrop = Path(shared.queue, "maildrop")
    assert len(list(maildrop.iterdir())) == 3
    with PickupDaemon(shared):
        wait_until(lambda: not list(maildrop.iterdir()), why="queue-pickup")
    assert classes(shared) == ["", "bulk", "bulk"]


def test_what_the_option_says_is_shown_by_help(home: Home) -> None:
    done = run([*program("queue-inject"), "--help"])
    assert b"--priority CLASS" in done.output


@pytest.mark.skipif(not ROOT, reason="needs root to be another user")
def test_the_environment_names_a_submitter_only_for_those_who_may_speak_for_others(shared: Home) -> None:
    with IntakeDaemon(shared):
        for uid, submitter in ((USER, SUBMITTER), (OWNER, SUBMITTER), (OWNER, "no\nsubmitter")):
            command = [*as_user(uid, "queue_inject.main"), "--home", shared.path]
            assert run(command, MAIL, QUEUE_SUBMITTER=submitter).code == 0
    found = [each.envelope for each in queued(shared)]
    assert sorted((each.uid, each.submitter) for each in found) == [
        (OWNER, b""), (OWNER, SUBMITTER.encode()), (USER, b"")
    ]
