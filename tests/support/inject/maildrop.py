"""Puts mail of a user, or any file, in the maildrop/ of a home."""

import os
from pathlib import Path

from queue_base.home import Home
from queue_wire.files.maildrop import pack_envelope
from support.inject.injectors import (
    ROOT,
    USER,
    as_user,
    enqueue,
    states,
)
from support.processes.suite import wait_until

NAME = "0123456789abcdef" * 2
ENVELOPE = pack_envelope(b"a@b", [b"c@d"])


def maildrop(home: Home) -> list[str]:
    """Return the names in maildrop/."""
    return os.listdir(home.queue + "/maildrop")


def set_aside(home: Home) -> list[Path]:
    """Return the files in corrupt/maildrop/, sorted by name."""
    place = Path(home.queue, "corrupt", "maildrop")
    return sorted(place.iterdir()) if place.exists() else []


def leave(home: Home, message: bytes = b"hello\n", recipients: int = 1) -> None:
    """Have the user leave a message in maildrop/."""
    envelope = b"Fa@example.org\0" + b"".join(b"T%d@example.net\0" % each for each in range(recipients)) + b"\0"
    assert enqueue(home, message, envelope, command=as_user(USER, "queue_inject.enqueue")).code == 0


def put(home: Home, data: bytes, name: str = "mail." + NAME) -> Path:
    """Put a file in maildrop/, under another name first, as queue-inject does."""
    path = Path(home.queue, "maildrop", name)
    path.with_name("by hand").write_bytes(data)
    path.with_name("by hand").chmod(0o1644)
    if ROOT:
        os.chown(path.with_name("by hand"), USER, -1)
    path.with_name("by hand").rename(path)
    return path


def taken(home: Home, count: int) -> None:
    """Wait until `count` messages are in the queue and maildrop/ is empty."""
    wait_until(lambda: states(home) == {4: count} and not maildrop(home), why=f"{count} messages")
