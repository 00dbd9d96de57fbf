"""The demo's story: what is sent, what is awaited in the log, and what must have come out, checked one by one."""

import os
import re
import signal
import smtplib
import ssl
from email import message_from_bytes
from email.message import Message

import psutil

from support.demo.home import (
    AUTHOR,
    BCC,
    DEFERRED,
    GONE,
    LATER,
    LOCAL,
    ME,
    PASSWORD,
    READER,
    REFUSED,
    REMOTE,
    SUBMITTED,
    THREE,
    DemoHome,
)
from support.demo.screen import Screen
from support.processes.suite import Suite, wait_until
from support.servers.smtp.smtp_server import Received, SmtpServer

NO_SUCH_USER = "550 5.1.1 no such user here"
NOT_NOW = "451 4.7.1 come back later"
# What the server says to RCPT: 550 always, 451 once.
ANSWERS: dict[str, list[str] | str] = {GONE: NO_SUCH_USER, LATER: [NOT_NOW]}
DEADLINE = 20.0  # Seconds, for each awaited event.


class Demo:
    """The story, a method for each part of it. Raises AssertionError where an awaited event does not come."""

    def __init__(self, screen: Screen, home: DemoHome, server: SmtpServer, suite: Suite) -> None:
        self.screen = screen
        self.home = home
        self.server = server
        self.suite = suite

    def tell(self) -> None:
        """Tell all of it."""
        self.local()
        self.remote()
        self.bounce()
        self.deferral()
        self.smtp()
        self.end()

    def outcome(self, recipient: str, attempt: int = 1) -> str:
        """Return the text of the log line that ends an attempt at a recipient: `success: ...` and its like."""
        pattern = rf"^starting delivery \d+: msg \d+ to \w+ {re.escape(recipient)}$"
        number = self.suite.wait_for(pattern, attempt, DEADLINE).split()[2]
        return self.suite.wait_for(f"^delivery {number} ", 1, DEADLINE).partition(": ")[2]

    def check_outcome(self, recipient: str, result: str, attempt: int = 1) -> None:
        """Check how an attempt at a recipient ended."""
        found = self.outcome(recipient, attempt)
        self.screen.check(f"the log says `{result}` for {recipient}", found.startswith(result), found)

    def ended(self, count: int) -> None:
        """Wait until so many messages have ended."""
        self.suite.wait_for(r"^end msg \d+$", count, DEADLINE)

    def taken(self, recipient: str) -> list[Received]:
        """Return what the server took for a recipient."""
        return [each for each in self.server.received if recipient in each.recipients]

    def signal(self, number: signal.Signals) -> None:
        """Signal queue-send."""
        self.screen.command(f"kill -{number.name[3:]} {self.suite.process.pid}")
        self.suite.signal(number)

    def local(self) -> None:
        """A message to a Maildir."""
        self.screen.title("1. A message for a mailbox on this host")
        self.screen.block(LOCAL)
        self.home.run("queue-inject", "-f", AUTHOR, message=LOCAL)
        self.check_outcome(READER, "success")
        self.ended(1)
        found = self.home.messages("Maildir")
        self.screen.equal("one message is in the reader's Maildir", len(found), 1)
        head, stored, rest = found[0].partition(LOCAL)
        self.screen.check("it is what was sent, byte for byte", stored == LOCAL and not rest, found[0])
        names = [line.partition(b":")[0].decode() for line in head.splitlines()]
        wanted = ["Return-Path", "Delivered-To", "Received", "Date", "Message-ID"]
        self.screen.equal("above it are the header lines that the suite adds", sorted(names), sorted(wanted))
        sender = head.partition(b"\n")[0].decode()
        self.screen.equal("the first of which names the sender", sender, f"Return-Path: <{AUTHOR}>")

    def remote(self) -> None:
        """A message to three recipients at one server."""
        self.screen.title("2. A message for three recipients elsewhere, one of them in Bcc")
        self.screen.block(REMOTE)
        self.home.run("queue-inject", "-f", AUTHOR, message=REMOTE)
        for recipient in THREE:
            self.check_outcome(recipient, "success")
        self.ended(2)
        found = self.taken(THREE[0])
        self.screen.equal("the server took it once", len(found), 1)
        self.screen.equal("from its sender", found[0].sender, AUTHOR)
        self.screen.equal("for all three recipients", sorted(found[0].recipients), sorted(THREE))
        self.screen.say("What the server got:")
        self.screen.block(found[0].stored)
        right = found[0].stored.endswith(b"\n" + REMOTE.replace(BCC, b"")) and BCC not in found[0].stored
        self.screen.check("byte for byte, without the Bcc line", right, found[0].stored)

    def bounce(self) -> None:
        """A message that the server refuses."""
        self.screen.title("3. A message that the server refuses, and so comes back")
        self.screen.block(REFUSED)
        self.home.run("queue-inject", "-f", AUTHOR, message=REFUSED)
        self.check_outcome(GONE, "failure")
        self.suite.wait_for(r"^bounce msg \d+ qp \d+$", 1, DEADLINE)
        self.check_outcome(AUTHOR, "success")
        self.ended(4)
        found = self.home.messages("Maildir-author")
        self.screen.equal("one bounce is in the author's Maildir", len(found), 1)
        report = message_from_bytes(found[0])
        self.screen.equal("from the empty sender", report["Return-Path"], "<>")
        self.screen.equal("it is a delivery report", report.get_content_type(), "multipart/report")
        text, status, header = _parts(report)
        self.screen.check("its text has the server's words", f"<{GONE}>:" in text and NO_SUCH_USER in text, text)
        right = f"Final-Recipient: rfc822; {GONE}" in status and "Status: 5.1.1" in status
        self.screen.check("its status has the recipient and 5.1.1", right, status)
        sent = REFUSED.partition(b"\n\n")[0].decode()
        self.screen.check("its last part is the header of what was sent", sent in header, header)
        self.screen.equal("the server took nothing for the recipient", len(self.taken(GONE)), 0)

    def deferral(self) -> None:
        """A message that the server takes the second time."""
        self.screen.title("4. A message that the server defers, and takes the second time")
        self.screen.block(DEFERRED)
        self.home.enqueue(AUTHOR, [LATER], DEFERRED)
        found = self.outcome(LATER)
        self.screen.check(f"the log says `deferral` for {LATER}, with the server's 451", _is_deferral(found), found)
        listed = self.home.run("queuectl", "list").decode()
        self.screen.block(listed.encode())
        self.screen.check("the message waits, its recipient not done", " remote 1 left, next " in listed, listed)
        self.screen.block(self.home.run("queuectl", "stat"))
        self.screen.say("The next attempt would be 400 s after the first. ALRM makes everything due now:")
        self.signal(signal.SIGALRM)
        self.check_outcome(LATER, "success", attempt=2)
        self.ended(5)
        taken = self.taken(LATER)
        self.screen.equal("the server took it once, for this recipient", [each.recipients for each in taken], [[LATER]])
        self.screen.check("byte for byte", taken[0].stored.endswith(b"\n" + DEFERRED), taken[0].stored)

    def smtp(self) -> None:
        """A message that a mail client hands in by SMTP, with a password, under TLS; and what is refused."""
        self.screen.title("5. A message that comes in by SMTP")
        mx, submission = self.home.open_ports()
        self.home.run("queuectl", "passwd", AUTHOR, message=f"{PASSWORD}\n".encode())
        with self.home.smtpd():
            self.refusals(mx)
            self.submission(submission)
        self.check_outcome(READER, "success", attempt=2)
        self.check_outcome(THREE[0], "success", attempt=2)
        self.ended(6)
        found = self.home.messages("Maildir")
        right = sum(each.endswith(b"\n" + SUBMITTED) and b" with ESMTPSA id " in each for each in found)
        self.screen.equal("it is in the reader's Maildir, byte for byte, below how it came in", right, 1)
        self.screen.equal("the server took it for the other recipient", len(self.taken(THREE[0])), 2)

    def refusals(self, port: int) -> None:
        """A stranger's dialogue with the mail exchanger."""
        self.screen.say(f"A stranger at port {port}, where other hosts deliver mail:")
        with smtplib.SMTP("127.0.0.1", port, timeout=DEADLINE) as client:
            client.ehlo("stranger.example")
            client.mail("stranger@far.example")
            for recipient, code, what in (
                (THREE[0], "550 5.7.1", "a recipient elsewhere is refused: this is no relay"),
                (f"nobody@{ME}", "550 5.1.1", "a recipient who does not exist is refused, not bounced"),
                (READER, "250 2.1.5", "the reader would be taken"),
            ):
                number, text = client.rcpt(recipient)
                found = f"{number} {text.decode()}"
                self.screen.say(f"RCPT TO:<{recipient}>\n{found}")
                self.screen.check(what, found.startswith(code), found)

    def submission(self, port: int) -> None:
        """The author's mail client."""
        self.screen.say(f"The author's mail client at port {port}, for submission:")
        with smtplib.SMTP(port=port, timeout=DEADLINE) as client:
            client.connect("127.0.0.1", port)
            client._host = ME  # type: ignore[attr-defined]  # The name that the certificate must have.
            client.ehlo("client.example")
            self.screen.check("AUTH is not offered in clear", "auth" not in client.esmtp_features)
            client.starttls(context=ssl.create_default_context(cafile=str(self.home.certificate)))
            client.ehlo("client.example")
            mechanisms = client.esmtp_features.get("auth", "")
            self.screen.check("under TLS it is, SCRAM-SHA-256 among others", "SCRAM-SHA-256" in mechanisms, mechanisms)
            number, _ = client.mail(AUTHOR)
            self.screen.equal("MAIL is refused before AUTH", number, 530)
            client.login(AUTHOR, PASSWORD)
            client.sendmail(AUTHOR, [READER, THREE[0]], SUBMITTED.replace(b"\n", b"\r\n"))

    def end(self) -> None:
        """An empty queue, and the end."""
        self.screen.title("6. What is left")
        # The log's `end msg` comes before the files go; a process of its own removes them.
        wait_until(lambda: not self.home.left_over(), DEADLINE, "the queue to be empty")
        self.screen.equal("queuectl lists no message", self.home.run("queuectl", "list"), b"")
        self.signal(signal.SIGTERM)
        self.screen.equal("queue-send exits 0", self.suite.process.wait(DEADLINE), 0)
        wait_until(lambda: not _running(self.suite.process.pid), DEADLINE, "every daemon to end")
        self.suite.stop()
        self.screen.check("every daemon has ended", True)
        self.screen.equal("no file is left in the queue", self.home.left_over(), [])
        for what, pattern, count in (
            ("6 new messages", r"^new msg \d+$", 6),
            ("6 senders", r"^info msg \d+: bytes \d+ from <\S*> qp \d+ uid \d+$", 6),
            ("10 deliveries that start", r"^starting delivery \d+: ", 10),
            ("10 deliveries that end", r"^delivery \d+: ", 10),
            ("1 bounce", r"^bounce msg \d+ qp \d+$", 1),
            ("6 messages that end", r"^end msg \d+$", 6),
            ("no trouble", r"^(alert|warning|corrupt)|Traceback", 0),
        ):
            self.screen.equal(f"the log shows {what}", self.suite.count(pattern), count)
        self.screen.equal("the log ends with `status: exiting`", self.suite.lines[-1:], ["status: exiting"])


def _parts(report: Message) -> tuple[str, str, str]:
    """Return the three parts of a bounce as text; empty where it has other parts."""
    parts = report.get_payload()
    if not isinstance(parts, list) or len(parts) != 3:
        return "", "", ""
    text, status, header = (str(part) if isinstance(part, Message) else "" for part in parts)
    return text, status, header


def _is_deferral(found: str) -> bool:
    return found.startswith("deferral: ") and NOT_NOW.replace(" ", "_") in found


def _running(group: int) -> list[int]:
    """Return the processes of a process group."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.Error):
            continue
    return found
