"""The suite under the crash model while messages are delivered from their notices: a stop, a kill, the next start.

A message is for clara, who gets it at once, and for slow, whose delivery ends when the test lets it. It is forwarded
from one that is in the queue before the start, because only new mail is sure to be announced.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from queue_base.queue.layout import Layout, open_layout
from queue_base.queue.marks_file import LeftMarks, read_seed
from queue_wire.files.envelope import unpack_todo
from queue_wire.files.marks import unpack_file
from support.faults.crash.crash_checks import CLASSIFIED, QUEUED, Check, Message, check_queue, messages, records
from support.faults.crash.crash_model import Crash, CrashModel
from support.faults.strace import strace_command
from support.local.mailboxes import MailHome, mail_home, new_mail
from support.processes.suite import enqueue, program, wait_until

pytestmark = pytest.mark.one_way

BODY = b"Subject: hello\n\nThis is the body.\n"
CLARA, SLOW, BOTH = b"clara@me.example.org", b"slow@me.example.org", b"both@me.example.org"
# The bits when clara has the message, and slow has not. They are in this order in .qmail-both.
CLARAS_BIT = 0b10
LAYOUT = Layout("queue", 23)
SECONDS = 60.0
SWEPT = 2
MOST = pytest.mark.parametrize("most", [10, pytest.param(2000, marks=pytest.mark.exhaustive)])


class Place:
    """A home with the two mailboxes, and its model. `let` is a FIFO: slow's delivery ends when it is written."""

    def __init__(self, mail: MailHome, trace: Path) -> None:
        self.mail = mail
        self.home = mail.home
        self.trace = trace
        (mail.path / "control" / "locals").write_bytes(b"me.example.org\n")
        (mail.path / "control" / "classifyafter").write_bytes(b"60\n")
        self.mailboxes = {CLARA: mail.maildir("clara"), SLOW: mail.maildir("slow")}
        self.let = mail.path / "let"
        os.mkfifo(self.let)
        self.let.chmod(0o644)
        mail.qmail(".qmail-clara", b"./clara/\n")
        mail.qmail(".qmail-slow", b"|cat %s >/dev/null\n./slow/\n" % bytes(self.let))
        mail.qmail(".qmail-both", b"&%s\n&%s\n" % (SLOW, CLARA))
        (mail.path / "queue" / "maildrop").chmod(0o3733)
        assert enqueue(self.home, b"ann@me.example.org", [BOTH], BODY).returncode == 0
        self.model = CrashModel(mail.path)

    @contextmanager
    def suite(self) -> Iterator[int]:
        """Run the suite, traced; give the pid of queue-send. At the end all of it has ended."""
        self.model.restart()
        command = strace_command(self.trace, [*program("queue-start"), "--home", self.home.path])
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as strace:
            try:
                wait_until(lambda: started(strace.pid), SECONDS, "queue-start")
                yield started(strace.pid)[0]
                strace.wait(SECONDS)
            finally:
                kill_traced(strace.pid)
                try:
                    strace.wait(10)
                except subprocess.TimeoutExpired:
                    strace.kill()
        self.model.load(self.trace)

    def let_go(self) -> None:
        """End slow's delivery, which may still have to begin."""
        handles: list[int] = []

        def opened() -> bool:
            try:
                handles.append(os.open(self.let, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                return False
            return True

        wait_until(opened, SECONDS, "slow's delivery")
        os.close(handles[0])

    def wait_for_mark(self) -> None:
        """Wait until clara's delivery is done, and nothing else."""
        marks = self.mail.path / "queue" / "marks"

        def is_marked() -> bool:
            if not marks.exists():
                return False
            found = unpack_file(marks.read_bytes(), read_seed())
            return any(each.done == CLARAS_BIT for each in found.values())

        wait_until(is_marked, SECONDS, "clara's mark")

    def counts(self) -> tuple[int, ...]:
        return tuple(len(new_mail(mailbox)) for mailbox in self.mailboxes.values())

    def check(self, most: int) -> None:
        """Check what power cuts and kills leave of the last run."""
        assert check_queue(self.model, LAYOUT, nobody_is_lost, marks_are_true, most=most) > 100
        assert check_queue(self.model, LAYOUT, nobody_is_lost, marks_are_true, marks_stay(), most=0) > 10

    def check_end(self) -> None:
        """Check that nothing is left, but mess/ for the sweep after a power cut, and that queue/marks is empty."""
        for crash in list(self.model.crashes(1))[-2:]:
            assert {message.state for message in messages(crash, LAYOUT).values()} <= {SWEPT}
        assert len(LeftMarks(open_layout(self.home.queue))) == 0
        assert not [path for path in (self.mail.path / "queue" / "mess").glob("*/*") if path.is_file()]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with mail_home() as mail:
        yield Place(mail, tmp_path / "trace")


def children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(word) for task in tasks for word in (task / "children").read_text().split()]
    except OSError:
        return []  # It has ended.


def started(strace: int) -> list[int]:
    """Return the child that runs the suite; strace has others for a moment, to try what the kernel can do."""
    found = []
    for child in children(strace):
        try:
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # It has ended.
        if any(word.endswith((b"/queue-start", b"/queue-send")) for word in words[:3]):
            found.append(child)
    return found


def traced(tracer: int) -> list[int]:
    """Return the processes that a strace traces and that have not ended."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue  # It has ended.
        if f"\nTracerPid:\t{tracer}\n" in text and "\nState:\tZ" not in text:
            found.append(int(status.parent.name))
    return found


def kill_traced(tracer: int) -> None:
    """Kill what a strace traces, up to the last process that one of them has just made: strace waits for all."""

    def none_left() -> bool:
        found = traced(tracer)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    wait_until(none_left, SECONDS, "the end of what was killed")


def served(crash: Crash) -> set[bytes]:
    """Return the recipients whose mailbox has the message."""
    found = set()
    for recipient in (CLARA, SLOW):
        new = f"alias/{recipient.partition(b'@')[0].decode()}/new/"
        if any(path.startswith(new) and file.content.endswith(BODY) for path, file in crash.files.items()):
            found.add(recipient)
    return found


def marked(crash: Crash, message: Message) -> set[bytes]:
    """Return the recipients that are marked, in files or in queue/marks."""
    if message.state != QUEUED:
        return message.done()
    record = records(crash, LAYOUT).get(message.number)
    recipients = unpack_todo(message.files["todo"].content).recipients
    return {each for bit, each in enumerate(recipients) if record is not None and record.done >> bit & 1}


def nobody_is_lost(crash: Crash, found: dict[int, Message]) -> list[str]:
    owed = {each for message in found.values() if message.state in (QUEUED, CLASSIFIED) for each in message.owed()}
    if BOTH in owed or any(path.startswith("queue/maildrop/mail.") for path in crash.files):
        return []
    lost = {CLARA, SLOW} - owed - served(crash)
    return [f"{recipient.decode()} is lost" for recipient in sorted(lost)]


def marks_are_true(crash: Crash, found: dict[int, Message]) -> list[str]:
    """Whoever is marked has the message, which a mailbox keeps in a power cut."""
    queued = [message for message in found.values() if message.state in (QUEUED, CLASSIFIED)]
    wrong = {each for message in queued for each in marked(crash, message)} - served(crash) - {BOTH}
    return [f"{recipient.decode()} is marked and has no mail" for recipient in sorted(wrong)]


def marks_stay() -> Check:
    """Of kills, one after the other: whoever is marked once is never owed the message again."""
    known: dict[int, set[bytes]] = {}

    def check(crash: Crash, found: dict[int, Message]) -> list[str]:
        wrong = []
        for number, message in found.items():
            if message.state in (QUEUED, CLASSIFIED):
                now = marked(crash, message)
                known.setdefault(number, set()).update(now)
                wrong += [f"the mark of {each!r} is lost" for each in (known[number] - now) & message.owed()]
            else:
                known.pop(number, None)
        for number in known.keys() - found.keys():
            del known[number]
        return wrong

    return check


@MOST
def test_a_stop_while_a_message_is_delivered_from_its_notice_loses_and_repeats_nobody(place: Place, most: int) -> None:
    todo = place.mail.path / "queue" / "todo"
    with place.suite() as pid:
        place.wait_for_mark()
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not any(path.is_file() for path in todo.glob("*/*")), SECONDS, "its classification")
        place.let_go()

    assert place.counts() == (1, 1)
    place.check(most)
    place.check_end()


@MOST
@pytest.mark.long
def test_a_start_after_a_kill_honours_the_marks_that_it_finds(place: Place, most: int) -> None:
    todo = place.mail.path / "queue" / "todo"
    with place.suite() as pid:
        place.wait_for_mark()
        status = Path(f"/proc/{pid}/status").read_text()
        kill_traced(int(status.partition("TracerPid:")[2].split()[0]))
    place.check(most)

    with place.suite() as pid:
        place.let_go()
        wait_until(lambda: new_mail(place.mailboxes[SLOW]), SECONDS, "slow's mail")
        # A mark that is made while the message is being classified is lost in a kill (docs/design/durability.md).
        wait_until(lambda: not any(path.is_file() for path in todo.glob("*/*")), SECONDS, "its end")
        os.kill(pid, signal.SIGTERM)

    assert place.counts() == (1, 1)
    place.check(most)
    place.check_end()
