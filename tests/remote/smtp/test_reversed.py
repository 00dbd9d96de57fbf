"""Mail over a connection whose server has asked for it: one transaction after the other, and a cut at every byte."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from queue_base.daemon.unix_sockets import send_with_descriptor
from queue_base.home import Home
from queue_remote.delivery import deliver_reversed
from queue_remote.message.conversions import Conversions
from queue_remote.message.file import open_message
from queue_remote.setup import Setup, read_setup
from queue_remote.smtp import reversed_hosts
from queue_remote.smtp.pool import Pool
from queue_remote.smtp.reversed_hosts import ReversedHosts
from queue_remote.smtp.transaction import Transaction
from queue_remote.tls.mta_sts import StsCache
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.job import Job, ReversedHost, pack_job, pack_reversed
from queue_wire.pipes.report import HOST_SCOPE, PERMANENT, SUCCESS, TEMPORARY, Report, unpack_report
from support.processes.remote_daemon import PROGRAM, RemoteHome

DOMAIN = b"customer.example"
WHOLE = 1 << 30
TIMEOUT = 5.0
REPLIES = {b"EHLO": b"250-host\r\n250 PIPELINING\r\n", b"MAIL": b"250 ok\r\n", b"RSET": b"250 ok\r\n"}


class CutHost(asyncio.Protocol):
    """A host that closes the connection when it has heard, or said, so many bytes. `taken` has its messages."""

    def __init__(self, hears: int = WHOLE, says: int = WHOLE, recipient: bytes = b"250 ok\r\n") -> None:
        self.taken: list[bytes] = []
        self.heard = b""
        self.said = 0
        self._hears = hears
        self._says = says
        self._recipient = recipient
        self._rest = b""
        self._message: list[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._say(b"220 host\r\n")

    def data_received(self, data: bytes) -> None:
        data = data[: self._hears - len(self.heard)]
        self.heard += data
        *lines, self._rest = (self._rest + data).split(b"\r\n")
        for line in lines:
            self._take(line)
        if len(self.heard) >= self._hears:
            self._transport.close()

    def _take(self, line: bytes) -> None:
        if self._message is None:
            if line == b"DATA":
                accepted = self._recipient.startswith(b"250")
                self._message = [] if accepted else None
                self._say(b"354 go on\r\n" if accepted else b"503 no recipient\r\n")
            else:
                self._say(REPLIES.get(line[:4], self._recipient))
        elif line == b".":
            self.taken.append(b"\n".join(self._message))
            self._message = None
            self._say(b"250 taken\r\n")
        else:
            self._message.append(line)

    def _say(self, data: bytes) -> None:
        data = data[: self._says - self.said]
        self.said += len(data)
        if not self._transport.is_closing():
            self._transport.write(data)
        if self.said >= self._says:
            self._transport.close()


class ReversedMail:
    """Messages that are stored: `kept` has the numbers of those that are not delivered, and were not refused."""

    def __init__(self, home: RemoteHome, count: int) -> None:
        home.control("smtproutes", "")
        self._setup: Setup = read_setup(Home(str(home.path)), StsCache(), Conversions())
        self._paths = [
            str(home.path / "queue" / home.message(b"Subject: %d\n\nx\n" % number, number).decode())
            for number in range(count)
        ]
        self.kept = list(range(count))
        self.letters: list[bytes] = []

    async def deliver(self, host: CutHost) -> bool:
        """Deliver over a connection of a host; return whether it could take more."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        make = cast("Callable[[], asyncio.Protocol]", lambda: host)
        await asyncio.get_running_loop().create_unix_connection(make, sock=theirs)
        hosts = ReversedHosts(Pool(10))
        hosts.add(ReversedHost(b"192.0.2.7", [DOMAIN, b"branch.example"]), ours.detach(), b"me.example", TIMEOUT)
        for number in list(self.kept):
            connection = await hosts.find(DOMAIN)
            message = open_message(self._paths[number])
            transaction = Transaction(b"a@a.example", [b"x@" + DOMAIN], message.size)
            scope = await deliver_reversed(self._setup, connection, b"a@a.example", transaction, message)
            message.close()
            letter = transaction.verdicts()[0][0]
            self.letters.append(letter)
            if letter in (SUCCESS, PERMANENT):
                self.kept.remove(number)
            if scope == HOST_SCOPE:
                break
        clean = await hosts.release(DOMAIN)
        assert b"branch.example" not in hosts
        return clean


def test_the_mail_goes_in_order_and_no_quit_is_said(tmp_path: Path) -> None:
    mail, host = ReversedMail(RemoteHome(tmp_path), 3), CutHost()
    assert asyncio.run(mail.deliver(host))
    assert host.taken == [b"Subject: %d\n\nx" % number for number in range(3)]
    assert not mail.kept and b"QUIT" not in host.heard


def test_after_a_refusal_the_next_message_follows(tmp_path: Path) -> None:
    mail, host = ReversedMail(RemoteHome(tmp_path), 2), CutHost(recipient=b"550 no\r\n")
    assert asyncio.run(mail.deliver(host))
    assert mail.letters == [PERMANENT, PERMANENT]


@pytest.mark.parametrize("greeting", [b"554 no\r\n", b"421 later\r\n", b"what?\r\n"])
def test_a_host_that_does_not_greet_as_a_server_gets_nothing(tmp_path: Path, greeting: bytes) -> None:
    class RudeHost(CutHost):
        def _say(self, data: bytes) -> None:
            super()._say(greeting)

    mail = ReversedMail(RemoteHome(tmp_path), 2)
    assert not asyncio.run(mail.deliver(RudeHost()))
    assert mail.kept == [0, 1]


@pytest.mark.parametrize("greeting", [b"", b"220 host\r\n"])
def test_a_host_that_says_nothing_loses_its_place_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, greeting: bytes
) -> None:
    class SilentHost(CutHost):
        def _say(self, data: bytes) -> None:
            super()._say(greeting if data.startswith(b"220") else b"")

    monkeypatch.setattr(reversed_hosts, "OPENING_SECONDS", 0.1)
    mail = ReversedMail(RemoteHome(tmp_path), 2)
    begun = time.monotonic()
    assert not asyncio.run(mail.deliver(SilentHost()))
    assert mail.kept == [0, 1] and time.monotonic() - begun < TIMEOUT


def test_a_connection_that_has_not_come_defers_the_mail(tmp_path: Path) -> None:
    async def find() -> None:
        hosts = ReversedHosts(Pool(10))
        hosts.add(ReversedHost(b"192.0.2.7", [DOMAIN]), None, b"me.example", 5.0)
        with pytest.raises(OSError, match="not connected"):
            await hosts.find(DOMAIN)
        assert not await hosts.release(DOMAIN)

    asyncio.run(find())


def test_what_is_no_connection_is_closed_and_defers_the_mail(tmp_path: Path) -> None:
    async def find(descriptor: int) -> None:
        hosts = ReversedHosts(Pool(10))
        hosts.add(ReversedHost(b"192.0.2.7", [DOMAIN]), descriptor, b"me.example", 5.0)
        with pytest.raises(OSError):
            await hosts.find(DOMAIN)
        assert not await hosts.release(DOMAIN) and DOMAIN not in hosts
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)

    asyncio.run(find(os.open(tmp_path, os.O_RDONLY)))
    asyncio.run(find(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).detach()))


def test_a_connection_does_not_take_the_place_of_one_that_was_lost_on_its_way(tmp_path: Path) -> None:
    home = RemoteHome(tmp_path)
    domains = [b"lost.example", b"branch.example"]
    for domain in domains:
        directory = tmp_path / "queue" / "ondemand" / domain.decode() / "mess"
        directory.mkdir(parents=True)
        (directory / "1.23-gk2x9w").write_bytes(b"Subject: for %s\n\nx\n" % domain)
    lost, other = socket.socketpair()
    given, host = socket.socketpair()
    jobs, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), "--home", str(home.path)], stdin=theirs.fileno(), stdout=subprocess.PIPE
    )
    theirs.close()
    with jobs, lost, other, given, host, process:
        assert process.stdout is not None
        announced = [
            pack_reversed(ReversedHost(b"192.0.2.7", [domain], os.fstat(one.fileno()).st_ino))
            for domain, one in zip(domains, (lost, given), strict=True)
        ]
        send_with_descriptor(jobs, b"".join(announced), given.fileno())
        path = b"ondemand/%s/mess/1.23-gk2x9w"
        jobs.send(pack_job(Job(1, path % domains[0], b"", domains[0], [b"a@" + domains[0]])))
        reader, found = NetstringReader(), list[object]()
        while len(found) < 2:
            reader.feed(os.read(process.stdout.fileno(), 65536))
            while (payload := reader.next()) is not None:
                found.append(unpack_report(payload))
        host.settimeout(20)
        host.sendall(b"220 host\r\n")
        assert host.recv(100).startswith(b"EHLO ")
        jobs.close()
        process.kill()
    report = found[1]
    assert isinstance(report, Report) and report.verdicts[0][0] == TEMPORARY


@pytest.mark.parametrize("side", ["hears", "says"])
def test_cut_at_every_byte_nothing_is_lost_and_one_message_comes_twice_at_most(tmp_path: Path, side: str) -> None:
    home = RemoteHome(tmp_path)

    async def run() -> None:
        whole = CutHost()
        await ReversedMail(home, 2).deliver(whole)
        end = len(whole.heard) if side == "hears" else whole.said
        mail = ReversedMail(home, 2)
        for place in range(1, end):
            mail.kept = [0, 1]
            cut = CutHost(hears=place) if side == "hears" else CutHost(says=place)
            rest = CutHost()
            assert not await mail.deliver(cut), place
            await mail.deliver(rest)
            assert not mail.kept and PERMANENT not in mail.letters, place
            taken = cut.taken + rest.taken
            assert len(set(taken)) == 2 and len(taken) <= 3, place

    asyncio.run(run())
