"""Files of other accounts in a queue, as after a restore or by a user's hard link: check names them, repair ends."""

import os
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from support.processes.forked import run_program
from support.queues.home import make_home
from support.queues.others import ACCOUNT, STRANGER, give
from support.queues.queued import queue_message, store_on_demand


@pytest.fixture
def foreign(place: Path) -> Home:
    """A home whose queue belongs to an account, where root runs queuectl."""
    home = make_home(place / "home", split=3)
    queue_message(home, [b"a@c.example"])
    give(home.path)
    run(home, "repair")
    return home


def run(home: Home, *words: str) -> tuple[int, str]:
    done = run_program("queuectl", "--home", home.path, *words)
    return done.returncode, (done.stdout + done.stderr).decode()


def test_the_owner_of_the_standing_holds_and_of_what_is_held_in_maildrop_is_set(foreign: Home) -> None:
    assert run(foreign, "check")[0] == 0, run(foreign, "check")
    holds, held = Path(foreign.queue, "holds"), Path(foreign.queue, "hold", "maildrop")
    holds.write_text("uid=7 reason=x\n")
    held.mkdir()
    mail = held / ("mail." + "a" * 32)
    mail.write_text("x")
    os.chown(mail, STRANGER, STRANGER)
    code, said = run(foreign, "check")
    assert code == 1 and "holds belongs to uid 0" in said and "hold/maildrop belongs to uid 0" in said
    assert run(foreign, "repair")[0] == 0
    assert run(foreign, "check")[0] == 0, run(foreign, "check")
    assert (holds.stat().st_uid, held.stat().st_uid, mail.stat().st_uid) == (ACCOUNT, ACCOUNT, STRANGER)


@pytest.mark.parametrize("kind", ["todo", "mess", "info", "local", "bounce"])
def test_a_file_of_a_stranger_with_two_names_keeps_repair_from_nothing(foreign: Home, kind: str) -> None:
    layout = open_layout(foreign.queue)
    secret = Path(foreign.path).with_name("secret")
    secret.write_text("x")
    os.chown(secret, STRANGER, STRANGER)
    secret.chmod(0o600)
    # One in its directory, and one in another; neither number is that of a message.
    for number, bucket in ((30_000_000, 0), (30_000_001, 0)):
        path = Path(layout.bounce(number) if kind == "bounce" else f"{foreign.queue}/{kind}/{bucket}/{number}")
        os.link(secret, path)
    code, said = run(foreign, "repair")
    assert code == 0, said
    assert not Path(foreign.queue, "repair").exists()
    assert secret.stat().st_uid == STRANGER and secret.read_text() == "x"
    assert len(list(Path(foreign.queue, "todo").glob("*/*"))) == 1, "the message is still there"
    assert run(foreign, "repair")[0] == 0
    assert all(line.startswith("corrupt/unplaced/") for line in run(foreign, "check")[1].splitlines())


def test_nor_does_one_in_what_is_stored_on_demand(foreign: Home) -> None:
    store_on_demand(foreign, b"d.example", [[b"joe@d.example"]])
    place, secret = Path(foreign.queue, "ondemand", "d.example"), Path(foreign.path).with_name("secret")
    secret.write_text("x")
    os.chown(secret, STRANGER, STRANGER)
    secret.chmod(0o600)
    for name in ("2.cluster", "mess/2.30000000-gk2x9w", "mess/notes", "notes"):
        os.link(secret, place / name)
    for _ in range(2):
        code, said = run(foreign, "repair")
        assert code == 0, said
        assert not Path(foreign.queue, "repair").exists() and secret.read_text() == "x"
    assert " joe@d.example" in run(foreign, "stored", "d.example")[1]
