"""One connection in-process: what a client may hold, and what it may cost in one turn."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_base.queue.inflow import FREE_MIN
from queue_base.queue.layout import open_layout
from queue_base.queue.writer import QueueWriter
from queue_intake import client_connection as module
from queue_intake.acceptance import PROMISE_BYTES, Acceptance
from queue_intake.client_connection import ClientConnection, IntakeClient, Memory
from queue_intake.commit_group import CommitGroup, ReceivedMessage, accepted_text
from queue_intake.entrance import Door, Entrance
from queue_intake.sharing import SharingLimits, UsageCounts
from queue_wire.pipes.qmtp import GIVE_UP, NUMBERS, PIECES_END, pack_envelope, pack_facts, pack_head, pack_piece
from support.intake.intake_daemon import qmtp
from support.queues.home import make_home

NOW = 1000.0
MAIL = b"Subject: hello\n\n"


def commit_all(writer: QueueWriter, messages: list[ReceivedMessage]) -> None:
    """Commit messages."""
    group = CommitGroup(writer)
    for message in messages:
        group.add(message)
    while group.go_on():
        group.sync()


class Site:
    """What connections share, and the connections that were made."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.writer = QueueWriter(home, open_layout(home.queue), os.getuid())
        self.acceptance = Acceptance(home, self.writer, lambda text: None)
        door = Door("", lambda former: self.acceptance)
        door.acceptance = self.acceptance
        self.entrance = Entrance([door], lambda text: None, lambda text: None)
        self.counts = UsageCounts(SharingLimits())
        self.memory = Memory()
        self.ends: list[tuple[ClientConnection, socket.socket]] = []

    def connect(self, name: str = "uid 1", trusted: bool = True) -> tuple[ClientConnection, socket.socket]:
        """Return a new connection, and its client's end."""
        ours, client = socket.socketpair()
        client.setblocking(False)
        usage = self.counts.connect(name)
        assert usage is not None
        user = IntakeClient(name, os.getuid(), trusted)
        found = ClientConnection(ours, user, None, usage, self.counts, self.entrance, self.memory, NOW)
        self.ends.append((found, client))
        return found, client

    def hand_in(self, connection: ClientConnection, client: socket.socket, data: bytes) -> list[ReceivedMessage]:
        """Send bytes, and have the connection take them all."""
        complete: list[ReceivedMessage] = []
        for at in range(0, len(data), 50_000):
            client.sendall(data[at : at + 50_000])
            connection.receive(NOW)
            complete += connection.advance(NOW)
            while connection.yields:
                complete += connection.advance(NOW)
            connection.check_memory()
        return complete

    def commit(self, connection: ClientConnection, messages: list[ReceivedMessage]) -> None:
        """Put messages into the queue, and answer."""
        commit_all(self.writer, messages)
        for message in messages:
            connection.decide(message, accepted_text(message, 1), NOW)
        connection.send(NOW)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(make_home(tmp_path / "home"))
    yield found
    for connection, client in found.ends:
        connection.close()
        client.close()


def free_are(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk have so many bytes for mail."""
    free = most + FREE_MIN
    found = os.statvfs_result((1, 1, free, free, free, 10**6, 10**6, 10**6, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda place: found)


def test_many_small_messages_at_once_are_promised_no_more_than_the_disk_has(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    free_are(3_000_000, monkeypatch)
    for _ in range(3):
        site.hand_in(*site.connect(), pack_head(900_000) + b"x" * 10_000)
    assert site.acceptance.promised == 3 * 890_000
    fourth, client = site.connect()
    assert site.hand_in(fourth, client, qmtp(b"x" * 500_000, b"ann", [b"bob"])) == []
    fourth.send(NOW)
    assert client.recv(999).partition(b":")[2].startswith(b"Zunable to queue message: the disk is almost full")
    site.ends[0][0].close()
    (taken,) = site.hand_in(fourth, client, qmtp(b"x" * 500_000, b"ann", [b"bob"]))
    assert site.acceptance.promised == 2 * 890_000
    site.commit(fourth, [taken])
    for connection, _ in site.ends:
        connection.close()
    assert site.acceptance.promised == 0


def test_who_announces_a_very_large_message_leaves_room_for_others(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    free_are(10_000_000, monkeypatch)
    large, client = site.connect()
    size = 9_000_000
    site.hand_in(large, client, pack_head(size))
    assert site.acceptance.promised == PROMISE_BYTES
    other, end = site.connect()
    (message,) = site.hand_in(other, end, qmtp(b"x" * 5000, b"ann", [b"bob"]))
    site.commit(other, [message])
    assert site.hand_in(other, end, pack_head(10_000_000)) == []
    assert site.acceptance.promised == PROMISE_BYTES
    (message,) = site.hand_in(large, client, b"x" * size + b",0:,6:3:bob,,")
    assert site.acceptance.promised == 0
    assert [part.done for part in large.take_parts()] == [False]
    site.commit(large, [message])
    assert message.draft.queued


def test_a_message_in_pieces_is_promised_a_megabyte_at_a_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    connection, client = site.connect()
    begin = pack_facts(pieces=True) + pack_piece(b"x" * 40_000)
    site.hand_in(connection, client, begin)
    assert site.acceptance.promised == PROMISE_BYTES - 40_000
    (message,) = site.hand_in(connection, client, PIECES_END + pack_envelope(b"", [b"bob"]))
    assert site.acceptance.promised == 0
    site.commit(connection, [message])
    free_are(PROMISE_BYTES, monkeypatch)
    assert site.hand_in(connection, client, begin + GIVE_UP) == []
    assert site.acceptance.promised == 0
    site.hand_in(connection, client, begin)
    free_are(1000, monkeypatch)
    assert site.hand_in(connection, client, pack_piece(b"x" * 60_000) * 20) == []
    assert site.acceptance.promised == 0
    assert site.hand_in(connection, client, PIECES_END + pack_envelope(b"", [b"bob"])) == []


def test_a_large_message_that_is_dropped_keeps_no_file_until_its_sync(site: Site) -> None:
    before = len(os.listdir("/proc/self/fd"))
    connection, client = site.connect()
    site.hand_in(connection, client, pack_head(9_000_000) + b"x" * 5_000_000)
    connection.close()
    client.close()
    assert len(connection.take_parts()) == 1
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_message_that_is_refused_holds_nothing(site: Site) -> None:
    Path(site.home.control, "databytes").write_text("1000\n")
    connection, client = site.connect("uid 7", trusted=False)
    usage = site.counts.connect("uid 7")
    assert usage is not None
    site.hand_in(connection, client, pack_head(900_000_000) + b"x" * 1000)
    assert (usage.messages, usage.bytes, site.counts.messages) == (0, 0, 0)
    connection.close()
    other, client = site.connect("uid 7", trusted=False)
    site.hand_in(other, client, pack_head(900) + b"x" * 10)
    assert (usage.messages, usage.bytes, site.counts.messages) == (1, 900, 1)
    other.close()
    assert (usage.messages, usage.bytes, site.counts.messages) == (0, 0, 0)


def test_one_turn_of_a_connection_is_short_whatever_it_has_read(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN_SECONDS", 0.0)
    connection, client = site.connect()
    for data, turns in (
        (qmtp(b"", b"a", []) * 50, 100),
        (pack_facts(pieces=True) + pack_piece(b"x") * 500 + GIVE_UP, 500),
        (qmtp(b"", b"a", [b"\0"] * 9000), 10),
    ):
        client.sendall(data)
        connection.receive(NOW)
        count = 1
        connection.advance(NOW)
        while connection.yields:
            connection.advance(NOW)
            connection.send(NOW)
            count += 1
        assert count >= turns


def test_small_pieces_are_written_together(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = os.write

    def count(handle: int, data: bytes) -> int:
        written.append(len(data))
        return write(handle, data)

    monkeypatch.setattr(os, "write", count)
    monkeypatch.setattr(module, "TURN_SECONDS", 60.0)
    connection, client = site.connect()
    pieces = [b"%d\n" % number for number in range(1000)]
    text = b"".join(pieces)
    stream = pack_facts(pieces=True) + b"".join(map(pack_piece, pieces)) + pack_piece(b"y" * 9000) + PIECES_END
    (message,) = site.hand_in(connection, client, stream + pack_envelope(b"", [b"bob"]))
    # The first write has the Received field too.
    assert sum(written) < len(text) + 9000 + 200 and len(written) <= 20
    site.commit(connection, [message])
    with open(message.draft.path, "rb") as file:
        assert file.read().endswith(b"\n" + text + b"y" * 9000)


def test_facts_may_come_once_before_a_package(site: Site) -> None:
    connection, client = site.connect()
    assert len(site.hand_in(connection, client, (pack_facts(5) + qmtp(MAIL, b"a", [b"b"])) * 2)) == 2
    assert site.hand_in(connection, client, pack_facts(5) * 2 + qmtp(MAIL, b"a", [b"b"])) == []
    assert not connection.reads


def test_a_message_gets_its_number_where_the_first_nul_is(site: Site) -> None:
    connection, client = site.connect()
    text = b"X: first\nReceived: x id \0; date\n\nbody \0\n"
    pieces = pack_facts(pieces=True) + b"".join(pack_piece(b"%c" % byte) for byte in text) + PIECES_END
    stream = qmtp(text, b"a", [b"b"]) + pieces + pack_envelope(b"a", [b"b"])
    messages = site.hand_in(connection, client, NUMBERS + stream)
    other, other_client = site.connect()
    messages += site.hand_in(other, other_client, qmtp(text, b"a", [b"b"]))
    site.commit(connection, messages[:2])
    site.commit(other, messages[2:])
    found = []
    for each in messages:
        with open(each.draft.path, "rb") as file:
            found.append(file.read().partition(b"X: ")[2])
    numbers = [b"%d" % each.draft.message for each in messages[:2]]
    assert found == [text[3:].replace(b"\0", number, 1) for number in numbers] + [text[3:]]


def test_refused_packages_behind_one_that_is_not_decided_are_limited_too(site: Site) -> None:
    connection, client = site.connect()
    refused = qmtp(b"", b"a", [b"\0"])
    (message,) = site.hand_in(connection, client, qmtp(MAIL, b"a", [b"b"]) + refused * 3 * module.IN_HAND)
    assert connection.blocked and not connection.reads
    assert site.memory.used < 100_000
    site.commit(connection, [message])
    while connection.blocked or connection.yields:
        connection.advance(NOW)
        connection.send(NOW)
    assert connection.reads
    answers = b""
    while answers.count(b":D") < 3 * module.IN_HAND:
        answers += client.recv(99_999)


def test_a_package_of_impossible_recipients_is_refused_whole_and_takes_no_memory(site: Site) -> None:
    connection, client = site.connect()
    recipients = [b"\0"] * 5000
    assert site.hand_in(connection, client, qmtp(MAIL, b"a", [b"b", *recipients])) == []
    assert site.memory.used < 1000
    answers = b""
    while answers.count(b"too many recipients that are no addresses") < 5001:
        connection.send(NOW)
        answers += client.recv(99_999)
    assert site.memory.used == 0


def test_answers_that_are_not_read_count_as_memory(site: Site) -> None:
    connection, client = site.connect()
    recipients = [b"\0", b"b"] * 900
    (message,) = site.hand_in(connection, client, qmtp(MAIL, b"a", recipients))
    before = site.memory.used
    commit_all(site.writer, [message])
    connection.decide(message, b"ok", NOW)
    assert before > 100_000 and site.memory.used > 100_000
    connection.close()
    assert site.memory.used == 0


def test_a_client_that_reads_its_answers_slowly_has_a_limited_time(site: Site) -> None:
    connection, client = site.connect()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    (message,) = site.hand_in(connection, client, qmtp(MAIL, b"a", [b"b"] * 20_000))
    site.commit(connection, [message])
    assert connection.writes
    now = NOW
    while now < NOW + module.ANSWERS_SECONDS:
        assert not connection.is_late(now)
        now += module.STALL_SECONDS / 2
        client.recv(20_000)
        connection.send(now)
    assert connection.writes
    assert connection.is_late(now + 1)
