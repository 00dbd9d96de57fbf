"""The crash model itself: it allows what POSIX allows, and catches each wrong order of durable steps.

Every trace here is of a real process under strace, a short script that uses queue_base.durable as the programs do.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from queue_base.layout import Layout, open_layout
from support.crash_checks import QUEUED, Message, broken, check_queue
from support.crash_model import Crash, CrashModel, Unsupported
from support.home import make_home
from support.strace import strace_command

HEAD = """
import os, sys
from queue_base.durable import Commit, sync_filesystem, sync_path
"""
# A message the right way: mess whole, then intd whole, then todo's name.
INJECT = (
    HEAD
    + """
queue = sys.argv[1]
commit = Commit()
with open(queue + "/pid/x", "xb", buffering=0) as file:
    number = os.fstat(file.fileno()).st_ino
    file.write(b"Subject: hello\\n\\nThis is the body.\\n")
mess, intd, todo = (f"{queue}/{kind}/{number % 3}/{number}" for kind in ("mess", "intd", "todo"))
def enter():
    os.link(queue + "/pid/x", mess)
    os.unlink(queue + "/pid/x")
def envelope():
    commit.create(intd, b"u1\\0p2\\0Fa@example.org\\0Tb@example.net\\0", 0o600)
"""
)
RIGHT = """
enter(); commit.written(mess); commit.sync()
envelope(); commit.sync()
commit.link(intd, todo); commit.sync()
os.write(1, b"queued")
"""
# A wrong order, and what the model finds wrong with it.
WRONG = {
    "todo's directory is never synced": (
        "queued was said, and the states are [3]",
        """
enter(); commit.written(mess); commit.sync()
envelope(); commit.sync()
os.link(intd, todo)
os.write(1, b"queued")
""",
    ),
    "mess's directory is never synced": (
        "is in no state: it has intd",
        """
enter(); sync_path(mess)
envelope(); commit.sync()
commit.link(intd, todo); commit.sync()
os.write(1, b"queued")
""",
    ),
    "mess's contents are never synced": (
        "is in S4 and its mess is not whole",
        """
enter(); sync_path(os.path.dirname(mess))
envelope(); commit.sync()
commit.link(intd, todo); commit.sync()
os.write(1, b"queued")
""",
    ),
    "intd is made before mess is safe": (
        "is in no state: it has intd",
        """
enter(); commit.written(mess)
envelope(); commit.sync()
commit.link(intd, todo); commit.sync()
os.write(1, b"queued")
""",
    ),
    "todo is linked before its contents are safe": (
        "is in S4 and its todo is not whole",
        """
enter(); commit.written(mess); commit.sync()
envelope()
commit.link(intd, todo); commit.sync()
os.write(1, b"queued")
""",
    ),
    "queued is said before the last sync": (
        "queued was said, and the states are [3]",
        """
enter(); commit.written(mess); commit.sync()
envelope(); commit.sync()
commit.link(intd, todo)
os.write(1, b"queued")
commit.sync()
""",
    ),
    "mess is named after another inode": (
        "has the inode number",
        """
enter(); commit.written(mess); commit.sync()
os.rename(mess, mess + "3"); commit.written(mess + "3"); commit.sync()
os.write(1, b"")
""",
    ),
}


def traced(root: Path, script: str, *arguments: str) -> CrashModel:
    """Return the model of `root` after a Python script was run and traced; fail where the script does."""
    model = CrashModel(root)
    output = root.parent / "trace"
    command = [sys.executable, "-c", script, *arguments]
    subprocess.run(strace_command(output, command), check=True, timeout=60, stdout=subprocess.PIPE)
    model.load(output)
    return model


def inject(tmp_path: Path, steps: str) -> tuple[CrashModel, Layout]:
    home = make_home(tmp_path / "home", split=3)
    model = traced(Path(home.queue), INJECT + steps, home.queue)
    return model, Layout("", open_layout(home.queue).split)


def said_queued(crash: Crash, found: dict[int, Message]) -> list[str]:
    """After `queued` was said there is one message, in S4."""
    states = [message.state for message in found.values()]
    return [] if crash.said != b"queued" or states == [QUEUED] else [f"queued was said, and the states are {states}"]


def test_the_right_order_of_an_injection_survives_every_power_cut(tmp_path: Path) -> None:
    model, layout = inject(tmp_path, RIGHT)

    assert check_queue(model, layout, said_queued) > 20


@pytest.mark.parametrize("order", WRONG)
def test_a_wrong_order_of_an_injection_is_caught_where(tmp_path: Path, order: str) -> None:
    wrong, steps = WRONG[order]
    model, layout = inject(tmp_path, steps)

    lines = broken(model, layout, said_queued)[1]

    assert any(wrong in line for line in lines), lines


def disks(root: Path, script: str) -> list[dict[str, bytes]]:
    """Return the disks that a power cut at the end of a script may leave."""
    root.mkdir(exist_ok=True)
    crashes = list(traced(root, HEAD + "os.chdir(sys.argv[1])\n" + script, str(root)).crashes())
    last = [{path: file.content for path, file in crash.files.items()} for crash in crashes if crash.exit_code == 0]
    return [disk for number, disk in enumerate(last) if disk not in last[:number]]


def test_a_new_file_that_nobody_synced_may_be_missing_or_hold_any_piece(tmp_path: Path) -> None:
    found = disks(tmp_path / "r", "Commit().create('./a', b'abcd', 0o600)")

    assert sorted(found, key=repr) == sorted(
        [{}, {"a": b""}, {"a": b"ab"}, {"a": b"abcd"}, {"a": bytes(4)}],
        key=repr,
    )


def test_a_synced_file_keeps_its_contents_but_not_its_name(tmp_path: Path) -> None:
    found = disks(tmp_path / "r", "Commit().create('./a', b'abcd', 0o600); sync_path('a')")

    assert found == [{}, {"a": b"abcd"}]


def test_a_synced_directory_keeps_the_name_but_not_the_contents(tmp_path: Path) -> None:
    found = disks(tmp_path / "r", "Commit().create('./a', b'abcd', 0o600); sync_path('.')")

    assert {} not in found
    assert {"a": b""} in found


@pytest.mark.parametrize("sync", ["os.sync()", "sync_filesystem(os.open('.', os.O_RDONLY))"])
def test_a_sync_of_the_file_system_keeps_everything(tmp_path: Path, sync: str) -> None:
    found = disks(tmp_path / "r", f"Commit().create('./a', b'abcd', 0o600); os.rename('a', 'b'); {sync}")

    assert found == [{"b": b"abcd"}]


def test_the_names_of_a_rename_may_change_one_without_the_other(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "a").write_bytes(b"1")

    found = disks(tmp_path / "r", "os.rename('a', 'b')")

    assert sorted(map(sorted, found)) == [[], ["a"], ["a", "b"], ["b"]]


def test_a_removal_that_nobody_synced_may_be_undone(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "a").write_bytes(b"1")

    assert disks(tmp_path / "r", "os.unlink('a')") == [{"a": b"1"}, {}]
    assert disks(tmp_path / "r", "") == [{}]


def test_a_mark_written_in_place_is_the_old_or_the_new_byte(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "a").write_bytes(b"Tx\0Ty\0")

    found = disks(tmp_path / "r", "os.pwrite(os.open('a', os.O_WRONLY), b'D', 3)")

    assert found == [{"a": b"Tx\0Ty\0"}, {"a": b"Tx\0Dy\0"}]


def test_what_was_appended_may_be_missing_or_a_piece_and_what_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "a").write_bytes(b"old")

    found = disks(tmp_path / "r", "os.write(os.open('a', os.O_WRONLY | os.O_APPEND), b'1234')")

    assert {"a": b"old"} in found
    assert {"a": b"old12"} in found
    assert all(disk["a"].startswith(b"old") for disk in found)


def test_files_in_a_directory_whose_own_name_is_lost_are_lost(tmp_path: Path) -> None:
    script = "os.mkdir('d'); Commit().create('d/a', b'1', 0o600); sync_path('d/a'); sync_path('d')"

    found = disks(tmp_path / "r", script)

    assert found == [{}, {"d/a": b"1"}]


def test_a_child_process_and_a_duplicated_descriptor_write_to_the_same_file(tmp_path: Path) -> None:
    script = """
a = os.open('a', os.O_WRONLY | os.O_CREAT)
os.write(a, b'1')
if os.fork() == 0:
    os.write(os.dup(a), b'2')
    os._exit(0)
os.wait()
os.write(a, b'3')
os.fsync(a)
sync_path('.')
"""
    assert disks(tmp_path / "r", script) == [{"a": b"123"}]


def test_many_open_choices_are_sampled_with_the_extremes(tmp_path: Path) -> None:
    found = disks(tmp_path / "r", "[Commit().create(f'./{n}', b'abcd', 0o600) for n in range(7)]")

    assert {} in found
    assert {str(number): b"abcd" for number in range(7)} in found
    assert len(found) > 500


def test_a_call_that_the_model_does_not_know_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()

    with pytest.raises(Unsupported, match="symlink"):
        disks(tmp_path / "r", "os.symlink('a', 'b')")
