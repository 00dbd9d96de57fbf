"""Postfix's qmqp-source, a client of QMQP that others wrote, hands mail to queue-intake."""

import subprocess
from collections.abc import Iterator

import pytest

from support.inject.injectors import queued, shared_home
from support.intake.intake_daemon import IntakeDaemon
from support.tools import need


@pytest.fixture
def intake() -> Iterator[IntakeDaemon]:
    with shared_home() as home, IntakeDaemon(home) as daemon:
        yield daemon


def test_postfixs_qmqp_source_hands_in_all_its_messages(intake: IntakeDaemon) -> None:
    words = [need("qmqp-source"), "-s", "20", "-m", "300", "-l", "3000", "-r", "2"]
    words += ["-f", "ann@example.org", "-t", "bob@example.net", f"unix:{intake.home.queue}/intake/socket"]
    done = subprocess.run(words, capture_output=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
    found = queued(intake.home)
    assert len(found) == 300
    for each in found:
        assert each.envelope.sender == b"ann@example.org"
        assert each.envelope.recipients == [b"0bob@example.net", b"1bob@example.net"]
        assert len(each.message) >= 3000 and each.message.startswith(b"From: <ann@example.org>\nTo: ")
