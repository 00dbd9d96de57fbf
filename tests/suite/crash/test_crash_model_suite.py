"""The whole suite under the crash model: from S4 to the mailbox and the bounce, no power cut loses a recipient.

queue-start and everything that it starts run under strace. One message has a recipient who has a
mailbox, and one who has not, so that a bounce is written, injected, classified and delivered too.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from queue_base.queue.layout import Layout
from queue_wire.failures import unpack_failures
from support.faults.crash.crash_checks import CLASSIFIED, QUEUED, Message, broken, messages
from support.faults.crash.crash_model import Crash, CrashModel
from support.faults.strace import strace_command
from support.local.mailboxes import MailHome, mail_home, new_mail
from support.processes.suite import program, wait_until

BODY = b"Subject: hello\n\nThis is the body.\n"
MISSING = b"missing@me.example.org"
CLARA = b"clara@me.example.org"
ENVELOPE = b"Fann@me.example.org\0T" + CLARA + b"\0T" + MISSING + b"\0\0"
SECONDS = 60.0
SWEPT = 2


def prepared(place: MailHome) -> tuple[Path, Path]:
    """Give ann and clara a maildir each, and put the message in the queue; return the maildirs."""
    (place.path / "control" / "locals").write_bytes(b"me.example.org\n")
    ann, clara = place.maildir("ann"), place.maildir("clara")
    place.qmail(".qmail-ann", b"./ann/\n")
    place.qmail(".qmail-clara", b"./clara/\n")
    reader, writer = os.pipe()
    os.write(writer, ENVELOPE)
    os.close(writer)
    command = [*program("queue-enqueue"), "--home", place.home.path]
    subprocess.run(command, input=BODY, stdout=reader, timeout=SECONDS, check=True)
    os.close(reader)
    return ann, clara


def run_suite(model: CrashModel, place: MailHome, trace: Path) -> None:
    """Run the suite until the queue is empty and both maildirs have mail; stop it with TERM."""
    ann, clara = prepared(place)
    model.restart()
    mess = place.path / "queue" / "mess"
    command = strace_command(trace, [*program("queue-start"), "--home", place.home.path])
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as strace:
        try:
            wait_until(lambda: new_mail(ann) and new_mail(clara), SECONDS, "both mailboxes")
            wait_until(lambda: not any(path.is_file() for path in mess.glob("*/*")), SECONDS, "their end")
            children = Path(f"/proc/{strace.pid}/task/{strace.pid}/children").read_text().split()
            os.kill(int(children[0]), signal.SIGTERM)
            strace.communicate(timeout=SECONDS)
        except BaseException:
            strace.kill()
            raise
    model.load(trace)


def cared_for(crash: Crash, found: dict[int, Message]) -> set[bytes]:
    """Return the recipients that a crash leaves in the queue, in a mailbox, or in a report to the sender."""
    here = set()
    for path, file in crash.files.items():
        if path.startswith("alias/clara/new/") and file.content.endswith(BODY):
            here.add(CLARA)
        if path.startswith("alias/ann/new/") and b"\n<" + MISSING + b">:\n" in file.content:
            here.add(MISSING)
    for message in found.values():
        if message.state not in (QUEUED, CLASSIFIED):
            continue
        owed = message.owed()
        if message.sender() == b"":
            reported = b"\n<" + MISSING + b">:\n" in message.files["mess"].content
            here |= {MISSING} if owed and reported else set()
            continue
        here |= owed
        if "bounce" in message.files:
            here |= {recipient for recipient, _ in unpack_failures(message.files["bounce"].content)}
    return here


def nobody_is_lost(crash: Crash, found: dict[int, Message]) -> list[str]:
    """Whoever was to get the message still will, or did, or the sender is told."""
    lost = {CLARA, MISSING} - cared_for(crash, found)
    return [f"{recipient.decode()} is lost" for recipient in sorted(lost)]


def mailboxes_show_whole_messages(crash: Crash, found: dict[int, Message]) -> list[str]:
    """A file in new/ is whole, also where its delivery was never reported."""
    return [
        f"{path} is a piece of a message: {file.content[-40:]!r}"
        for path, file in crash.files.items()
        if path.startswith("alias/") and "/new/" in path and not file.whole
    ]


@pytest.mark.parametrize("most", [10, pytest.param(4000, marks=pytest.mark.exhaustive)])
def test_no_power_cut_on_the_way_to_a_mailbox_or_a_bounce_loses_a_recipient(tmp_path: Path, most: int) -> None:
    with mail_home() as place:
        model = CrashModel(place.path)
        run_suite(model, place, tmp_path / "trace")
        layout = Layout("queue", 23)

        looked, lines = broken(model, layout, nobody_is_lost, mailboxes_show_whole_messages, most=most)

    assert not lines, "\n".join(lines)
    assert looked > 200
    last = list(model.crashes(1))[-1]
    assert {message.state for message in messages(last, layout).values()} <= {SWEPT}
