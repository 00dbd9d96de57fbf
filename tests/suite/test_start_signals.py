"""Signals that reach the supervised process while it is still queue-start are kept for queue-send."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.local.good_mail import GoodMail
from support.processes.forked import BIN
from support.processes.suite import Suite, program
from support.queues.queued import classified_message

# Stands where queue-send is, and gets the signals at the moment at which queue-start has just become it.
EARLY = """
import os, signal, sys
for number in (signal.SIGHUP, signal.SIGALRM):
    os.kill(os.getpid(), number)
from queue_send.main import main
sys.exit(main(sys.argv))
"""


def masks(pid: int) -> dict[str, int]:
    """Return the signal masks of a process: SigBlk, SigIgn and SigCgt."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {name: int(fields[name], 16) for name in ("SigBlk", "SigIgn", "SigCgt")}


def test_hup_and_alrm_before_queue_send_has_its_handlers_are_obeyed_later(mail: GoodMail, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    shutil.copytree(BIN, programs)
    (programs / "queue-send").write_text(EARLY)
    classified_message(mail.home, local=[b"nobody@me.example.org"], due=time.time() + 100_000)
    with Suite(mail.home, programs=programs) as suite:
        # Due in a day, but for the ALRM.
        suite.wait_for(r"starting delivery 1: ")
        mail.check_alive(suite, "after-the-signals")


def test_what_the_starter_ignores_or_blocks_is_neither_in_the_daemons(mail: GoodMail, tmp_path: Path) -> None:
    ours = (signal.SIGCHLD, signal.SIGHUP, signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1)
    numbers = ", ".join(str(int(number)) for number in ours)
    # A shell cannot ignore SIGCHLD; PHP, Perl and some init programs do.
    starter = (
        "import os, signal, sys\n"
        f"for number in ({numbers}):\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    with Suite(mail.home, wrapper=(sys.executable, "-c", starter)) as suite:
        # A delivery is a child of queue-local, which waits for it.
        mail.check_alive(suite, "with-children")
        pids = [suite.process.pid]
        pids += [suite.daemon(name) for name in ("queue-local", "queue-remote", "queue-clean", "queue-todo")]
        for pid in pids:
            found = masks(pid)
            assert found["SigBlk"] == 0
            assert not found["SigIgn"] & 1 << (signal.SIGCHLD - 1)


def test_a_relative_name_starts_the_programs_beside_it(mail: GoodMail) -> None:
    where = os.getcwd()
    os.chdir(BIN.parent)
    try:
        with Suite(mail.home, programs=Path("bin")) as suite:
            mail.check_alive(suite, "relative")
    finally:
        os.chdir(where)


@pytest.mark.parametrize("closed", ["0<&-", "2>&-", "0<&- 2>&-"])
def test_a_standard_descriptor_that_is_closed_is_no_files_later(mail: GoodMail, closed: str) -> None:
    with Suite(mail.home, wrapper=("sh", "-c", f'exec "$@" {closed}', "sh")) as suite:
        mail.check_alive(suite, "closed")
        for pid in [suite.process.pid, suite.daemon("queue-todo"), suite.daemon("queue-clean")]:
            standard = [os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)]
            assert not [path for path in standard if path.startswith(mail.home.path)]
            assert os.readlink(f"/proc/{pid}/fd/2") == ("/dev/null" if "2" in closed else standard[2])


def test_without_a_descriptor_for_the_log_nothing_starts(mail: GoodMail) -> None:
    words = ["sh", "-c", 'exec "$@" 1>&-', "sh", *program("queue-start"), "--home", mail.home.path]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (
        100, "queue-start: alert: cannot start: descriptor 1, which takes the log, is not open\n"
    )


def test_no_signal_stays_blocked_in_queue_send_or_in_a_daemon(mail: GoodMail) -> None:
    with Suite(mail.home) as suite:
        mail.check_alive(suite, "running")
        pids = [suite.process.pid]
        pids += [suite.daemon(name) for name in ("queue-local", "queue-remote", "queue-clean", "queue-todo")]
        for pid in pids:
            found = masks(pid)
            assert found["SigBlk"] == 0
            assert not found["SigIgn"] & 1 << (signal.SIGALRM - 1)
