"""Messages of a lower class under the crash model: injected, classified, and removed as those in todo/ are."""

import os
from pathlib import Path

import pytest

from queue_base.queue.class_trees import make_class_tree
from queue_wire.files.envelope import unpack_whole_info
from queue_wire.pipes.cleaning import TODO, pack_clean
from queue_wire.pipes.notice import ANNOUNCE, Arrived, Classified
from support.faults.crash.crash_checks import CLASSIFIED, Message, check_queue
from support.faults.crash.crash_model import Crash
from support.faults.crash.crash_place import (
    GONE_OR_SWEPT,
    NAMED,
    WRITER,
    Place,
    classified_when_announced,
    nobody_is_forgotten,
    queue_notices,
    queued_when_exit_code_is_0,
)
from support.plugins.amount import amount

MOST = amount(12, 256)
BULK = "bulk"


def place_of(tmp_path: Path) -> Place:
    """Return a Place with the tree: the model knows no renames of directories."""
    place = Place(tmp_path)
    make_class_tree(place.disk, BULK)
    place.model.restart()
    return place


@pytest.mark.parametrize("writer", [WRITER, NAMED], ids=["nameless", "named"])
def test_an_accepted_message_of_a_class_survives_every_power_cut(tmp_path: Path, writer: str) -> None:
    place = place_of(tmp_path)
    place.enqueue(2, writer, priority=BULK)

    assert len(list(Path(place.home.queue, "priority/bulk").glob("*/*"))) == 2
    assert check_queue(place.model, place.layout, queued_when_exit_code_is_0(2), most=MOST) > 20


def test_an_accepted_message_survives_where_the_maker_of_the_tree_was_killed_before_it_had_synced_its_name(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path)
    maker = f"""
import os
from queue_base.durable import sync_path
top = sys.argv[1] + "/queue/priority"
for path in (top, f"{{top}}/{BULK}", *(f"{{top}}/{BULK}/{{number}}" for number in range({place.disk.split}))):
    os.mkdir(path)
sync_path(f"{{top}}/{BULK}")
"""
    place.enqueue(2, WRITER + maker, priority=BULK)

    assert len(list(Path(place.home.queue, "priority/bulk").glob("*/*"))) == 2
    assert check_queue(place.model, place.layout, queued_when_exit_code_is_0(2), most=MOST) > 20


@pytest.mark.parametrize("flat", [False, True], ids=["hashed", "flat"])
def test_classification_keeps_the_class_and_loses_nobody(tmp_path: Path, flat: bool) -> None:
    place = Place(tmp_path, flat)
    make_class_tree(place.disk, BULK)
    place.enqueue(3, priority=BULK)
    place.model.restart()

    def keeps_its_class(crash: Crash, found: dict[int, Message]) -> list[str]:
        return [
            f"message {number} is classified and has lost its class"
            for number, message in found.items()
            if message.state == CLASSIFIED and unpack_whole_info(message.files["info"].content)[1] != BULK
        ]

    def told(output: bytes) -> bool:
        notices = [each for each in queue_notices(output) if isinstance(each, Arrived | Classified)]
        assert all(each.priority == BULK for each in notices)
        return len(notices) == 3

    place.converse("queue-todo", b"", told)

    checks = nobody_is_forgotten, classified_when_announced, keeps_its_class
    assert check_queue(place.model, place.layout, *checks, most=MOST) > 20


def test_a_message_that_is_announced_and_ends_does_not_come_back_in_the_tree(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    place.enqueue(3, priority=BULK)
    place.model.restart()
    births = {number: os.stat(place.disk.mess(number)).st_mtime_ns // 1000 for number in place.numbers()}

    def is_announced(said: bytes) -> bool:
        found = [each for each in queue_notices(said) if isinstance(each, Arrived)]
        return len(found) == len(births) and all(each.announced and each.priority == BULK for each in found)

    place.converse("queue-todo", ANNOUNCE, is_announced)
    requests = b"".join(pack_clean(number, TODO, None, birth, BULK) for number, birth in births.items())
    place.converse("queue-clean", requests, lambda output: output == b"+++")

    def stays_gone(crash: Crash, found: dict[int, Message]) -> list[str]:
        done = crash.said.endswith(b",+++")
        return [f"message {number} came back" for number in found if done and found[number].state not in GONE_OR_SWEPT]

    assert place.numbers() == []
    assert check_queue(place.model, place.layout, stays_gone, most=512) > 20
