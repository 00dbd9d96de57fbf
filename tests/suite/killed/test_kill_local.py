"""A delivery killed at each of its system calls: what was not reported is delivered again, nothing is half.

It is the process that queue-local has for it, from the recipient's address to its report.
"""

import sys
from collections import Counter
from pathlib import Path

import pytest

from support.faults.kill.kill_calls import EVERY, Ended, Point, at_each, own_points, run
from support.faults.kill.kill_world import SENDER, text_of
from support.local.mailboxes import MailHome, new_mail
from support.local.mbox import payloads
from support.plugins.saying import Say
from support.site import mail_site

# More than one write of 256 kB.
LINES = 6000
DELIVERY = """
import functools, os, sys
from queue_base.home import Home
from queue_local.deliveries import run_child
from queue_local.local_delivery import deliver
from queue_wire.pipes.job import Job
home, path, recipient = sys.argv[1:]
message = os.open(f"{home}/queue/{path}", os.O_RDONLY)
job = Job(1, path.encode(), b"ann@me.example.org", recipient.encode(), [recipient.encode()])
os.umask(0o027)
run_child(functools.partial(deliver, Home(home), job, default=b""), message, os.dup(1), 60)
"""

class Deliveries:
    """Deliveries of one kind: each message is delivered once more if it was not reported, as queue-send would."""

    def __init__(self, mail: MailHome, place: Path) -> None:
        self.mail = mail
        self.place = place
        self.paths = {lines: mail.message(text_of(f"of{lines}", lines)).decode() for lines in (LINES, 10)}

    def deliver(
        self, recipient: str, lines: int = LINES, point: Point | None = None, trace: Path | None = None
    ) -> Ended:
        """Make one delivery, traced or killed at a point."""
        words = [sys.executable, "-c", DELIVERY, self.mail.home.path, self.paths[lines], recipient]
        ended = run(words, point, trace)
        assert ended.killed == (ended.code != 0), ended
        return ended

    def kill(self, number: int, recipient: str, point: Point) -> bool:
        """Kill a delivery; return whether it was."""
        return self.deliver(recipient, LINES, point, self.place / f"trace{number}").killed

    def points(self, recipient: str, every: bool) -> list[Point]:
        """Return the points of a delivery."""
        self.deliver(recipient)
        points = own_points(self.deliver(recipient, trace=self.place / "trace").calls, every)
        return points if every else points[::4]


@EVERY
def test_a_kill_of_a_delivery_into_a_maildir_leaves_only_whole_messages_in_new(
    tmp_path: Path, every: bool, say: Say
) -> None:
    with mail_site() as site:
        mail = site.mail
        deliveries = Deliveries(mail, tmp_path)

        def maildir(name: str) -> Path:
            mail.qmail(f".qmail-{name}", b"./%s/\n" % name.encode())
            return mail.maildir(name)

        def kill(number: int, point: Point) -> tuple[bool, list[str]]:
            name = f"kill{number}"
            new = maildir(name)
            killed = deliveries.kill(number, f"{name}@me.example.org", point)
            before = new_mail(new)
            if killed:
                deliveries.deliver(f"{name}@me.example.org")
            after = new_mail(new)
            halves = [f"half a message, {len(text)} bytes" for text in after if not text.endswith(whole)]
            repeats.append(len(before))
            expected = len(before) + killed
            odd = [f"{len(before)}, then {len(after)} messages"] if len(after) != expected or expected > 2 else []
            return killed, halves + odd

        whole = b"\n" + text_of(f"of{LINES}", LINES)
        repeats: list[int] = []
        maildir("first")
        points = deliveries.points("first@me.example.org", every)
        wrong = at_each(points, kill)
        assert not wrong, "\n".join(wrong)
        assert {0, 1} == set(repeats)
        say(f"Maildir: {len(points)} kills, {sum(repeats)} messages delivered twice")


@EVERY
@pytest.mark.parametrize("new", [False, True], ids=["an old file", "a new file"])
@pytest.mark.long
def test_a_kill_of_a_delivery_into_an_mbox_leaves_only_whole_messages_after_the_next_one(
    tmp_path: Path, new: bool, every: bool, say: Say
) -> None:
    with mail_site() as site:
        mail = site.mail
        deliveries = Deliveries(mail, tmp_path)

        def mbox(name: str) -> tuple[Path, str]:
            mail.qmail(f".qmail-{name}", b"./%s\n" % name.encode())
            if not new:
                deliveries.deliver(f"{name}@me.example.org", lines=10)
            return mail.alias / name, f"{name}@me.example.org"

        def kill(number: int, point: Point) -> tuple[bool, list[str]]:
            box, recipient = mbox(f"kill{number}")
            killed = deliveries.kill(number, recipient, point)
            # Somebody else's mail comes before it is tried again.
            deliveries.deliver(recipient, lines=10)
            if killed:
                deliveries.deliver(recipient)
            head = f"Return-Path: <{SENDER}>\nDelivered-To: {recipient}\n".encode()
            found = payloads(box, head)
            counts = Counter(found)
            repeats.append(counts[large] - 1)
            wrong = [f"half a message, {len(text)} bytes" for text in found if text not in (large, small)]
            if counts[small] != 2 - new or counts[large] not in (1, 1 + killed):
                wrong.append(f"{counts[small]} and {counts[large]} messages")
            return killed, wrong + [f"left behind: {path}" for path in mail.alias.glob(f"{box.name}.*")]

        large, small = text_of(f"of{LINES}", LINES), text_of("of10", 10)
        repeats: list[int] = []
        mbox("first")
        points = deliveries.points("first@me.example.org", every)
        wrong = at_each(points, kill)
        assert not wrong, "\n".join(wrong)
        assert {0, 1} == set(repeats)
        say(f"mbox, {'a new' if new else 'an old'} file: {len(points)} kills, {sum(repeats)} messages delivered twice")
