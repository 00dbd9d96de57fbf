"""The crash model follows a trace in which calls of two processes are mixed, as strace writes it on a busy machine."""

import re
from pathlib import Path

import pytest

from support.faults.crash.crash_model import CrashModel
from support.faults.strace import read_trace

OPEN = '10 openat(AT_FDCWD<ROOT>, "a", O_WRONLY|O_CREAT|O_CLOEXEC, 0777) = 3<ROOT/a>\n10 write(3<ROOT/a>, "1", 1) = 1\n'
CHILD = '11 fcntl(3<ROOT/a>, F_DUPFD_CLOEXEC, 0) = 4<ROOT/a>\n11 write(4<ROOT/a>, "2", 1) = 1\n'
END = '10 write(3<ROOT/a>, "3", 1) = 1\n10 fsync(3<ROOT/a>) = 0\n10 fsync(4<ROOT>) = 0\n10 +++ exited with 0 +++\n'
ORDERS = {
    "the clone, then the child": "10 clone(flags=SIGCHLD) = 11\n" + CHILD,
    "the child while the clone is unfinished": (
        "10 clone(flags=SIGCHLD <unfinished ...>\n" + CHILD + "10 <... clone resumed>) = 11\n"
    ),
    "the child, then the whole clone": CHILD + "10 clone3({flags=CLONE_VM|CLONE_VFORK}, 88) = 11\n",
    "a clone that is restarted": (
        "10 fork() = ? ERESTARTNOINTR (To be restarted)\n10 fork( <unfinished ...>\n"
        + CHILD
        + "10 <... fork resumed>) = 11\n"
    ),
}


def written(path: Path, root: Path, text: str) -> Path:
    """Write a trace, with its strings in hex as `strace -xx` has them; ROOT stands for a directory."""

    def in_hex(found: re.Match[str]) -> str:
        return '"' + "".join(f"\\x{byte:02x}" for byte in found[1].encode()) + '"'

    path.write_text(re.sub(r'"(.*?)"', in_hex, text).replace("ROOT", str(root)))
    return path


def disks(model: CrashModel) -> list[dict[str, bytes]]:
    """Return the disks that a power cut at the end may leave."""
    last = [crash.files for crash in model.crashes() if crash.exit_code == 0]
    return [{path: file.content for path, file in files.items()} for files in last]


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_a_child_has_its_parents_descriptors_also_where_it_runs_before_the_clone_returns(
    tmp_path: Path, order: str
) -> None:
    (tmp_path / "r").mkdir()
    model = CrashModel(tmp_path / "r")

    model.load(written(tmp_path / "trace", tmp_path / "r", OPEN + order + END))

    assert disks(model) == [{"a": b"123"}]


def test_a_sync_of_all_file_systems_keeps_everything(tmp_path: Path) -> None:
    """Written, because a real one waits for all that anybody on the machine has written."""
    (tmp_path / "r").mkdir()
    model = CrashModel(tmp_path / "r")

    model.load(written(tmp_path / "trace", tmp_path / "r", OPEN + "10 sync() = 0\n10 +++ exited with 0 +++\n"))

    assert disks(model) == [{"a": b"1"}]


def test_a_process_that_is_killed_in_a_seek_leaves_what_it_wrote_before(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    model = CrashModel(tmp_path / "r")
    killed = "10 fsync(3<ROOT/a>) = 0\n10 fsync(4<ROOT>) = 0\n10 lseek(3<ROOT/a>, 0, SEEK_SET) = ?\n"

    model.load(written(tmp_path / "trace", tmp_path / "r", OPEN + killed + "10 +++ killed by SIGKILL +++\n"))

    assert [sorted(crash.files) for crash in model.crashes()][-1] == ["a"]


def test_a_process_with_the_number_of_one_that_has_ended_is_the_child_of_its_own_parent(tmp_path: Path) -> None:
    text = (
        "10 fork() = 11\n11 close(3</a>) = 0\n11 +++ exited with 0 +++\n"
        "10 vfork( <unfinished ...>\n11 close(4</b>) = 0\n10 <... vfork resumed>) = 11\n10 +++ exited with 0 +++\n"
    )

    calls = list(read_trace(written(tmp_path / "trace", tmp_path, text)))

    assert [(call.pid, call.name) for call in calls if not call.began] == [
        (10, "fork"), (11, "close"), (11, "exited"), (10, "vfork"), (11, "close"), (10, "exited"),
    ]  # fmt: skip
