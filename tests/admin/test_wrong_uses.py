"""Wrong uses of queuectl, and output that cannot be written: one clear line on stderr, the right exit code."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from support.processes.forked import BIN, fork
from support.processes.suite import program
from support.queues.listed_queue import Queue

FULL = "/dev/full"
ABSENT = "99999999-abc"


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Queue:
    """A queue with a message, in a directory to which everybody can walk."""
    made = Queue(tmp_path_factory.mktemp("wrong") / "home")
    made.classified(remote=b"Tc@d.example\0")
    return made


def run(queue: Queue, *words: str, output: str = os.devnull) -> tuple[int, str]:
    """Run queuectl as a process with its stdout in a file; return its exit code and its stderr."""
    reader, writer = os.pipe()
    out, nothing = os.open(output, os.O_WRONLY), os.open(os.devnull, os.O_RDONLY)
    try:
        named = words if "--home" in words else ("--home", queue.home.path, *words)
        process = fork("queuectl", [str(BIN / "queuectl"), *named], {0: nothing, 1: out, 2: writer})
    finally:
        for descriptor in (writer, out, nothing):
            os.close(descriptor)
    process.stderr = os.fdopen(reader, "rb")
    errors = process.communicate()[1].decode()
    return process.wait(), errors


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        # Misspelt.
        ("lst", 100, "fatal: No such command 'lst'. Did you mean 'list'?"),
        ("list --state hel", 100, "fatal: Invalid value for '--state': 'hel' is not one of 'queued', "),
        ("completion", 100, "fatal: Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish "),
        ("config show queuelifetme", 100, "fatal: there is no control file queuelifetme; do you mean queuelifetime?"),
        ("bounce --older-than soon", 100, "fatal: unable to read 'soon' as a length of time: it is a number and s, m,"),
        ("delete --size big", 100, "fatal: unable to read 'big' as a size: "),
        ("shape nothing", 100, "fatal: Invalid value for '[QUEUE]...': 'nothing' is not one of 'incoming', "),
        ("metrics --listen 9125", 100, "fatal: unable to listen on '9125': it is ADDRESS:PORT, as in "),
        # Missing.
        ("show", 100, "fatal: Missing argument 'ID'."),
        ("hold", 100, "fatal: give long ids, or selectors, or --all"),
        ("log", 100, "fatal: give the ID of a message, or --follow"),
        ("config set me", 100, "fatal: config set needs either values or --unset"),
        # Homes.
        ("--home /nonexistent list", 111, "fatal: unable to read /nonexistent/queue/mess: no such file or directory"),
        ("--home /nonexistent stored", 111, "fatal: unable to read /nonexistent/queue/mess: no such file or "),
        ("--home /nonexistent config", 111, "fatal: unable to read /nonexistent/control: it is not there; queuectl "),
        ("--home /nonexistent check", 111, "fatal: unable to use /nonexistent/queue: no such file or directory; "),
        ("--home /nonexistent adopt", 100, "fatal: unable to use /nonexistent: /nonexistent/control is not there; "),
        ("--home /dev/null mailq", 111, "fatal: unable to read /dev/null/queue/mess: not a directory"),
        ("--home EMPTY delete --all", 100, "fatal: unable to use '' as a home: it needs a directory"),
        ("repair EMPTY", 100, "fatal: unable to use '' as a home: it needs a directory"),
        ("copy HOME", 100, "fatal: unable to copy HOME into itself"),
        ("copy /nonexistent/copy", 111, "fatal: unable to copy /nonexistent/copy.new: no such file or directory\n"),
        ("repair --split 4", 100, "fatal: unable to use split 4: it is not prime; the nearest are 3 and 5"),
        # Ids.
        ("show abc", 100, "fatal: unable to use this id: not a message id: 'abc'"),
        ("show EMPTY", 100, "fatal: unable to use this id: not a message id: ''"),
        (f"show {ABSENT}", 1, f"fatal: unable to find message {ABSENT}: no such message"),
        ("hold 99999999", 1, "fatal: unable to find message 99999999: no such message"),
        ("show 99999999", 1, "fatal: unable to find message 99999999: no such message"),
        (f"list {ABSENT}", 1, f"fatal: unable to find {ABSENT}: no such message"),
        (f"log {ABSENT} --logs HOME/control", 1, f"fatal: unable to find message {ABSENT}: no line about it in "),
        ("log 99999999 --logs HOME/control", 1, "fatal: unable to find message 99999999: it is not in the queue; "),
        ("stored nosuch.example", 1, "fatal: unable to find nosuch.example: nothing is stored for it"),
        ("stored nosuch.example --delete", 1, "fatal: unable to find nosuch.example: nothing is stored for it"),
        (f"stored nosuch.example {ABSENT}", 1, f"fatal: unable to find {ABSENT}: it is not stored for nosuch.example"),
        ("postman show 1_no-date", 1, "fatal: unable to find HOME/queue/postman/1_no-date: no such copy; queuectl "),
        (f"log {ABSENT} --logs /nonexistent", 100, "fatal: unable to read /nonexistent: no such file or directory"),
        # Values.
        ("config set concurrencyremote 1 2", 100, "fatal: unable to set control/concurrencyremote line 2: this file "),
        ("config set concurrencyremote x", 100, "fatal: unable to set control/concurrencyremote line 1: not a number "),
        ("config set --unset me", 100, "fatal: unable to remove control/me: it has no default"),
        # Not a terminal, not running.
        ("top --watch", 100, "fatal: unable to watch: stdin and stdout are not a terminal"),
        ("destinations", 111, "fatal: unable to show destinations: queue-send does not run; nothing is tried"),
    ],
)
def test_a_wrong_use_is_told_in_one_line(queue: Queue, words: str, code: int, told: str) -> None:
    given = [word.replace("HOME", queue.home.path).replace("EMPTY", "") for word in words.split()]
    found, errors = run(queue, *given)
    assert errors.startswith(f"queuectl: {told.replace('HOME', queue.home.path)}"), errors
    assert (found, errors.count("\n")) == (code, 1)


@pytest.mark.parametrize(
    "words",
    ["list", "list -0", "mailq", "stat", "shape", "--help", "hold --all --dry-run", "metrics --print dashboard",
     "check --help", "completion zsh", "version"],
)  # fmt: skip
def test_output_to_a_full_disk_is_an_error_that_says_so(queue: Queue, words: str) -> None:
    told = "queuectl: fatal: unable to write standard output: no space left on device\n"
    code, errors = run(queue, *words.split(), output=FULL)
    assert (code, errors.removeprefix("would have held 1 message\n")) == (111, told)


def test_an_id_of_a_message_that_is_gone_is_named(queue: Queue) -> None:
    for verb in ("hold", "release", "delete", "bounce", "flush", "requeue"):
        assert run(queue, verb, ABSENT) == (1, f"{ABSENT}: no such message\n")


def test_a_working_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    told = "queuectl: fatal: unable to use the working directory: no such file or directory\n"
    os.mkdir(gone)
    script = f"cd '{gone}' && rmdir '{gone}' && exec {shlex.join(program('queuectl'))} --home . list"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (111, "", told)


def test_an_option_of_the_whole_program_behind_a_command_is_told_its_place(queue: Queue) -> None:
    code, errors = run(queue, "check", "--queue", "other")
    advice = "; it goes before the command: queuectl --queue … (queuectl check --help tells more)\n"
    assert code == 100 and errors.startswith("queuectl: fatal: No such option") and errors.endswith(advice)
