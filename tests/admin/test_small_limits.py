"""A limit of open files or of processes that is too small is a sentence of the program, and never a traceback."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from queue_base.home import Home
from support.processes.forked import BIN
from support.processes.suite import Suite, program
from support.tools import need


@pytest.mark.parametrize(
    ("words", "least"),
    [
        (["queue-start"], 128),
        (["queue-remote", "192.0.2.1", "a@b.example", "c@d.example"], 32),
        (["queue-smtpd", "mx"], 64),
    ],
    ids=["queue-start", "queue-remote", "queue-smtpd"],
)
def test_a_program_that_may_open_too_few_files_says_how_many_it_needs(home: Home, words: list[str], least: int) -> None:
    name, *rest = words
    for limit in (12, least - 1):
        command = [need("prlimit"), f"--nofile={limit}", *program(name), "--home", home.path, *rest]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stderr.count("\n")) == (111, 1)
        said = f"the limit of open files is {limit}, expected {least} or more (ulimit -n, LimitNOFILE=)\n"
        assert done.stderr.startswith(f"{name}: ") and done.stderr.endswith(said)


def test_a_soft_limit_that_is_too_small_is_raised(home: Home) -> None:
    with Suite(home, wrapper=(need("prlimit"), "--nofile=64:1024")) as suite:
        for daemon in ("queue-local", "queue-clean"):
            limits = Path(f"/proc/{suite.daemon(daemon)}/limits").read_text()
            assert re.search(r"^Max open files +1024 +1024 ", limits, re.MULTILINE)


def test_sendmail_that_may_start_no_thread_says_so(home: Home) -> None:
    code = "import sys, threading; threading.Thread.start = lambda thread: exec('raise RuntimeError(\"no more\")'); "
    code += "from queue_inject.sendmail.main import main; sys.exit(main(['sendmail', '-bs']))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=b"QUIT\r\n",
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "QUEUE_HOME": home.path, "PYTHONPATH": str(BIN.parent)},
    )
    assert (done.returncode, done.stderr) == (75, b"sendmail: fatal: unable to serve the client: no more; try again\n")
