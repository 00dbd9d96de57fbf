"""Mail of users who may not write to the queue: queue-intake takes it, else maildrop/, and nothing is sent twice."""

import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.errors import QueueTrouble
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_inject import hand_in
from queue_inject.drop import DropWriter
from queue_inject.hand_in import IntakeDraft, IntakeWriter
from queue_wire.pipes.framing import pack_netstring
from support.inject.injectors import USER, as_user, only, queued, run, shared_home
from support.intake.intake_daemon import IntakeDaemon
from support.intake.scripted_intake import server
from support.processes.suite import DEADLINE as SECONDS

MAIL = b"From: ann@example.org\nTo: bob@example.net\n\nhello\n"
K = pack_netstring(b"Kok 1 qp 2 457-abc")
Z = pack_netstring(b"Ztoo much new mail is waiting")


@pytest.fixture
def shared() -> Iterator[Home]:
    with shared_home() as home:
        yield home


def dropped(home: Home) -> list[bytes]:
    """Return the files of maildrop/, without the first line."""
    return [path.read_bytes().partition(b"\n")[2] for path in sorted(Path(home.queue, "maildrop").iterdir())]


def read_packages(connection: socket.socket, count: int) -> None:
    """Read so many packages of `commit`, which end so."""
    data = b""
    while data.count(b"8:b@c.test,,") < count:
        data += connection.recv(65536)


def commit(home: Home, count: int = 1, message: bytes = MAIL) -> tuple[list[IntakeDraft], QueueTrouble | None]:
    """Commit a group of messages; return the drafts, and the failure."""
    writer = IntakeWriter(home, DropWriter(home))
    drafts = [writer.begin() for _ in range(count)]
    for number, draft in enumerate(drafts):
        draft.write(message)
        draft.write(b"%d\n" % number)
        draft.finish(b"a@b.test", [b"b@c.test"])
    try:
        writer.commit(drafts)
    except QueueTrouble as trouble:
        return drafts, trouble
    return drafts, None


def test_a_message_that_queue_intake_takes_is_not_in_maildrop(shared: Home) -> None:
    def serve(connection: socket.socket) -> None:
        read_packages(connection, 1)
        connection.sendall(K)

    with server(shared, serve):
        (draft,), trouble = commit(shared)
    assert (draft.queued, draft.long_id, trouble, dropped(shared)) == (True, "457-abc", None, [])


@pytest.mark.parametrize("answer", [Z, pack_netstring(b"Dmessage too large")])
def test_a_message_that_it_refuses_goes_to_maildrop(shared: Home, answer: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        read_packages(connection, 1)
        connection.sendall(answer)

    with server(shared, serve):
        (draft,), trouble = commit(shared)
    assert (draft.queued, draft.long_id, trouble) == (True, "-", None)
    assert dropped(shared) == [MAIL + b"0\nFa@b.test\0Tb@c.test\0\0"]


def test_without_queue_intake_mail_goes_to_maildrop(shared: Home) -> None:
    assert commit(shared, 2)[1] is None
    Path(shared.queue, "intake").mkdir(exist_ok=True)
    left = socket.socket(socket.AF_UNIX)
    left.bind(f"{shared.queue}/intake/socket")  # That of a queue-intake which was killed.
    left.close()
    assert commit(shared)[1] is None
    assert len(dropped(shared)) == 3


@pytest.mark.parametrize("bytes_read", [0, 1, 60])
def test_a_message_whose_end_was_not_read_goes_to_maildrop(shared: Home, bytes_read: int) -> None:
    def serve(connection: socket.socket) -> None:
        if bytes_read:
            connection.recv(bytes_read)

    with server(shared, serve):
        (draft,), trouble = commit(shared)
    assert (draft.queued, trouble) == (True, None) and len(dropped(shared)) == 1


def test_a_message_that_was_read_and_not_answered_is_refused_for_now_and_not_left_in_maildrop(shared: Home) -> None:
    with server(shared, lambda connection: read_packages(connection, 1)):
        (draft,), trouble = commit(shared)
    assert trouble is not None and (trouble.code, trouble.exit_code) == (53, 111)
    assert "may be in the queue" in str(trouble)
    assert not draft.queued and dropped(shared) == []


def test_what_is_no_answer_leaves_the_fate_of_a_message_unknown(shared: Home) -> None:
    def serve(connection: socket.socket) -> None:
        read_packages(connection, 1)
        connection.sendall(b"220 mx.example.org\r\n")

    with server(shared, serve):
        assert commit(shared)[1] is not None
    assert dropped(shared) == []


def test_an_answer_that_does_not_come_is_waited_for_not_for_ever(shared: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_in, "ANSWER_SECONDS", 0.2)
    done = threading.Event()

    def serve(connection: socket.socket) -> None:
        read_packages(connection, 1)
        done.wait(SECONDS)

    with server(shared, serve):
        assert commit(shared)[1] is not None
        done.set()
    assert dropped(shared) == []


def test_of_a_group_each_message_has_its_own_fate(shared: Home) -> None:
    def serve(connection: socket.socket) -> None:
        read_packages(connection, 4)
        connection.sendall(K + Z + K)

    with server(shared, serve):
        drafts, trouble = commit(shared, 4)
    assert [draft.queued for draft in drafts] == [True, True, True, False] and trouble is not None
    assert [draft.long_id for draft in drafts] == ["457-abc", "-", "457-abc", "-"]
    assert dropped(shared) == [MAIL + b"1\nFa@b.test\0Tb@c.test\0\0"]


def test_a_group_that_is_not_read_goes_to_maildrop(shared: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_in, "SEND_SECONDS", 0.2)
    done = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(1)
        done.wait(SECONDS)

    with server(shared, serve):
        drafts, trouble = commit(shared, 60, MAIL + b"x" * 20_000)
        done.set()
    # A part of the group is in the buffer of the socket: queue-intake may read that later.
    assert trouble is not None
    left = [draft for draft in drafts if draft.queued]
    assert left == drafts[-len(left) :] and 0 < len(left) < 60 and len(dropped(shared)) == len(left)


def test_answers_are_read_while_a_group_is_sent(shared: Home) -> None:
    """queue-intake reads nothing more while its answers are not read."""

    def serve(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        for _ in range(250):
            read_one_package(connection)
            connection.sendall(pack_netstring(b"Kok 1 qp 2 457-abc" + b"x" * 4000))

    def read_one_package(connection: socket.socket) -> None:
        data = b""
        while not data.endswith(b"8:b@c.test,,"):
            data += connection.recv(1)

    with server(shared, serve):
        drafts, trouble = commit(shared, 250)
    assert trouble is None and all(draft.queued for draft in drafts) and dropped(shared) == []


@pytest.mark.parametrize("large", ["message", "recipients", "no recipient"])
def test_a_large_message_goes_to_maildrop(shared: Home, large: str) -> None:
    def serve(connection: socket.socket) -> None:
        raise AssertionError("it was handed in")

    with server(shared, serve):
        writer = IntakeWriter(shared, DropWriter(shared))
        draft = writer.begin()
        draft.write(MAIL)
        draft.write(b"x" * (hand_in.SMALL if large == "message" else 1))
        draft.finish(b"", {"recipients": [b"bob"] * 20_000, "message": [b"bob"]}.get(large, []))
        writer.commit([draft])
    assert draft.queued and len(dropped(shared)) == 1


def test_a_user_hands_in_by_queue_inject_and_sendmail_with_the_uid_of_the_process(shared: Home) -> None:
    with IntakeDaemon(shared) as daemon:
        for module in ("queue_inject.main", "queue_inject.sendmail.main"):
            assert run([*as_user(USER, module), "--home", shared.path, "bob@example.net"], MAIL).code == 0
            found = only(shared)
            assert found.envelope.uid == USER and found.envelope.recipients == [b"bob@example.net"]
            assert found.received.startswith(b"Received: (qmail %d invoked by uid %d)" % (daemon.process.pid, USER))
            for kind in ("todo", "mess"):
                os.unlink(open_layout(shared.queue).hashed(kind, found.number))
    assert dropped(shared) == []


def test_a_batch_of_a_user_goes_over_the_socket_and_names_the_messages(shared: Home) -> None:
    texts = [b"Subject: %d\n\n%s\n" % (number, b"x" * (number * 300)) for number in range(300)]
    pairs = b"".join(pack_netstring(text) + pack_netstring(b"Fann\0Tbob\0\0") for text in texts)
    with IntakeDaemon(shared):
        command = [*as_user(USER, "queue_inject.main"), "--home", shared.path, "--batch", "netstring"]
        outcome = run(command, pairs)
    assert outcome.code == 0, outcome
    found = {each.message: each.number for each in queued(shared)}
    large = [text for text in texts if len(text) > hand_in.SMALL]
    assert large and sorted(found) == sorted(set(texts) - set(large)) and len(dropped(shared)) == len(large)
    words = [line.split()[1].decode() for line in outcome.output.splitlines()]
    assert [word.split("-")[0] for word in words] == [str(found[text]) if text in found else "" for text in texts]


def test_a_user_with_too_many_connections_uses_maildrop(shared: Home) -> None:
    script = "import queue_intake.sharing as s; m.limits_for = lambda most: s.SharingLimits(1, 2, 1000, 0, 50)"
    with IntakeDaemon(shared, script=script) as daemon:
        if os.geteuid() != 0:
            pytest.skip("needs root, to be a user with limits")
        command = [*as_user(USER, "queue_inject.main"), "--home", shared.path, "bob@example.net"]
        for _ in range(5):
            assert run(command, MAIL).code == 0
        assert daemon.process.poll() is None
    assert queued(shared) == [] and len(dropped(shared)) == 5


def test_the_kernel_says_that_bytes_were_left_unread() -> None:
    """What `hand_in` relies on (unix(7)): an end with unread bytes is a reset, and any other is an end of file."""
    for count, reset in ((3, True), (4, False)):
        one, other = socket.socketpair()
        one.sendall(struct.pack("4s", b"abcd"))
        other.recv(count)
        other.close()
        try:
            assert (one.recv(1), reset) == (b"", False)
        except ConnectionResetError:
            assert reset
        one.close()
