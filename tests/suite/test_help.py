"""Every program says its usage on stdout when it is asked for help, and does nothing else."""

import os
import subprocess

import pytest

from queue_base.suite_version import suite_version
from support.processes.forked import BIN
from support.processes.suite import program

PROGRAMS = sorted(path.name for path in BIN.iterdir() if path.name.startswith(("queue", "sendmail")))


def ask(name: str, *words: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[bytes]:
    """Run a program where there is no home; return its end."""
    return subprocess.run(
        [*program(name), *words],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, "QUEUE_HOME": "/nowhere"},
        timeout=60,
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_is_the_usage_on_stdout_and_exit_0(name: str) -> None:
    shown = ask(name, "--help")
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert shown.stdout.lower().startswith(f"usage: {name} ".encode())
    assert shown.stdout.endswith(b"\n") and shown.stdout.count(b"\n") >= 2
    assert max(map(len, shown.stdout.splitlines())) <= 120
    if name == "queue-report":
        return  # It reads logs, and knows no home.
    after_home = ask(name, "--home", "/nowhere", "--help")
    assert (after_home.returncode, after_home.stdout) == (0, shown.stdout)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_says_its_version(name: str) -> None:
    shown = ask(name, "--version")
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert shown.stdout.decode() == f"{name} {suite_version()}\n"


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in ("queue-inject", "sendmail")])
def test_the_short_option_for_help_says_the_same(name: str) -> None:
    assert ask(name, "-h").stdout == ask(name, "--help").stdout
    assert ask(name, "-h").returncode == 0


def test_h_alone_is_an_option_of_queue_inject_and_no_help() -> None:
    shown = ask("queue-inject", "-h")
    assert shown.returncode != 0 and shown.stdout == b""


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_option_that_is_none_is_named_in_one_line_that_says_where_help_is(name: str) -> None:
    # qmail-queue's and sendmail's callers know their own codes.
    code = {"queue-enqueue": 55, "sendmail": 64}.get(name, 100)
    wrong = ask(name, "--nosuch")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count(b"\n")) == (code, b"", 1)
    how = "alert: cannot start" if name in ("queue-send", "queue-start") else "fatal"
    assert wrong.stderr.decode().startswith(f"{name}: {how}: ")
    assert "--nosuch" in wrong.stderr.decode().partition("usage: ")[0]
    assert f"usage: {name} " in wrong.stderr.decode() or "--help" in wrong.stderr.decode()


@pytest.mark.parametrize("name", ["queue-inject", "queue-todo", "queue-remote"])
def test_help_that_cannot_be_written_is_temporary_trouble_in_one_line(name: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        shown = ask(name, "--help", stdout=writer)
    finally:
        os.close(writer)
    assert shown.returncode == 111
    assert shown.stderr.startswith(name.encode()) and shown.stderr.count(b"\n") == 1
