"""An mbox that tests deliver to, by the function or by a process of its own, and what Python's mailbox reads in it."""

import mailbox
import os
import subprocess
import sys
from pathlib import Path

from queue_local.mbox.mbox_delivery import deliver_mbox

HEAD = b"From a@b Thu Jan 01 00:00:00 1970\nReturn-Path: <a@b>\nDelivered-To: c@d\n"
# What a process of its own runs: argv is mbox, message, and how often.
SCRIPT = f"""
import sys
from queue_base.errors import Failure
from queue_local.mbox.mbox_delivery import deliver_mbox
head = {HEAD!r}
for _ in range(int(sys.argv[3])):
    with open(sys.argv[2], "rb") as message:
        try:
            deliver_mbox(sys.argv[1], head, message.fileno())
        except Failure as error:
            sys.exit(str(error))
"""


def deliver(box: Path | str, data: bytes, directory: Path) -> None:
    """Append a message to an mbox; `directory` takes the message. Raises what deliver_mbox raises."""
    message = directory / "message"
    message.write_bytes(data)
    with message.open("rb") as file:
        deliver_mbox(str(box), HEAD, file.fileno())


def delivering(box: Path, message: Path, times: int = 1) -> list[str]:
    """Return the command of a process that appends a message several times."""
    return [sys.executable, "-c", SCRIPT, str(box), str(message), str(times)]


def start(command: list[str]) -> "subprocess.Popen[bytes]":
    """Start a command that can import the suite."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)


def payloads(box: Path, head: bytes = HEAD.split(b"\n", 1)[1]) -> list[bytes]:
    """Return the bodies of the messages in an mbox, in order; each must have the lines of its delivery, `head`."""
    read = mailbox.mbox(box, create=False)
    try:
        found = [read.get_bytes(key) for key in read.keys()]  # noqa: SIM118
    finally:
        read.close()
    assert all(message.startswith(head) for message in found)
    return [message.removeprefix(head) for message in found]


def finish(process: "subprocess.Popen[bytes]") -> None:
    """Wait for such a process, which must have succeeded without a word."""
    said = process.communicate(timeout=120)[1]
    assert (process.returncode, said) == (0, b"")
