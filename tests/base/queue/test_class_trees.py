"""The trees of the classes: made whole or not at all, found by who has the queue open, and what is in them found."""

import os
from pathlib import Path

import pytest

import queue_base.queue.layout
from queue_base.errors import Permanent, Usage
from queue_base.queue.class_trees import check_class, make_class_tree, order_classes, read_classes
from queue_base.queue.layout import Layout, Presence, files_beside_mess, open_layout
from queue_base.queue.writer import QueueDraft, QueueWriter
from support.queues.home import make_home


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return open_layout(make_home(tmp_path / "home", split=3).queue)


def test_without_trees_every_message_is_in_todo(layout: Layout) -> None:
    assert layout.lower == () and layout.class_of(7) == ""
    assert layout.todo(7) == layout.todo_in("", 7) == layout.hashed("todo", 7)
    assert layout.todo_paths(7) == [layout.todo(7)]


def test_a_tree_that_another_process_makes_is_known_soon(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    assert layout.class_of(7) == ""
    other = open_layout(layout.queue)
    make_class_tree(other, "bulk")
    Path(other.todo_in("bulk", 7)).write_bytes(b"x")
    monkeypatch.setattr(queue_base.queue.layout, "LOOK_SECONDS", 0.0)
    layout._look_at = 0.0
    assert layout.class_of(7) == "bulk" and layout.lower == ("bulk",)
    assert layout.todo(7) == f"{layout.queue}/priority/bulk/1/7"
    assert layout.directories("todo")[3:] == [f"{layout.queue}/priority/bulk/{number}" for number in range(3)]
    assert layout.todo_in("bulk", 7) in files_beside_mess(layout, 7)
    assert Presence(layout, 7).todo


def test_a_tree_is_made_once_and_whole(layout: Layout) -> None:
    make_class_tree(layout, "bulk")
    Path(layout.todo_in("bulk", 7)).write_bytes(b"x")
    make_class_tree(layout, "bulk")
    assert Path(layout.todo_in("bulk", 7)).exists()
    assert os.listdir(f"{layout.queue}/priority") == ["bulk"]
    # What an interrupted maker leaves is no tree.
    os.mkdir(f"{layout.queue}/priority/.later.123")
    assert open_layout(layout.queue).lower == ("bulk",)


def test_a_tree_that_lacks_a_directory_is_an_error_that_names_it(layout: Layout) -> None:
    make_class_tree(layout, "bulk")
    os.rmdir(f"{layout.queue}/priority/bulk/2")
    with pytest.raises(Permanent, match="priority/bulk: it lacks directory 2"):
        open_layout(layout.queue)


def test_the_classes_are_in_the_order_of_the_file_and_those_not_named_are_last(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    layout = open_layout(home.queue)
    for name in ("a", "b", "c"):
        make_class_tree(layout, name)
    layout.learn_classes()
    assert read_classes(home) == ("normal", "bulk")
    Path(home.control, "priorities").write_text("first\nc\na\n")
    assert order_classes(home, layout) == ("c", "a", "b")
    assert check_class(home, "a") == "a"
    with pytest.raises(Usage, match="there are first, c, a"):
        check_class(home, "b")


def test_what_an_earlier_message_left_in_a_tree_goes_before_its_number_is_used(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    layout = open_layout(home.queue)
    make_class_tree(layout, "bulk")
    writer = QueueWriter(home, open_layout(home.queue), os.getuid())
    draft = writer.begin()
    assert isinstance(draft, QueueDraft)
    number = os.fstat(draft._handle).st_ino
    left = Path(layout.todo_in("bulk", number))
    left.write_bytes(b"u1\0p2\0Fold@x\0Told@y\0")
    draft.write(b"new\n")
    draft.finish(b"a@b", [b"c@d"])
    writer.commit([draft])
    assert draft.message == number and not left.exists() and Path(layout.todo_in("", number)).exists()
