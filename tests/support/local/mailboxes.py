"""A home whose alias/ is a mailbox that may be delivered to, whoever runs the tests.

Deliveries never run as root, so alias/ belongs to an unused uid where root runs them, and that uid can
walk to it: pytest's own tmp_path is closed to others.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from queue_base.home import Home
from support.queues.home import make_home

# Who receives mail in tests.
UID = os.geteuid() or 12345


class MailHome:
    """A home, the path of its alias/, and ways to fill it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.home: Home = make_home(path)
        self.alias = path / "alias"
        give(self.alias)
        self._messages = 0

    def maildir(self, name: str = "Maildir") -> Path:
        """Make a maildir in alias/; return its path."""
        maildir = self.alias / name
        for directory in (maildir, maildir / "tmp", maildir / "new", maildir / "cur"):
            directory.mkdir()
            give(directory)
        return maildir

    def qmail(self, name: str, text: bytes, mode: int = 0o644) -> Path:
        """Write a .qmail file into alias/; return its path."""
        file = self.alias / name
        file.write_bytes(text)
        file.chmod(mode)
        give(file)
        return file

    def message(self, data: bytes) -> bytes:
        """Write a message that only the owner of the queue may read; return its path under queue/."""
        self._messages += 1
        name = f"mess/{self._messages % 23}/{self._messages}"
        file = self.path / "queue" / name
        file.write_bytes(data)
        file.chmod(0o600)
        return name.encode()


def give(path: Path) -> None:
    """Give a file to the one who receives mail."""
    os.chown(path, UID, UID if os.geteuid() == 0 else -1)


def new_mail(maildir: Path) -> list[bytes]:
    """Return the messages in new/, in no order."""
    return [file.read_bytes() for file in (maildir / "new").iterdir()]


@contextmanager
def mail_home() -> Iterator[MailHome]:
    """Give a MailHome in a directory that everybody may walk through; remove it afterwards."""
    top = Path(tempfile.mkdtemp(prefix="queue-suite-"))
    top.chmod(0o711)
    try:
        yield MailHome(top / "home")
    finally:
        shutil.rmtree(top)
