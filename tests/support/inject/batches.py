"""Batches of small messages for queue-inject, in all formats, and its output."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from queue_base.home import Home
from support.inject.injectors import Outcome, inject
from support.inject.packing import pack_bsmtp, pack_pair, quote_mbox
from support.processes.suite import program

FORMATS = ("mbox", "mboxo", "bsmtp", "netstring")
SENDER = b"ann@example.org"
LINES = b"A line of an ordinary message.\n" * 10


class Batch(NamedTuple):
    """The end of queue-inject: its exit code, its lines on stdout, and its line on stderr."""

    code: int
    lines: list[str]
    error: str


def letter(number: int, recipient: bytes = b"bob@example.net", body: bytes = LINES) -> bytes:
    """Return a message with its number as the subject."""
    head = b"From: %s\nTo: %s\nSubject: %d\nDate: Fri, 20 Nov 2026 10:00:00 +0000\nMessage-ID: <%d@x.y>\n\n"
    return head % (SENDER, recipient, number, number) + body


def packed(form: str, number: int, recipient: bytes = b"bob@example.net", body: bytes = LINES) -> bytes:
    """Return a message as a batch of a format has it."""
    message = letter(number, recipient, body)
    if form.startswith("mbox"):
        return quote_mbox(message, rd=form == "mbox")
    return (pack_bsmtp if form == "bsmtp" else pack_pair)(SENDER, [recipient], message)


# For each format a message that can never be sent, for the middle of a batch.
BAD = {
    "mbox": b"From x\nTo: bob@@example.net\n\nThis address is none.\n\n",
    "mboxo": b"From x\nSubject: for nobody\n\nThere is no recipient.\n\n",
    "bsmtp": b"MAIL FROM:<a@b>\nRCPT TO:bob@example net\nDATA\nx\n.\n",
    "netstring": b"1:x,5:Fa@b\0,",
}


def inject_batch(home: Home, form: str, data: bytes, *arguments: str, **more: str) -> Batch:
    """Run queue-inject --batch."""
    return said(inject(home, "--batch", form, *arguments, message=data, **more))


def said(outcome: Outcome) -> Batch:
    return Batch(outcome.code, outcome.output.decode().splitlines(), outcome.error.decode())


def batch_command(home: Home, form: str, *arguments: str) -> list[str]:
    return [*program("queue-inject"), "--home", home.path, "--batch", form, *arguments]


def subjects(messages: list[bytes]) -> list[int]:
    """Return the numbers of letters."""
    return sorted(int(message.split(b"Subject: ")[1].split(b"\n")[0]) for message in messages)


def changed(home: Home, change: str, form: str, *arguments: str) -> list[str]:
    """Return the command of a batch that executes Python statements before `main`."""
    script = f"import os, sys\n{change}\nfrom queue_inject.main import main\nos._exit(main(sys.argv))"
    return [sys.executable, "-c", script, "--home", home.path, "--batch", form, *arguments]


def wait_for_lines(process: "subprocess.Popen[bytes]", count: int) -> list[bytes]:
    """Return the next lines of a running batch."""
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def make_file(path: Path, form: str, count: int, packer: Callable[[str, int], bytes] = packed) -> Path:
    """Write a batch of messages 1 to `count`."""
    with path.open("wb") as file:
        for number in range(1, count + 1):
            file.write(packer(form, number))
    return path
