"""A queue with messages in chosen states, and queuectl on it."""

import os
from pathlib import Path

import pytest

from queue_admin.main import main
from queue_base.home import Home
from queue_base.queue.layout import Layout, open_layout
from support.queues.home import make_home

BIRTH = 1_700_000_000_123_456
SOON = 4_000_000_000


class Queue:
    """A queue to put messages into: that of a home, or of a new one at a path; `flat` as in make_home."""

    def __init__(self, place: Path | Home, flat: bool = False) -> None:
        self.home: Home = place if isinstance(place, Home) else make_home(place, flat=flat)
        self.layout: Layout = open_layout(self.home.queue)

    def put(self, path: str, data: bytes, when: float = BIRTH / 1e6) -> None:
        Path(path).write_bytes(data)
        os.utime(path, ns=(int(when) * 10**9, int(when) * 10**9))
        if when == BIRTH / 1e6:
            os.utime(path, ns=(BIRTH * 1000, BIRTH * 1000))

    def mess(self, data: bytes = b"Subject: x\n\nhello\n") -> int:
        self.put(f"{self.home.queue}/pid/new", data)
        message = os.stat(f"{self.home.queue}/pid/new").st_ino
        os.rename(f"{self.home.queue}/pid/new", self.layout.mess(message))
        return message

    def queued(self, sender: bytes = b"a@b", recipients: tuple[bytes, ...] = (b"c@d",)) -> int:
        message = self.mess()
        tail = b"".join(b"T%s\0" % recipient for recipient in recipients)
        self.put(self.layout.todo(message), b"u1\0p2\0F%s\0%s" % (sender, tail))
        return message

    def classified(self, sender: bytes = b"a@b", local: bytes = b"", remote: bytes = b"", due: float = SOON) -> int:
        message = self.mess()
        self.put(self.layout.hashed("info", message), b"F%s\0" % sender)
        for kind, data in (("local", local), ("remote", remote)):
            if data:
                self.put(self.layout.hashed(kind, message), data, due)
        return message

    def run(self, *words: str) -> int:
        return main(["queuectl", "--home", self.home.path, *words])


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()
