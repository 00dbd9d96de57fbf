"""An mbox of unusual messages is injected as a batch and delivered to a Maildir: the same number, the same bytes."""

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from support.inject.batches import batch_command
from support.inject.oddities import odd_messages
from support.inject.packing import quote_mbox
from support.processes.suite import Suite, wait_until
from support.site import LOCAL, mail_site


def text(delivered: bytes) -> bytes:
    """Return a delivered message without Return-Path, Delivered-To and our Received lines."""
    lines = delivered.split(b"\n", 3)
    starts = (b"Return-Path: <", b"Delivered-To: ", b"Received: (qmail ")
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=False)), lines[:3]
    return lines[3]


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.exhaustive)])
def test_an_mbox_with_every_oddity_arrives_in_a_maildir(tmp_path: Path, count: int) -> None:
    messages = list(odd_messages(count, f"ann@{LOCAL}".encode()))
    mbox = tmp_path / "mbox"
    mbox.write_bytes(b"".join(quote_mbox(message.message) for message in messages))
    with mail_site() as site:
        site.control("locals", f"{LOCAL}\n")
        with mbox.open("rb") as data:
            done = subprocess.run(
                [*batch_command(site.home, "mbox"), "-f", "ann@example.org"],
                stdin=data,
                capture_output=True,
                check=False,
                timeout=120,
            )
        assert (done.returncode, done.stderr, done.stdout.count(b"ok ")) == (0, b"", count)
        with Suite(site.home) as suite:
            wait_until(lambda: len(os.listdir(site.maildir / "new")) >= count, 250, f"{count} messages")
            wait_until(site.is_empty, 60, "the end of the last message")
            suite.wait_for("^delivery .*: success", times=count)
            assert suite.count("^delivery .*: success") == count
        delivered = Counter(text(message) for message in site.delivered())

    expected = Counter(message.arrives for message in messages)
    # One message is shown: all of them would be a long text.
    assert [message[:2000] for message in (delivered - expected)][:1] == []
    assert [message[:2000] for message in (expected - delivered)][:1] == []
