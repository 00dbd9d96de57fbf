"""A home in which injectors were killed, one after the other: the suite is started on it, and what arrives is counted.

A message has a token, and some hundred lines that show whether it is whole: more than one write of any program.
"""

import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_clean.sweep import OLD, sweep
from support.inject.injectors import PickupDaemon, queued, states, wrong_inodes
from support.processes.suite import Suite, wait_until
from support.queues.letters import token_of
from support.send.control import files
from support.site import Site, mail_site

RECIPIENT = "bob@me.example.org"
SENDER = "ann@me.example.org"
_FILLING = "x" * 60
_TROUBLE = re.compile("alert|warning|corrupt|Traceback|delivery.*(deferral|failure)")


def text_of(token: str, lines: int = 1200) -> bytes:
    """Return the message of a token, by default of 80 kB. Its header is complete, so that no injector adds to it."""
    head = (
        f"X-Token: {token}\nDate: 20 Nov 2026 13:00:00 -0000\nMessage-ID: <{token}@me.example.org>\n"
        f"From: {SENDER}\nTo: {RECIPIENT}\nSubject: {token}\n"
    )
    body = "".join(f"{number} {_FILLING}\n" for number in range(lines))
    return f"{head}\n{body}end of {token}\n".encode()


def odd_files(home: Home) -> list[str]:
    """Return what an injector that was killed may not leave: states but S2 to S4, numbers that are not the inode's."""
    found = [f"{count} messages in state {state}" for state, count in states(home).items() if state not in (2, 3, 4)]
    return found + [f"{path} has another inode" for path in wrong_inodes(home)]


def sweep_all(home: Home) -> None:
    """Sweep a home as queue-clean does when 36 hours are over."""
    for _ in sweep(open_layout(home.queue), time.time() + OLD + 60):
        pass


class World:
    """A Site; `expect` says how often a message may arrive, `finish` finds how often it does."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.home = site.home
        self._expected: dict[str, tuple[int, int, str, bytes]] = {}

    def expect(self, token: str, least: int, most: int, why: str, lines: int = 1200) -> None:
        """Note that a message must arrive whole and so often; `why` is for a person."""
        self._expected[token] = (least, most, why, text_of(token, lines))

    @property
    def surplus(self) -> int:
        """How many messages more than the fewest possible have arrived."""
        return len(self.site.delivered()) - sum(least for least, _, _, _ in self._expected.values())

    def in_queue(self) -> set[str]:
        """Return the tokens of the messages that are safe in the queue, and not classified."""
        return {token_of(each.message) for each in queued(self.home)}

    def finish(self) -> list[str]:
        """Start the suite, wait until the queue is empty, sweep; return what is wrong."""
        wrong = odd_files(self.home)
        for name in os.listdir(self.home.queue + "/maildrop"):
            if name.startswith("tmp."):  # It goes after 36 hours.
                os.utime(f"{self.home.queue}/maildrop/{name}", (1, 1))
        with Suite(self.home) as suite:
            wait_until(lambda: not self._busy() and not self._busy(), 600, "an empty queue")
        if os.listdir(self.home.queue + "/maildrop"):
            # The suite removes them when it has seen them for an hour, this one at once.
            with PickupDaemon(self.home):
                wait_until(lambda: not os.listdir(self.home.queue + "/maildrop"), 60, "the end of what is abandoned")
        wrong += filter(_TROUBLE.match, suite.lines)
        sweep_all(self.home)
        wrong += [f"left behind: {name}" for name in files(self.home)]
        return wrong + list(self._count())

    def _busy(self) -> bool:
        return any(name.startswith(("todo", "info", "maildrop/mail.")) for name in files(self.home))

    def _count(self) -> Iterator[str]:
        found: Counter[str] = Counter()
        for message in self.site.delivered():
            token = token_of(message)
            if token not in self._expected:
                yield f"nobody sent this: {message[:300]!r}"
            elif not message.endswith(b"\n" + self._expected[token][3]):
                yield f"half a message, of {len(message)} bytes: {self._expected[token][2]}"
            found[token] += 1
        for token, (least, most, why, _) in self._expected.items():
            if not least <= found[token] <= most:
                yield f"{found[token]} copies, {least} to {most} expected: {why}"


@contextmanager
def kill_world() -> Iterator[World]:
    """Give a World whose maildrop/ everybody may leave mail in."""
    with mail_site() as site:
        Path(site.home.queue, "maildrop").chmod(0o3733)
        yield World(site)
