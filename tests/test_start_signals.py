"""Signals that reach the supervised process while it is still queue-start are kept for queue-send."""

import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.good_mail import GoodMail, good_mail
from support.queued import classified_message
from support.suite import BIN, Suite

# Stands where queue-send is, and gets the signals at the moment at which queue-start has just become it.
EARLY = """
import os, signal, sys
for number in (signal.SIGHUP, signal.SIGALRM):
    os.kill(os.getpid(), number)
from queue_send.main import main
sys.exit(main(sys.argv))
"""


@pytest.fixture
def mail() -> Iterator[GoodMail]:
    with good_mail() as found:
        yield found


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


def test_no_signal_stays_blocked_in_queue_send_or_in_a_daemon(mail: GoodMail) -> None:
    with Suite(mail.home) as suite:
        mail.check_alive(suite, "running")
        pids = [suite.process.pid]
        pids += [suite.daemon(name) for name in ("queue-local", "queue-remote", "queue-clean", "queue-todo")]
        for pid in pids:
            found = masks(pid)
            assert found["SigBlk"] == 0
            assert not found["SigIgn"] & 1 << (signal.SIGALRM - 1)
