"""Where files are, which state they make, the lock and the trigger: on real directories."""

import errno
import itertools
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from queue_base.daemon.lock import take_sendmutex
from queue_base.errors import Permanent, Temporary
from queue_base.home import Home
from queue_base.queue.layout import Layout, Presence, open_layout
from queue_base.queue.trigger import Trigger, pull_trigger
from support.queues.home import make_home

KINDS = ("mess", "intd", "todo", "info", "local", "remote", "bounce")
# The table in docs/design/queue-on-disk.md: what each state says of KINDS, in their order.
STATES = {1: "-------", 2: "+------", 3: "++-----", 4: "+?+???-", 5: "+--+???"}
TAKE_LOCK = """
import sys
from queue_base.home import Home
from queue_base.daemon.lock import take_sendmutex
handle = take_sendmutex(Home(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("split", [2, 23, 101])
@pytest.mark.parametrize("flat", [False, True])
def test_split_and_flat_directories_are_read_from_the_disk(tmp_path: Path, split: int, flat: bool) -> None:
    layout = open_layout(make_home(tmp_path / "home", split=split, flat=flat).queue)

    assert (layout.split, layout.flat_todo, layout.flat_intd) == (split, flat, flat)
    for kind in ("mess", "info", "todo", "intd", "bounce"):
        assert all(os.path.isdir(directory) for directory in layout.directories(kind))


def test_todo_may_be_flat_and_intd_hashed(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    for number in range(3):
        os.rmdir(f"{home.queue}/todo/{number}")
    Path(home.queue, "todo", "457").touch()

    layout = open_layout(home.queue)

    assert (layout.flat_todo, layout.flat_intd) == (True, False)
    assert layout.todo(457) == f"{home.queue}/todo/457"
    assert layout.intd(457) == f"{home.queue}/intd/1/457"
    assert layout.directories("todo") == [f"{home.queue}/todo"]


def test_paths_are_those_of_the_design() -> None:
    layout = Layout("/q", 23)

    assert layout.mess(457) == "/q/mess/20/457"
    assert layout.hashed("info", 457) == "/q/info/20/457"
    assert layout.todo(23) == "/q/todo/0/23"
    assert layout.bounce(457) == "/q/bounce/457"
    assert layout.directories("bounce") == ["/q/bounce"]


@pytest.mark.parametrize("kind", ["mess", "info", "local", "remote", "todo", "intd"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_missing_bucket_is_named(tmp_path: Path, kind: str, number: int) -> None:
    home = make_home(tmp_path / "home", split=3)
    os.rmdir(f"{home.queue}/{kind}/{number}")

    with pytest.raises(Permanent, match=rf"unable to use {home.queue}/\w+: .* {number}\b"):
        open_layout(home.queue)


def test_a_bucket_that_mess_lacks_is_named(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    os.mkdir(f"{home.queue}/remote/3")

    with pytest.raises(Permanent, match="remote: it has directory 3, which mess/ lacks"):
        open_layout(home.queue)


def test_files_and_other_names_beside_the_buckets_do_not_count(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3)
    Path(home.queue, "mess", "3").touch()
    Path(home.queue, "mess", "notes").mkdir()

    assert open_layout(home.queue).split == 3


def test_a_queue_that_is_not_there_is_temporary_and_one_without_buckets_permanent(tmp_path: Path) -> None:
    with pytest.raises(Temporary, match=f"unable to read {tmp_path}/queue/mess: no such file or directory"):
        open_layout(f"{tmp_path}/queue")
    (tmp_path / "queue" / "mess").mkdir(parents=True)
    with pytest.raises(Permanent, match="no numbered directories"):
        open_layout(f"{tmp_path}/queue")


def test_who_may_read_a_queue_is_told_to_who_may_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    told = f"unable to read {tmp_path}/queue/mess: permission denied; root or its owner may"
    with pytest.raises(Temporary, match=f"^{told}$"):
        open_layout(f"{tmp_path}/queue")


def test_a_queue_without_todo_is_refused(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=3, flat=True)
    os.rmdir(f"{home.queue}/todo")

    with pytest.raises(Permanent, match="/todo"):
        open_layout(home.queue)


def expected_state(present: tuple[bool, ...]) -> int | None:
    signs = "".join("+" if there else "-" for there in present)
    found = [
        state
        for state, pattern in STATES.items()
        if all(wanted in ("?", sign) for wanted, sign in zip(pattern, signs, strict=True))
    ]
    assert len(found) < 2
    return found[0] if found else None


def test_each_of_the_128_combinations_of_files_is_the_state_in_the_table_or_none(tmp_path: Path) -> None:
    layout = open_layout(make_home(tmp_path / "home", split=2).queue)
    paths = {kind: layout.hashed(kind, 7) for kind in KINDS} | {"bounce": layout.bounce(7)}
    seen = []

    for present in itertools.product([False, True], repeat=len(KINDS)):
        for kind, there in zip(KINDS, present, strict=True):
            if there:
                Path(paths[kind]).touch()
            else:
                Path(paths[kind]).unlink(missing_ok=True)
        state = Presence(layout, 7).state()
        assert state == expected_state(present), present
        seen.append(state)

    assert {state: seen.count(state) for state in (1, 2, 3, 4, 5)} == {1: 1, 2: 1, 3: 1, 4: 16, 5: 8}
    assert len(seen) == 128


def test_the_lock_is_refused_to_a_second_process_and_freed_by_the_death_of_the_first(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=2)
    command = [sys.executable, "-c", TAKE_LOCK, home.path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"

        with pytest.raises(Temporary, match="sendmutex: queue-send is already running"):
            take_sendmutex(home)

        holder.kill()
        holder.wait(60)
    os.close(take_sendmutex(home))


def test_the_lock_stays_held_as_long_as_any_process_has_its_descriptor(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=2)
    handle = take_sendmutex(home)
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[handle]) as child:
        os.close(handle)
        with pytest.raises(Temporary):
            take_sendmutex(home)
        child.communicate(timeout=60)
    os.close(take_sendmutex(home))


def test_a_lock_that_cannot_be_opened_is_temporary_and_named(tmp_path: Path) -> None:
    with pytest.raises(Temporary, match=f"unable to open {tmp_path}/queue/lock/sendmutex: no such file or directory"):
        take_sendmutex(Home(str(tmp_path)))


def test_the_trigger_carries_a_byte_for_each_pull(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=2)
    trigger = Trigger(home)
    try:
        assert trigger.clear() == 0
        assert select.select([trigger.descriptor], [], [], 0)[0] == []
        pull_trigger(home)
        pull_trigger(home)
        assert select.select([trigger.descriptor], [], [], 20)[0] == [trigger.descriptor]
        assert trigger.clear() == 2
        assert select.select([trigger.descriptor], [], [], 0)[0] == []
    finally:
        os.close(trigger.descriptor)
        os.close(trigger._writer)


def test_pulling_the_trigger_never_waits_when_nobody_reads_or_the_fifo_is_full(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", split=2)
    pull_trigger(home)
    trigger = Trigger(home)
    try:
        with pytest.raises(BlockingIOError):
            while True:
                os.write(trigger._writer, bytes(4096))
        pull_trigger(home)
        assert trigger.clear() > 0
    finally:
        os.close(trigger.descriptor)
        os.close(trigger._writer)


def test_a_missing_trigger_does_not_stop_an_injector(tmp_path: Path) -> None:
    pull_trigger(Home(str(tmp_path)))

    assert list(tmp_path.iterdir()) == []
