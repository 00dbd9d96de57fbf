"""What becomes of a command whose standard output is full, closed, or a pipe that nobody reads."""

import os
import subprocess
from pathlib import Path

import pytest

from queue_base.home import Home
from support.processes.suite import program

COMMANDS = (["list"], ["check"], ["config"], ["config", "check"], ["stat"], ["mailq"], ["--help"], ["list", "--held"])


def run(home: Home, words: list[str], stdout: int | None, closed: int | None = None) -> tuple[int, str]:
    shell = ["sh", "-c", f'exec "$@" {closed}>&-', "sh"] if closed is not None else []
    done = subprocess.run(
        [*shell, *program("queuectl"), "--home", home.path, *words], stdout=stdout, stderr=subprocess.PIPE, check=False
    )
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_full_disk_below_stdout_is_one_line_and_111(home: Home, words: list[str]) -> None:
    Path(home.control, "nonsense").write_text("x\n")
    full = os.open("/dev/full", os.O_WRONLY)
    code, said = run(home, words, full)
    os.close(full)
    if words == ["list"] or words == ["list", "--held"]:
        return  # An empty queue: nothing is printed.
    assert code == 111 and "Exception" not in said and "Traceback" not in said, said


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_pipe_that_nobody_reads_keeps_the_exit_code(home: Home, words: list[str]) -> None:
    Path(home.control, "nonsense").write_text("x\n")
    whole, _ = run(home, words, subprocess.DEVNULL)
    reader, writer = os.pipe()
    os.close(reader)
    code, said = run(home, words, writer)
    os.close(writer)
    assert code in (0, whole)
    assert not any(word in said for word in ("Exception", "Traceback", "roken")), said


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_descriptor_is_no_trouble(home: Home, closed: int) -> None:
    for words in (["list"], ["config", "check"]):
        code, said = run(home, words, subprocess.DEVNULL, closed)
        assert code in (0, 1) and "Traceback" not in said, said
