"""The demo's throw-away home: its commands, its mailboxes, its four messages, and what is left in its queue."""

import os
import subprocess
from pathlib import Path

from queue_base.home import Home
from support.demo.screen import Screen

ME = "demo.example"
AUTHOR, READER = f"author@{ME}", f"reader@{ME}"
THREE = ["red@shop.example", "green@shop.example", "blue@shop.example"]
GONE, LATER = "gone@shop.example", "later@shop.example"

BCC = b"Bcc: blue@shop.example\n"
_FROM = b"From: The Author <author@demo.example>\n"
LOCAL = _FROM + b"""To: reader@demo.example
Subject: to a mailbox on this host

This text goes into a Maildir.
.This line begins with a dot, and so does the next.
.
"""
REMOTE = _FROM + b"To: red@shop.example, green@shop.example\n" + BCC + b"""Subject: one message, three recipients

It travels once, for all three.
..Two dots here, and one below.
.
"""
REFUSED = _FROM + b"""To: gone@shop.example
Subject: to somebody who is not there

The server answers 550 to this recipient.
"""
DEFERRED = _FROM + b"""To: later@shop.example
Subject: in a while
Content-Type: text/plain; charset=latin-1
Content-Transfer-Encoding: 8bit

The server answers 451, and takes it the second time. Na\xefve bytes \xa1\xff\x80 stay as they are.
"""


class DemoHome:
    """A home made with `queuectl init`. Raises OSError, and CalledProcessError for a command that fails."""

    def __init__(self, path: Path, programs: Path, screen: Screen) -> None:
        self.path = path
        self.home = Home(str(path / "home"))
        self._programs = programs
        self._screen = screen
        # What a user's own settings would change in the messages, or in which home they go to.
        for name in list(os.environ):
            if name.startswith(("QMAIL", "QUEUE_", "MAIL")):
                del os.environ[name]
        os.environ["QUEUE_HOME"] = self.home.path

    def make(self, port: int) -> None:
        """Make it: mail for ME is local, all other mail goes to a port of the loopback interface."""
        self._screen.block(self.run("queuectl", "init", self.home.path, "--as-me", "--me", ME))
        self.write(Path(self.home.control, "smtproutes"), b":127.0.0.1:%d\n" % port)
        for name, maildir in (("reader", "Maildir"), ("author", "Maildir-author")):
            self.write(Path(self.home.alias, f".qmail-{name}"), f"./{maildir}/\n".encode())
            for part in ("cur", "new", "tmp"):
                Path(self.home.alias, maildir, part).mkdir(parents=True)

    def write(self, path: Path, data: bytes) -> None:
        """Make a file, and show how."""
        self._screen.command(f"echo '{data.decode().strip()}' >{path.relative_to(self.path)}")
        path.write_bytes(data)

    def run(self, name: str, *arguments: str, message: bytes = b"") -> bytes:
        """Run a program of the suite with a message on stdin; return its stdout."""
        self._screen.command(" ".join([name, *arguments]) + (" <message" if message else ""))
        words = [str(self._programs / name), *arguments]
        return subprocess.run(words, input=message, stdout=subprocess.PIPE, check=True, timeout=30).stdout

    def enqueue(self, sender: str, recipients: list[str], message: bytes) -> None:
        """Run queue-enqueue: the message on descriptor 0, the envelope on descriptor 1."""
        envelope = b"".join(word.encode() + b"\0" for word in [f"F{sender}", *(f"T{each}" for each in recipients), ""])
        self._screen.command("printf '" + envelope.decode().replace("\0", r"\0") + "' >envelope")
        self._screen.command("queue-enqueue 0<message 1<envelope")
        (self.path / "message").write_bytes(message)
        (self.path / "envelope").write_bytes(envelope)
        with open(self.path / "message", "rb") as zero, open(self.path / "envelope", "rb") as one:
            words = [str(self._programs / "queue-enqueue")]
            subprocess.run(words, stdin=zero, stdout=one, check=True, timeout=30)

    def messages(self, maildir: str) -> list[bytes]:
        """Return the messages that arrived in a Maildir of alias/, showing each."""
        found = []
        for path in sorted(Path(self.home.alias, maildir, "new").iterdir()):
            found.append(path.read_bytes())
            self._screen.command(f"cat home/alias/{maildir}/new/{path.name}")
            self._screen.block(found[-1])
        return found

    def left_over(self) -> list[str]:
        """Return the files in queue/ but for those in intake/ and lock/, and those in the Maildirs' tmp/."""
        tops = [path for path in Path(self.home.queue).iterdir() if path.name not in ("intake", "lock")]
        tops += Path(self.home.alias).glob("*/tmp")
        return sorted(str(path) for top in tops for path in top.rglob("*") if not path.is_dir())
