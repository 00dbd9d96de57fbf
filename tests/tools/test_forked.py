"""A program that is forked from one that has loaded its modules does what one that is executed does."""

import os
import resource
import subprocess
from pathlib import Path

import pytest

from queue_base.home import Home
from support.processes import forked
from support.processes.forked import BIN, can_fork, fork_piped
from support.processes.suite import Suite, program, wait_until
from support.queues.home import make_home
from support.queues.inflow import patched_programs

DAEMONS = ("queue-clean", "queue-intake", "queue-local", "queue-pickup", "queue-remote", "queue-todo")

pytestmark = pytest.mark.skipif(not can_fork("queuectl"), reason="all programs are executed")


def both(*words: str) -> tuple[int, bytes, bytes]:
    """Return how queuectl ends and what it says, which must be the same both ways."""
    executed = subprocess.run([*program("queuectl"), *words], capture_output=True, timeout=60)
    process = fork_piped("queuectl", [str(BIN / "queuectl"), *words])
    found = *process.communicate(), process.wait()
    assert found == (executed.stdout, executed.stderr, executed.returncode)
    return executed.returncode, executed.stdout, executed.stderr


def test_it_says_the_same_and_ends_with_the_same_code(home: Home) -> None:
    assert both("--home", home.path, "list")[0] in (0, 1)
    code, said, errors = both("--home", home.path, "no-such-command")
    assert (code, said) == (100, b"") and errors


def test_it_has_the_directory_and_the_environment_of_now(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both("list")  # Its process runs from now on.
    monkeypatch.chdir(tmp_path)
    assert both("--home", "home", "list")[0] in (0, 1)
    monkeypatch.setenv("QUEUE_HOME", home.path)
    assert both("list")[0] in (0, 1)
    monkeypatch.setenv("QUEUE_HOME", str(tmp_path / "nothing"))
    assert both("list")[0] not in (0, 1)


def test_it_has_no_descriptors_but_those_that_it_is_given(home: Home) -> None:
    with Path(home.control, "me").open("rb") as file:
        os.set_inheritable(file.fileno(), True)
        reader, writer = os.pipe()
        process = forked.fork("queue-send", [str(BIN / "queue-send"), "--home", home.path], {1: writer, 2: writer})
        os.close(writer)
    with os.fdopen(reader, "rb") as said:
        assert b"unable to use descriptor" in said.read()
    assert process.wait() == 100


def test_where_a_limit_or_a_variable_of_python_is_another_now_it_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", "/nowhere")
        assert not can_fork("queuectl")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
    try:
        assert not can_fork("queuectl")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert can_fork("queuectl") and not can_fork("queue-inject")


def shown(suite: Suite) -> dict[str, dict[str, object]]:
    """Return what /proc shows of a suite's processes: what execve() keeps, sets, and takes away."""
    found = {}
    pids = {"queue-send": suite.process.pid, **{name: suite.daemon(name) for name in DAEMONS}}
    for name, pid in pids.items():
        top = Path(f"/proc/{pid}")
        status = dict(line.split(":\t", 1) for line in (top / "status").read_text().splitlines() if ":\t" in line)
        kept = {field: status[field].strip() for field in ("SigBlk", "SigIgn", "SigCgt", "Umask", "Uid", "Groups")}
        words = (top / "cmdline").read_bytes().rstrip(b"\0").decode().replace(suite.home.path, "HOME")
        links = {int(path.name): os.readlink(path).replace(suite.home.path, "HOME") for path in (top / "fd").iterdir()}
        files = {number: link.partition(":")[0] for number, link in links.items()}
        directory = os.readlink(top / "cwd").replace(suite.home.path, "HOME")
        session = os.getsid(pid) == suite.process.pid == os.getpgid(pid)
        found[name] = {"words": words, "files": files, "directory": directory, "session": session, **kept}
    return found


def test_the_processes_of_a_forked_suite_are_those_of_an_executed_one(tmp_path: Path) -> None:
    homes = [make_home(tmp_path / name) for name in ("one", "two")]
    with Suite(homes[0], executed=True) as executed, Suite(homes[1]) as forked_one:
        assert (type(executed.process), type(forked_one.process)) == (subprocess.Popen, forked.Forked)
        seen: list[object] = []

        def alike() -> bool:
            seen[:] = shown(executed), shown(forked_one)
            return seen[0] == seen[1]

        try:
            wait_until(alike, why="the same in both")  # They have other files while they start.
        except AssertionError:
            assert seen[0] == seen[1]
    assert executed.process.returncode == forked_one.process.returncode == 0
    assert executed.lines == forked_one.lines


def test_a_forked_suite_that_cannot_start_says_why_and_ends_with_the_same_code(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    Path(home.control, "me").unlink()
    found = []
    for executed in (True, False):
        suite = Suite(home, executed=executed)
        found.append((suite.process.wait(60), suite.stop(), suite.lines))
    assert found[0] == found[1] and found[0][0] == 111 and found[0][2]


def test_of_a_forked_suite_queue_send_has_its_wrapper_and_a_daemon_that_is_another_one_is_executed(
    home: Home, tmp_path: Path
) -> None:
    wrapper = ("sh", "-c", f'echo "$2" >"{tmp_path}/wrapped"; exec "$@"', "sh")
    programs = patched_programs(tmp_path, queue_clean=f"open({str(tmp_path / 'another')!r}, 'w').close()")
    with Suite(home, programs=programs, send_wrapper=wrapper) as suite:
        assert isinstance(suite.process, forked.Forked)
        wait_until((tmp_path / "another").exists)
        others = [suite.daemon(name) for name in DAEMONS if name != "queue-clean"]
        ours = Path(f"/proc/{suite.daemon('queue-clean')}/cmdline").read_bytes()
    assert len(others) == len(DAEMONS) - 1 and os.fsencode(programs / "queue-clean") in ours
    assert (tmp_path / "wrapped").read_text() == f"{BIN / 'queue-send'}\n"


def test_a_suite_whose_programs_that_are_no_daemons_are_others_is_executed(home: Home, tmp_path: Path) -> None:
    with Suite(home, programs=patched_programs(tmp_path, queue_enqueue="import os")) as suite:
        assert isinstance(suite.process, subprocess.Popen)


def test_what_cannot_be_written_at_its_end_gives_the_code_of_python(home: Home) -> None:
    words = ["--home", home.path, "list", "--help"]
    with Path("/dev/full").open("wb") as full, Path(os.devnull).open("r+b") as nothing:
        command = [*program("queuectl"), *words]
        executed = subprocess.run(command, stdin=nothing, stdout=full, stderr=nothing, timeout=60)
        numbers = {0: nothing.fileno(), 1: full.fileno(), 2: nothing.fileno()}
        assert forked.fork("queuectl", [str(BIN / "queuectl"), *words], numbers).wait() == executed.returncode != 0
