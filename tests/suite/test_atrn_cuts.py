"""Conversations after ATRN that are cut, each one at the next byte, while 500 to 1 messages wait.

The daemons run on from cut to cut. What the host has taken is compared after each cut: messages come in order, none is
left out, and a conversation begins with the message that comes next, or repeats the last one before it.
"""

import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from support.local.good_mail import GoodMail
from support.plugins.saying import Say
from support.processes.suite import DEADLINE, Suite, enqueue
from support.queues.queued import store_on_demand
from support.servers.smtp.sink import Sink, Taken
from support.smtpd.odmr_host import OdmrHost, make_provider
from support.smtpd.smtpd_daemon import SmtpdDaemon

pytestmark = [pytest.mark.exhaustive, pytest.mark.one_way]
DOMAIN = b"customer.example"
TEXT = b"Subject: hello\n\n.\n"
MESSAGES = 500


class Limits(NamedTuple):
    """How many bytes a host hears and says before its connection is cut."""

    hears: int = 1 << 40
    says: int = 1 << 40


WHOLE = Limits()


class Ends:
    """Counts the runs that have ended, by a suite's log."""

    def __init__(self) -> None:
        self._count = 0
        self._more = threading.Condition()

    def hear(self, line: str) -> None:
        """Take a line of the log."""
        if re.match(r"ondemand \S+ ended: ", line):
            with self._more:
                self._count += 1
                self._more.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait until so many have ended."""
        with self._more:
            assert self._more.wait_for(lambda: self._count >= count, DEADLINE), (count, self._count)


class CutConnection:
    """A host's connection that hears and says so many bytes at most. `cut`: there were more, and it is gone."""

    def __init__(self, connection: socket.socket, limits: Limits) -> None:
        self._connection = connection
        self.cut = False
        self._hears, self._says = limits

    def recv(self, most: int) -> bytes:
        """Return what has come, nothing after the last byte that is heard."""
        if not self._hears:
            self.cut = True
            return b""
        data = self._connection.recv(min(most, self._hears))
        self._hears -= len(data)
        return data

    def sendall(self, data: bytes) -> None:
        """Say it, or as much as may be said. Raises ConnectionAbortedError."""
        self._connection.sendall(data[: self._says])
        if len(data) > self._says:
            self.cut = True
            raise ConnectionAbortedError
        self._says -= len(data)


class CutHost:
    """A host that asks again and again. `came` are the numbers of the messages, as often as they came.

    `whole`: the last conversation came to its end.
    """

    def __init__(self, smtpd: SmtpdDaemon, ends: Ends, sink: Sink) -> None:
        self.came: list[int] = []
        self.cuts = self.repeats = 0
        self.whole = False
        self._smtpd = smtpd
        self._ends = ends
        self._sink = sink

    def fetch(self, limits: Limits = WHOLE, reset: bool = False) -> list[int] | None:
        """Take mail until the connection is cut, or all has come; return the messages, None if there are none."""
        with OdmrHost(self._smtpd) as host:
            code = host.ask_again()
            if code == 453:
                return None
            assert code == 250
            self.cuts += 1
            connection = CutConnection(host.connection, limits)
            with suppress(ConnectionAbortedError):
                self._sink.serve(connection)  # type: ignore[arg-type]
            self.whole = not connection.cut
            if reset:
                host.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._ends.wait_for(self.cuts)
        # Its log is read, or it would wait for that.
        self._smtpd.said(b"no such line")
        taken, self._sink.taken = self._sink.taken, []
        return self._check([number_of(each) for each in taken])

    def _check(self, numbers: list[int]) -> list[int]:
        """Count what has come in a conversation, in order and with one repeat at most."""
        last = self.came[-1] if self.came else -1
        if numbers:
            assert numbers[0] in (last, last + 1), (numbers, self.came[-5:])
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), numbers
            self.repeats += numbers[0] == last
        self.came += numbers
        return numbers


def number_of(taken: Taken) -> int:
    (recipient,) = taken.recipients
    assert taken.content.endswith(TEXT)
    return int(recipient.partition(b"@")[0])


def address(number: int) -> bytes:
    return b"%d@%s" % (number, DOMAIN)


@pytest.fixture
def provider(mail: GoodMail, tmp_path: Path) -> GoodMail:
    """Give a site with 500 messages for a domain."""
    make_provider(mail, tmp_path)
    mail.control("smtpdlimits", "exempt 127.0.0.0/8\n")
    store_on_demand(mail.home, DOMAIN, [[address(number)] for number in range(MESSAGES)], data=TEXT)
    return mail


def cut_everywhere(host: CutHost) -> Iterator[str]:
    """Cut conversations at each byte up to the second message, and begin again until no mail is left."""
    reset = False
    while True:
        for direction in ("hears", "says"):
            for place in range(10_000):
                taken = host.fetch(WHOLE._replace(**{direction: place}), reset)
                if taken is None:
                    return
                if len(taken) == 2 + (direction == "says"):
                    break
            yield f"{direction} 0-{place}"
        reset = not reset


def cut_last(host: CutHost, suite: Suite, mail: GoodMail) -> None:
    """Cut conversations about a single message at each byte up to the end of the reply to QUIT."""
    number = MESSAGES
    for direction in ("hears", "says"):
        place = 0
        while True:
            if host.fetch(WHOLE._replace(**{direction: place})) is None:
                done = enqueue(mail.home, b"joe@me.example.org", [address(number)], TEXT)
                assert done.returncode == 0, done.stderr
                number += 1
                suite.wait_for(r"^delivery \d+: success: stored_for_", times=number - MESSAGES)
                continue
            if host.whole:
                break
            place += 1
        while host.fetch() is not None:
            pass
    assert host.came[-1] == number - 1


@pytest.mark.parametrize("pipelining", [True, False], ids=["pipelining", "one by one"])
def test_a_cut_at_any_byte_while_500_to_1_messages_wait_loses_none_and_repeats_one_at_most(
    provider: GoodMail, pipelining: bool, say: Say
) -> None:
    ends = Ends()
    with (
        Suite(provider.home, on_line=ends.hear) as suite,
        SmtpdDaemon(provider.home, ["odmr"]) as smtpd,
        Sink() as sink,
    ):
        sink.pipelining = pipelining
        host = CutHost(smtpd, ends, sink)
        passes = list(cut_everywhere(host))
        assert len(passes) >= 4
        assert set(host.came) == set(range(MESSAGES))
        cut_last(host, suite, provider)
        assert sorted(set(host.came)) == list(range(host.came[-1] + 1))
        assert len(host.came) == len(set(host.came)) + host.repeats
        assert host.repeats <= host.cuts
        assert not list(Path(provider.home.queue, "ondemand").iterdir())
    say(f"{host.cuts} conversations ({', '.join(passes)}), {len(set(host.came))} messages, {host.repeats} repeats")
