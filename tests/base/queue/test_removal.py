"""Removing the files of many messages: what is left in intd/, and a disk that has unlink wait."""

import itertools
import os
import resource
import threading
from pathlib import Path

import pytest

from queue_base.queue.layout import open_layout
from queue_base.queue.removal import SAMPLE, remove_files, remove_messages
from queue_wire.pipes.cleaning import TODO, Removal
from support.queues.home import make_home


def files_in(top: Path, directories: int, each: int) -> list[str]:
    """Make files in some directories; return their paths."""
    paths = [top / str(number) / str(name) for name in range(each) for number in range(directories)]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    return list(map(str, paths))


@pytest.mark.parametrize("left", [0, 2])
def test_of_many_unclassified_messages_those_that_have_a_file_in_intd_lose_it_too(tmp_path: Path, left: int) -> None:
    layout = open_layout(make_home(tmp_path / "home", split=3).queue)
    messages = range(1, 31)
    for message in messages:
        Path(layout.mess(message)).write_bytes(b"m")
        Path(layout.todo(message)).write_bytes(b"t")
    for message in [*messages[:left], 31]:
        Path(layout.intd(message)).write_bytes(b"t")

    assert remove_messages(layout, [Removal(message, TODO, None, 1) for message in messages]) == {}

    found = [path for kind in ("mess", "todo", "intd") for path in Path(layout.queue, kind).glob("*/*")]
    assert found == [Path(layout.intd(31))]


@pytest.mark.parametrize("waits", [False, True])
def test_where_unlink_waits_for_the_disk_several_threads_remove_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    paths = files_in(tmp_path, 4, SAMPLE)
    absent, directory = f"{tmp_path}/0/absent", f"{tmp_path}/3"
    removers: list[int] = []
    another = threading.Event()
    unlink = os.unlink

    def remove(path: str) -> None:
        removers.append(threading.get_ident())
        if threading.current_thread() is not threading.main_thread():
            another.set()
        elif waits and len(removers) > SAMPLE:
            another.wait(60)
        unlink(path)

    usage = itertools.count(0, SAMPLE if waits else 1)
    monkeypatch.setattr(resource, "getrusage", lambda who: resource.struct_rusage([0] * 14 + [next(usage), 0]))
    monkeypatch.setattr(os, "unlink", remove)

    errors = remove_files([*paths, absent, directory])

    assert (len(set(removers)) > 1) == waits
    assert set(removers[:SAMPLE]) == {threading.get_ident()}
    assert list(errors) == [directory]
    assert not any(map(os.path.exists, paths))
