"""Messages of a lower class for the administrator: listed, shown, checked, kept by adopt, and moved to todo/ by undo
and repair.
"""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_admin.checks.inspection import inspect
from queue_admin.checks.queue_repair import repair
from queue_admin.checks.structure import find_layout
from queue_admin.home.adoption import adopt, undo
from queue_base.errors import Permanent
from queue_base.queue.class_trees import make_class_tree
from queue_base.queue.layout import CLASS_BIT, open_layout
from queue_wire.files.envelope import pack_info, unpack_info, unpack_whole_info
from queue_wire.ids import pack_long_id
from support.inject.qmail_queue import our_owner, qmail_accounts
from support.queues.listed_queue import BIRTH, Queue, lines

TODO = b"u1\0p2\0Fa@b\0Tc@d\0"


class ClassedQueue:
    """A queue with a waiting bulk message, a classified one, and a waiting one of the first class."""

    def __init__(self, path: Path, flat: bool) -> None:
        self.queue = Queue(path, flat)
        self.layout = self.queue.layout
        make_class_tree(self.layout, "bulk")
        self.layout.learn_classes()
        self.waiting = self.queue.mess()
        self.path = Path(self.layout.todo_in("bulk", self.waiting))
        self.queue.put(str(self.path), TODO)
        self.path.chmod(0o600)
        self.classified = self.queue.classified(remote=b"Tx@y\0")
        self.info = Path(self.layout.hashed("info", self.classified))
        self.queue.put(str(self.info), pack_info(b"a@b", "bulk"))
        self.info.chmod(0o600 | CLASS_BIT)
        self.normal = self.queue.queued()

    def moved(self) -> Path:
        """Return where the waiting message is in todo/."""
        return Path(open_layout(self.queue.home.queue).todo_in("", self.waiting))


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(params=[False, True], ids=["hashed", "flat"])
def classed(tmp_path: Path, request: pytest.FixtureRequest) -> ClassedQueue:
    return ClassedQueue(tmp_path / "home", request.param)


def test_list_show_and_selectors_know_the_trees(classed: ClassedQueue, capsys: pytest.CaptureFixture[str]) -> None:
    queue = classed.queue
    assert queue.run("list", "--format", "json") == 0
    found = {each["message"]: each for each in map(json.loads, lines(capsys))}
    assert {message: each["priority"] for message, each in found.items()} == {
        classed.waiting: "bulk", classed.classified: "bulk", classed.normal: None,
    }  # fmt: skip
    assert found[classed.waiting]["state"] == "queued" and found[classed.waiting]["sender"] == "a@b"
    for words in (["--state", "queued"], ["--recipient", "c@d"]):
        assert queue.run("list", *words) == 0
        assert {line.partition("-")[0] for line in lines(capsys)} == {str(classed.waiting), str(classed.normal)}
    assert queue.run("show", pack_long_id(classed.waiting, BIRTH)) == 0
    shown = lines(capsys)
    assert "priority: bulk" in shown
    assert any(line.startswith("files: ") and f"priority/bulk/{classed.waiting % 23}/" in line for line in shown)


def test_check_finds_what_is_wrong_in_a_tree_and_nothing_else(classed: ClassedQueue) -> None:
    owner = our_owner()
    adopt(classed.queue.home, owner)  # It sets all modes.

    def findings() -> list[tuple[str, str]]:
        layout = find_layout(classed.queue.home.queue)
        found = inspect(layout, (owner.uid, owner.gid), BIRTH / 1e6, 0.0)
        return [(each.code, each.path) for each in found if each.path.startswith(("priority", "info", "todo", "mess"))]

    assert findings() == []
    tree = f"priority/bulk/{classed.waiting % 23}"
    (classed.path.parent / "odd").write_text("")
    classed.path.parent.chmod(0o777)
    os.rmdir(f"{classed.queue.home.queue}/priority/bulk/{(classed.waiting + 1) % 23}")
    assert {("stray", f"{tree}/odd"), ("mode", tree)} <= set(findings())
    assert ("split", f"priority/bulk/{(classed.waiting + 1) % 23}") in findings()


def test_repair_moves_what_waits_to_todo(classed: ClassedQueue) -> None:
    repair(classed.queue.home, None, False)
    assert not Path(classed.queue.home.queue, "priority").exists()
    assert classed.moved().read_bytes() == TODO
    assert stat.S_IMODE(classed.info.stat().st_mode) == 0o600 | CLASS_BIT
    assert open_layout(classed.queue.home.queue).lower == ()


def test_a_copy_has_the_class_of_what_is_classified(classed: ClassedQueue, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    assert classed.queue.run("copy", str(target)) == 0
    found = [path for path in target.glob("queue/info/*/*") if path.is_file()]
    assert [unpack_whole_info(path.read_bytes())[1] for path in found] == ["bulk"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in found] == [0o600 | CLASS_BIT]
    todo = [path for path in target.glob("queue/todo/**/*") if path.is_file()]
    assert len(todo) == 2 and not (target / "queue/priority").exists()


def test_what_is_no_message_in_priority_keeps_repair_from_nothing(classed: ClassedQueue) -> None:
    queue = Path(classed.queue.home.queue)
    bucket = classed.path.parent
    (queue / "priority" / "notes").write_text("x")
    (queue / "priority" / "bulk" / "notes").mkdir()
    (bucket / str(classed.waiting + 23)).mkdir()
    (bucket / str(classed.waiting + 46)).symlink_to("nowhere")
    # Another file of a message with a file in todo/: it is none of the class.
    (bucket / str(classed.normal)).write_bytes(TODO)
    for _ in range(2):
        repair(classed.queue.home, None, False)
        assert classed.moved().read_bytes() == TODO and not (queue / "repair").exists()
        assert open_layout(classed.queue.home.queue).lower == ()
    [left] = [path for path in (queue / "priority").iterdir() if path.name.startswith(".bulk.")]
    assert len(list((left / bucket.name).iterdir())) == 3


def test_another_split_leaves_no_tree_of_the_old_one(tmp_path: Path) -> None:
    classed = ClassedQueue(tmp_path / "home", False)
    repair(classed.queue.home, 7, False)
    layout = open_layout(classed.queue.home.queue)
    assert layout.split == 7 and Path(layout.todo_in("", classed.waiting)).read_bytes() == TODO


def test_adopt_keeps_the_trees_and_undo_moves_them_to_todo(tmp_path: Path) -> None:
    classed = ClassedQueue(tmp_path / "home", True)
    home = classed.queue.home
    for _ in range(2):
        adopt(home, our_owner())
        assert classed.path.read_bytes() == TODO
        assert stat.S_IMODE(classed.info.stat().st_mode) == 0o600 | CLASS_BIT
    done = undo(home, qmail_accounts())
    assert "moved 1 files of priority/ to todo/" in done
    moved = Path(home.queue, "todo", str(classed.waiting))
    assert moved.read_bytes() == TODO and stat.S_IMODE(moved.stat().st_mode) == 0o644
    assert not Path(home.queue, "priority").exists()
    assert unpack_info(classed.info.read_bytes()) == b"a@b"
    adopt(home, our_owner())
    # Without it queue-send would not read the class, which is there still.
    assert stat.S_IMODE(classed.info.stat().st_mode) == 0o600 | CLASS_BIT
    assert unpack_whole_info(classed.info.read_bytes())[:2] == (b"a@b", "bulk")


def test_undo_removes_copies_for_the_postmaster_only_with_force_and_names_them(tmp_path: Path) -> None:
    home = ClassedQueue(tmp_path / "home", True).queue.home
    adopt(home, our_owner())
    (Path(home.queue) / "postman" / "17_no-date").write_text("x")
    with pytest.raises(Permanent, match="postman has 17_no-date; read and remove them"):
        undo(home, qmail_accounts())
    done = undo(home, qmail_accounts(), force=True)
    assert f"removed 1 copies for the postmaster from {home.queue}/postman: 17_no-date" in done


def test_undo_refuses_a_tree_with_what_is_no_message_before_anything_has_changed(tmp_path: Path) -> None:
    classed = ClassedQueue(tmp_path / "home", True)
    adopt(classed.queue.home, our_owner())
    odd = classed.path.parent / "odd"
    odd.write_text("")
    mode = os.stat(classed.queue.home.queue).st_mode
    with pytest.raises(Permanent, match="odd: it is no message; move it away"):
        undo(classed.queue.home, qmail_accounts())
    assert classed.path.exists() and os.stat(classed.queue.home.queue).st_mode == mode
