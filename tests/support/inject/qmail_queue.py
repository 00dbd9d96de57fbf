"""A home in stock qmail's layout, made by hand: flat todo/ and intd/, 23 buckets, its owners and modes.

As root the accounts are numbers that nobody has; otherwise all of them are whoever runs the tests,
so that only the modes differ.
"""

import os
from pathlib import Path

from queue_admin.home.modes import QmailAccounts
from queue_base.accounts import Owner
from queue_base.home import Home

SPLIT = 23
ROOT = os.geteuid() == 0
BIRTH_NS = 1_700_000_000_123_456_789
_NAMES = ("qmailq", "qmails", "qmailr", "alias")


def our_owner() -> Owner:
    """Return who is to own an adopted queue."""
    return Owner(60001, 60001) if ROOT else Owner(os.geteuid(), os.getegid())


def qmail_accounts() -> QmailAccounts:
    """Return the numbers of qmail's accounts."""
    if ROOT:
        return QmailAccounts({name: 60010 + number for number, name in enumerate(_NAMES)}, 60020)
    return QmailAccounts(dict.fromkeys(_NAMES, os.geteuid()), os.getegid())


class QmailQueue:
    """A stock qmail home at `path`; `home` is its Home. `messages` names the messages put into it by state.

    Every file's mtime is `birth_ns`.
    """

    def __init__(self, path: Path, birth_ns: int = BIRTH_NS) -> None:
        self._birth_ns = birth_ns
        self.home = Home(str(path))
        self.queue = path / "queue"
        self.messages: dict[str, int] = {}
        self._accounts = qmail_accounts()
        self._directories(path)

    def _directories(self, path: Path) -> None:
        top = os.geteuid()
        for directory in (path, path / "control"):
            directory.mkdir()
            _own(directory, Owner(top, self._accounts.gid), 0o755)
        self._make(path / "alias", "alias", 0o2755)
        self._make(self.queue, "qmailq", 0o750)
        for kind, mode in (("pid", 0o700), ("intd", 0o700), ("todo", 0o750), ("lock", 0o750)):
            self._make(self.queue / kind, "qmailq", mode)
        self._make(self.queue / "bounce", "qmails", 0o700)
        hashed = [("mess", "qmailq", 0o750), *((kind, "qmails", 0o700) for kind in ("info", "local", "remote"))]
        for kind, account, mode in hashed:
            self._make(self.queue / kind, account, mode)
            for number in range(SPLIT):
                self._make(self.queue / kind / str(number), account, mode)
        self.file(path / "control" / "me", b"mail.example.org\n", "alias", 0o644)
        self.file(path / "alias" / ".qmail-postmaster", b"root\n", "alias", 0o644)
        self.file(self.queue / "lock" / "sendmutex", b"", "qmails", 0o600)
        self.file(self.queue / "lock" / "tcpto", bytes(1024), "qmailr", 0o644)
        os.mkfifo(self.queue / "lock" / "trigger")
        _own(self.queue / "lock" / "trigger", self._accounts.owner("qmails"), 0o622)

    def _make(self, path: Path, account: str, mode: int) -> None:
        path.mkdir()
        _own(path, self._accounts.owner(account), mode)

    def file(self, path: Path, data: bytes, account: str, mode: int) -> Path:
        """Make a file as one of qmail's programs would, with an old mtime that has nanoseconds."""
        path.write_bytes(data)
        _own(path, self._accounts.owner(account), mode)
        os.utime(path, ns=(self._birth_ns, self._birth_ns))
        return path

    def mess(self, data: bytes) -> int:
        """Put a message into mess/ under its inode number (S2), through pid/ as qmail-queue does; return the id."""
        started = self.file(self.queue / "pid" / "started", data, "qmailq", 0o644)
        message = started.stat().st_ino
        os.rename(started, self.queue / "mess" / str(message % SPLIT) / str(message))
        return message

    def message(self, state: str) -> int:
        """Put in a message in state S2, S3, S4 or S5; the S5 has some recipients done and a bounce file."""
        message = self.mess(b"Subject: %s\n\nbody of %s\n.\n" % (state.encode(), state.encode()))
        envelope = b"u7\0p8\0Fsender@example.org\0Tjoe@example.org\0Tjane@example.net\0"
        if state in ("S3", "S4"):
            self.file(self.queue / "intd" / str(message), envelope, "qmailq", 0o644)
        if state == "S4":
            os.link(self.queue / "intd" / str(message), self.queue / "todo" / str(message))
        if state == "S5":
            self.classified(message)
        self.messages[state] = message
        return message

    def classified(self, message: int) -> None:
        """Add what makes S5: one local recipient left, three remote of which two are done, one of them failed."""
        bucket = str(message % SPLIT)
        for kind, data in (
            ("info", b"Fsender@example.org\0"),
            ("local", b"Tjoe@example.org\0"),
            ("remote", b"Dgone@example.net\0Tjane@example.net\0Dok@example.net\0"),
        ):
            self.file(self.queue / kind / bucket / str(message), data, "qmails", 0o600)
        text = b"<gone@example.net>:\nSorry, no mailbox here.\n\n"
        self.file(self.queue / "bounce" / str(message), text, "qmails", 0o600)

    def fill(self) -> None:
        """Put in one message of each state, and a name in pid/ that is a second name of the S2's file."""
        for state in ("S2", "S3", "S4", "S5"):
            self.message(state)
        message = self.messages["S2"]
        os.link(self.queue / "mess" / str(message % SPLIT) / str(message), self.queue / "pid" / "123.456")


def _own(path: Path, owner: Owner, mode: int) -> None:
    os.chown(path, owner.uid, owner.gid)
    os.chmod(path, mode)


def snapshot(path: Path, times: bool = False) -> dict[str, tuple[object, ...]]:
    """Return {relative path: (type and mode, uid, gid, inode, and for files mtime_ns and bytes)} of a whole tree.

    With `times` each has mtime_ns and ctime_ns, too, also directories, links and FIFOs.
    """
    found: dict[str, tuple[object, ...]] = {}
    for directory, names, files in os.walk(path):
        for name in [*names, *files, "."]:
            entry = Path(directory) / name
            facts = entry.lstat()
            known: tuple[object, ...] = (oct(facts.st_mode), facts.st_uid, facts.st_gid, facts.st_ino)
            if times:
                known += (facts.st_mtime_ns, facts.st_ctime_ns)
            if entry.is_file():
                known += (facts.st_mtime_ns, entry.read_bytes())
            found[os.path.relpath(entry, path)] = known
    return found


def messages_only(shot: dict[str, tuple[object, ...]]) -> dict[str, tuple[object, ...]]:
    """Return a snapshot's files under queue/, without owners and modes: inode, mtime and bytes."""
    return {name: known[3:] for name, known in shot.items() if name.startswith("queue/") and len(known) > 4}
