"""A home that mail can pass through: a maildir behind every local address, routes for all others, memory for a disk.

Many messages go through these tests, so the home is on /dev/shm where there is one: what they show does
not depend on the disk, and its speed should not decide them.
"""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.local.mailboxes import MailHome, give

LOCAL = "me.example.org"
SHM = Path("/dev/shm")


class Site:
    """A MailHome with one maildir for everybody; `routes` are lines of control/smtproutes."""

    def __init__(self, path: Path) -> None:
        self.mail = MailHome(path)
        self.home = self.mail.home
        self.maildir = self.mail.maildir()
        self.mail.qmail(".qmail-default", b"./Maildir/\n")

    def control(self, name: str, text: str) -> Path:
        """Write a control file; return its path."""
        path = Path(self.home.control, name)
        path.write_text(text)
        return path

    def route(self, port: int, **others: int) -> None:
        """Send all remote mail to a port of this host, but that for a domain `NAME.example` to another one."""
        lines = [f"{name}.example:127.0.0.1:{other}" for name, other in others.items()]
        self.control("smtproutes", "\n".join([*lines, f":127.0.0.1:{port}", ""]))

    def delivered(self) -> list[bytes]:
        """Return the messages in the maildir, in no order."""
        return [path.read_bytes() for path in (self.maildir / "new").iterdir()]

    def delivered_to(self, recipient: str) -> list[bytes]:
        """Return the messages in the maildir that were for one recipient."""
        line = b"Delivered-To: %s\n" % recipient.encode()
        return [message for message in self.delivered() if line in message.partition(b"\n\n")[0] + b"\n"]

    def user_maildir(self, name: str) -> Path:
        """Give an address of its own a maildir of its own; return its path."""
        self.mail.qmail(f".qmail-{name}", b"./%s/\n" % name.encode())
        return self.mail.maildir(name)

    def files(self) -> list[str]:
        """Return every file in queue/ but `marks`, `stamp` and those of intake/ and lock/, as paths below queue/."""
        top = Path(self.home.queue)
        found = [path.relative_to(top) for path in top.rglob("*") if not path.is_dir()]
        return sorted(str(path) for path in found if path.parts[0] not in ("intake", "lock", "marks", "stamp"))

    def is_empty(self) -> bool:
        """Whether no message has a file that makes it queued or classified."""
        return not any(name.split("/")[0] in ("todo", "info") for name in self.files())

    def kinds(self) -> Counter[str]:
        """Return how many files each directory of queue/ has."""
        return Counter(name.split("/")[0] for name in self.files())


@contextmanager
def mail_site() -> Iterator[Site]:
    """Give a Site in a directory that everybody may walk through; remove it afterwards."""
    top = Path(tempfile.mkdtemp(prefix="queue-suite-", dir=SHM if os.access(SHM, os.W_OK) else None))
    top.chmod(0o711)
    try:
        yield Site(top / "home")
    finally:
        shutil.rmtree(top)


__all__ = ["LOCAL", "Site", "give", "mail_site"]
