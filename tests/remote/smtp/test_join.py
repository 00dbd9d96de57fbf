"""When messages join others on a connection: while queue-remote is busy and the server answers promptly."""

import asyncio
import socket
import threading
import time
from pathlib import Path

import pytest

from queue_base.control_files import ControlValues, kept_by
from queue_base.home import Home
from queue_remote.config import RemoteConfig
from queue_remote.options import OptionChoices
from queue_remote.smtp import pool as pool_module
from queue_remote.smtp.connection import CARRIED_MAX, PROMPT_SECONDS, Connection
from queue_remote.smtp.pool import MEASURED_SECONDS, Pool, ProcessorShare
from queue_remote.smtp.transaction import Transaction
from queue_remote.smtpauth import Logins
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.smtp.smtp_script import ready
from support.servers.smtp.smtp_server import SmtpServer

FILES = kept_by("queue-remote")
NO_FILES = ControlValues(Home("/"), FILES, {**dict.fromkeys([file.name for file in FILES]), "me": b"client.example"})
KEY = OptionChoices(RemoteConfig(NO_FILES), Logins({})).find(b"f@a.example", b"b.example")
ENVELOPE = b"250 ok\r\n250 ok\r\n354 go\r\n"


class Peer(asyncio.Transport):
    """A transport that takes everything."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass


def message() -> Transaction:
    transaction = Transaction(b"f@a.example", [b"to@b.example"], 9)
    transaction.content = b"text\r\n.\r\n"
    return transaction


def carrying(seconds: float = 0.0) -> Connection:
    """A connection that has carried a message, whose dot was answered after so many seconds, and carries the next."""
    connection = Connection(ready().protocol, 60)
    connection.connection_made(Peer())
    connection.carry(message())
    connection.data_received(ENVELOPE)
    connection._dot_sent -= seconds
    connection.data_received(b"250 done\r\n")
    connection.carry(message())
    return connection


@pytest.mark.parametrize(
    ("busy", "seconds", "joined"),
    [(True, 0.0, CARRIED_MAX - 1), (False, 0.0, 0), (True, PROMPT_SECONDS * 100, 0)],
    ids=["busy", "not busy", "a slow server"],
)
def test_messages_join_others_while_busy_with_a_prompt_server(busy: bool, seconds: float, joined: int) -> None:
    async def run() -> int:
        pool = Pool(10)
        pool.share.busy = busy
        connection = carrying(seconds)
        pool.offer(KEY, connection)
        found = 0
        while pool.join(KEY) is connection:
            connection.carry(message())
            found += 1
        connection.abort()
        return found

    # The machine may pause the test for longer than a prompt server takes.
    deadline = time.monotonic() + 60
    while (found := asyncio.run(run())) != joined:
        assert time.monotonic() < deadline, found


@pytest.mark.parametrize(
    ("statistics", "busy"),
    [("9000000000 0 5\n", True), ("0 9000000000 5\n", True), ("0 0 5\n", False)],
    ids=["it runs", "it waits for a processor", "it waits for something else"],
)
def test_a_process_is_busy_while_it_runs_or_waits_for_a_processor(tmp_path: Path, statistics: str, busy: bool) -> None:
    path = tmp_path / "schedstat"
    path.write_text("0 0 1\n")
    share = ProcessorShare(str(path))
    path.write_text(statistics)
    time.sleep(MEASURED_SECONDS)
    share.measure()
    assert share.busy is busy


@pytest.mark.parametrize("text", [None, "", "some words here\n"], ids=["none", "empty", "words"])
def test_without_statistics_of_the_kernel_only_the_time_on_a_processor_counts(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "schedstat"
    if text is not None:
        path.write_text(text)
    share = ProcessorShare(str(path))
    end = time.monotonic() + 60
    while not share.busy:
        assert time.monotonic() < end  # It does nothing but this.
        share.measure()


def test_the_pool_forgets_a_connection_that_has_ended() -> None:
    async def run() -> None:
        pool = Pool(10)
        pool.share.busy = True
        while True:
            connection = carrying()
            pool.add(connection)
            pool.offer(KEY, connection)
            if pool._listed:
                break
            connection.connection_lost(None)
        connection.connection_lost(None)
        assert len(pool) == 0
        assert pool.join(KEY) is None
        assert not pool._listed
        assert not pool._joinable

    asyncio.run(run())


def test_a_connection_carries_no_more_than_connectionmessages_also_when_messages_join() -> None:
    async def run() -> None:
        connection = carrying()
        assert not connection.takes_more(2)
        connection.abort()

    asyncio.run(run())


def test_a_message_that_waits_behind_a_silent_server_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "BEHIND_SECONDS", 0.05)
    monkeypatch.setattr("queue_remote.smtp.connection.PROMPT_SECONDS", 60)

    async def run() -> None:
        pool, taken_back = Pool(10), asyncio.Event()
        pool.share.busy = True
        connection = carrying()
        pool.offer(KEY, connection)
        waiting = message()
        waiting.over = taken_back.set
        assert pool.join(KEY) is connection
        connection.carry(waiting)
        async with asyncio.timeout(60):
            await taken_back.wait()
        assert waiting.verdict is None
        assert connection.carried == 1
        connection.abort()

    asyncio.run(run())


@pytest.mark.parametrize("answer", ["250 taken", "554 spam", "450 later", "421 enough"])
def test_whatever_the_dots_are_answered_each_job_has_its_own_verdict(home: RemoteHome, answer: str) -> None:
    jobs = 300
    with SmtpServer() as server:
        home.route_all_to(server.port)
        path = home.message(b"Subject: hello\n\nA message.\n")
        other = home.message(b"Subject: hello\n\nRefused.\n", 29)
        server.message_answers["refused@b.example"] = answer
        expected = {"2": b"K", "4": b"Z", "5": b"D"}[answer[0]]
        with RemoteDaemon(home) as daemon:
            numbers = []
            for number in range(jobs):
                refused = number % 10 == 0
                recipient = b"refused@b.example" if refused else b"ok@b.example"
                numbers.append((daemon.start(other if refused else path, recipient), expected if refused else b"K"))
            for job, letter in numbers:
                assert (found := daemon.report(job)).verdicts[0][0] == letter, found
    assert len(server.received) == jobs if answer.startswith("2") else len(server.received) >= jobs * 9 // 10


def test_a_connection_that_ends_two_messages_at_once_is_idle_once() -> None:
    async def run() -> None:
        pool = Pool(10)
        pool.share.busy = True
        connection = Connection(ready().protocol, 60)
        connection.connection_made(Peer())
        pool.add(connection)
        accepted, refused = message(), message()
        for transaction in accepted, refused:
            transaction.over = lambda: pool.give(KEY, connection)
            connection.carry(transaction)
        connection.data_received(ENVELOPE)
        connection.data_received(b"250 done\r\n250 reset\r\n250 ok\r\n550 nobody\r\n503 no recipients\r\n")
        assert accepted.verdict is not None
        assert refused.verdict is not None
        assert pool.take(KEY) is connection
        assert pool.take(KEY) is None
        connection.abort()

    asyncio.run(run())


def accept_all(listener: socket.socket, taken: list[bytes]) -> None:
    """Serve every connection, until the listener is closed."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=answer_at_once, args=(connection, taken), daemon=True).start()


def answer_at_once(connection: socket.socket, taken: list[bytes]) -> None:
    """Serve a connection: the replies to what one read has are one write, as those of most servers."""
    with connection:
        connection.sendall(b"220 server.example\r\n")
        rest, recipients, in_message = b"", list[bytes](), False
        while data := connection.recv(1 << 20):
            replies = b""
            *lines, rest = (rest + data).split(b"\r\n")
            for line in lines:
                if in_message:
                    if line == b".":
                        in_message = False
                        taken.extend(recipients)
                        recipients = []
                        replies += b"250 taken\r\n"
                elif line.startswith(b"EHLO"):
                    replies += b"250-server.example\r\n250 PIPELINING\r\n"
                elif line.startswith(b"RCPT"):
                    refused = b"refused" in line
                    recipients += [] if refused else [line]
                    replies += b"550 nobody\r\n" if refused else b"250 ok\r\n"
                elif line == b"DATA":
                    in_message = bool(recipients)
                    replies += b"354 go\r\n" if in_message else b"503 no recipients\r\n"
                else:
                    recipients = []
                    replies += b"250 ok\r\n"
            connection.sendall(replies)


def test_a_refused_recipient_behind_a_message_changes_nothing_for_other_jobs(home: RemoteHome) -> None:
    jobs, at_once = 900, 10
    taken: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        threading.Thread(target=accept_all, args=(listener, taken), daemon=True).start()
        home.route_all_to(listener.getsockname()[1])
        path = home.message(b"Subject: hello\n\nA message.\n")
        with RemoteDaemon(home) as daemon:
            begun: dict[int, bytes] = {}
            for number in range(jobs):
                if len(begun) >= at_once:
                    check_report(daemon, begun)
                recipient = b"%d%s@b.example" % (number, b"-refused" if number % 3 == 0 else b"")
                begun[daemon.start(path, recipient)] = recipient
            while begun:
                check_report(daemon, begun)
    assert sorted(taken) == sorted(b"RCPT TO:<%d@b.example>" % number for number in range(jobs) if number % 3)


def check_report(daemon: RemoteDaemon, begun: dict[int, bytes]) -> None:
    """Wait for a report, and check that its verdict is its own message's."""
    report = daemon.report_of_any()
    recipient = begun.pop(report.number)
    letter, text = report.verdicts[0]
    assert (letter, b"internal" in text) == (b"D" if b"refused" in recipient else b"K", False), text


def test_a_message_that_waits_behind_a_refused_one_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "BEHIND_SECONDS", 0.05)

    async def run() -> None:
        pool, taken_back = Pool(10), asyncio.Event()
        pool.share.busy = True
        connection = Connection(ready().protocol, 60)
        connection.connection_made(Peer())
        refused, waiting = message(), message()
        connection.carry(refused)
        connection._prompt = True
        pool.offer(KEY, connection)
        assert pool.join(KEY) is connection
        waiting.over = taken_back.set
        connection.carry(waiting)
        # The reply to DATA is outstanding, and does not come.
        connection.data_received(b"250 ok\r\n550 nobody\r\n")
        assert refused.verdict is not None
        assert connection.carried == 1
        async with asyncio.timeout(60):
            await taken_back.wait()
        assert waiting.verdict is None
        assert connection.carried == 0
        connection.abort()

    asyncio.run(run())
