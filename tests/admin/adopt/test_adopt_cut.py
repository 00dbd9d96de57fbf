"""queuectl adopt and adopt --undo, cut off anywhere: either direction finishes, and no message is lost."""

from pathlib import Path

import pytest

from queue_admin.home.adoption import adopt, undo
from queue_admin.home.flatten import flatten
from queue_admin.home.tree import Tree
from queue_base.home import Home
from support.faults.cuts import Cut, cut_after, how_many
from support.inject.qmail_queue import (
    QmailQueue,
    messages_only,
    our_owner,
    qmail_accounts,
    snapshot,
)


def flat(top: Path, split: int) -> int:
    """Make top/todo flat."""
    with Tree(str(top)) as tree:
        return flatten(tree, "todo", split)


def test_a_file_whose_id_is_its_directorys_number_is_flattened_too(tmp_path: Path) -> None:
    for number in range(7):
        (tmp_path / "todo" / str(number)).mkdir(parents=True)
    for message in (3, 10, 5):
        (tmp_path / "todo" / str(message % 7) / str(message)).write_bytes(b"%d" % message)
    assert flat(tmp_path, 7) == 3
    assert {entry.name: entry.read_bytes() for entry in (tmp_path / "todo").iterdir()} == {
        "3": b"3",
        "10": b"10",
        "5": b"5",
    }


def test_a_flattening_cut_off_anywhere_is_finished_by_the_next(tmp_path: Path) -> None:
    def build(top: Path) -> None:
        for number in range(5):
            (top / "todo" / str(number)).mkdir(parents=True)
        for message in (3, 13, 6):
            (top / "todo" / str(message % 5) / str(message)).write_bytes(b"%d" % message)

    build(tmp_path / "whole")
    steps = how_many(lambda: flat(tmp_path / "whole", 5))
    for step in range(steps):
        top = tmp_path / str(step)
        build(top)
        with pytest.MonkeyPatch.context() as patch:
            cut_after(patch, step)
            with pytest.raises(Cut):
                flat(top, 5)
        flat(top, 5)
        left = {entry.name: entry.read_bytes() for entry in (top / "todo").iterdir()}
        assert left == {"3": b"3", "13": b"13", "6": b"6"}, f"cut after {step}"


@pytest.mark.parametrize("part", [0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98, 0.999])
@pytest.mark.parametrize("first", ["adopt", "undo"])
@pytest.mark.parametrize("second", ["adopt", "undo"])
def test_cut_off_anywhere_either_direction_finishes(tmp_path: Path, first: str, second: str, part: float) -> None:
    def run(which: str, home: Home) -> None:
        if which == "adopt":
            adopt(home, our_owner())
        else:
            undo(home, qmail_accounts(), todo="flat")

    def build(path: Path) -> QmailQueue:
        found = QmailQueue(path)
        found.fill()
        if first == "undo":
            adopt(found.home, our_owner())
        return found

    spare = build(tmp_path / "spare")
    steps = how_many(lambda: run(first, spare.home))
    qmail = build(tmp_path / "qmail")
    before = snapshot(Path(qmail.home.path))
    with pytest.MonkeyPatch.context() as patch:
        cut_after(patch, int(steps * part))
        with pytest.raises(Cut):
            run(first, qmail.home)
    run(second, qmail.home)
    after = snapshot(Path(qmail.home.path))
    assert messages_only(after) == messages_only(before)
    run("undo", qmail.home)
    run("adopt", qmail.home)
    adopted = snapshot(Path(qmail.home.path))
    run("undo", qmail.home)
    stock = snapshot(Path(qmail.home.path))
    ours = {name: known[:3] for name, known in after.items()}
    assert ours == {name: known[:3] for name, known in (adopted if second == "adopt" else stock).items()}
