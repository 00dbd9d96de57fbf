"""queue-intake as a process: what clients hand in is in the queue before K, with their uids, whole and in order."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_admin.checks.inspection import inspect_messages
from queue_base.home import Home
from queue_base.queue.hold_marks import read_mark
from queue_base.queue.layout import HELD_BIT, open_layout
from queue_base.queue.postman import COPIES_MAX
from queue_wire.files.hold_mark import HoldMark, HoldOrder, unpack_mark
from queue_wire.pipes.qmtp import GIVE_UP, PIECES_END, pack_envelope, pack_facts, pack_piece
from support.inject.injectors import OWNER, ROOT, USER, is_empty, only, queued, shared_home, states
from support.intake.intake_daemon import Client, IntakeDaemon, ask, qmqp, qmtp
from support.processes.suite import Suite, wait_until

MAIL = b"Subject: hello\n\nHow are you?\n"
K = re.compile(rb"Kok [0-9]+ qp [0-9]+ ([0-9]+)-[0-9a-z]+")
# Runs a client as another user: one who may not write to the queue.
AS_USER = """
import os, socket, sys
from queue_wire.files.hold_mark import HoldMark, HoldOrder, unpack_mark
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(int(sys.argv[1])), os.setuid(int(sys.argv[1]))
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[2])
client.sendall(sys.stdin.buffer.read())
client.shutdown(socket.SHUT_WR)
while data := client.recv(65536):
    sys.stdout.buffer.write(data)
"""


@pytest.fixture
def shared() -> Iterator[Home]:
    """Yield a home that every user can reach; queue/ belongs to OWNER."""
    with shared_home() as home:
        yield home


@pytest.fixture
def intake(shared: Home) -> Iterator[IntakeDaemon]:
    with IntakeDaemon(shared) as daemon:
        yield daemon


def ask_as(home: Home, uid: int, data: bytes) -> bytes:
    """Hand something in as another user; return what comes back."""
    words = [sys.executable, "-c", AS_USER, str(uid), f"{home.queue}/intake/socket"]
    return subprocess.run(words, input=data, capture_output=True, check=True, timeout=60).stdout


def mess_of(answer: bytes) -> int:
    """Return the number of the message in an answer K."""
    found = K.fullmatch(answer)
    assert found, answer
    return int(found[1])


def test_a_message_by_qmtp_is_in_the_queue_when_it_is_answered(intake: IntakeDaemon) -> None:
    answers = ask(intake.home, qmtp(MAIL, b"ann@example.org", [b"bob@example.net", b"joe"]), 2)
    found = only(intake.home)
    assert [mess_of(answer) for answer in answers] == [found.number] * 2
    assert found.message == MAIL and states(intake.home) == {4: 1}
    envelope = found.envelope
    assert (envelope.sender, envelope.recipients) == (b"ann@example.org", [b"bob@example.net", b"joe"])
    pid = intake.process.pid
    assert (envelope.uid, envelope.pid) == (os.getuid(), pid)
    assert found.received.startswith(b"Received: (qmail %d invoked by uid %d); " % (pid, os.getuid()))


def test_crlf_line_ends_are_lf_in_the_queue(intake: IntakeDaemon) -> None:
    ask(intake.home, qmtp(MAIL.replace(b"\n", b"\r\n"), b"", [b"bob"], begin=b"\r"))
    assert only(intake.home).message == MAIL


def test_qmqp_takes_one_message_answers_once_and_closes(intake: IntakeDaemon) -> None:
    with Client(intake.home) as client:
        client.send(qmqp(MAIL, b"ann@example.org", [b"bob@example.net", b"joe"]))
        assert mess_of(client.answer()) == only(intake.home).number
        assert client.answer() == b""
    assert only(intake.home).envelope.recipients == [b"bob@example.net", b"joe"]


@pytest.mark.parametrize("in_memory", [False, True])
def test_pipelined_packages_are_answered_in_order(shared: Home, in_memory: bool) -> None:
    script = f"m.queue_in_memory = lambda home: {in_memory}"
    with IntakeDaemon(shared, script=script) as intake, Client(shared) as client:
        packages = [qmtp(b"%d\n" % number, b"ann", [b"b%d" % number]) for number in range(150)]
        packages[7] = qmtp(b"\n", b"a" * 1003, [b"b", b"c"])
        packages[9] = qmtp(b"\n", b"a", [])
        client.send(b"".join(packages))
        answers = client.answers(150)
    assert [answer[:1] for answer in answers] == [b"K"] * 7 + [b"D"] * 2 + [b"K"] * 141
    texts = {each.number: each.message for each in queued(intake.home)}
    wanted = [b"%d\n" % number for number in range(150) if number not in (7, 9)]
    assert [texts[mess_of(answer)] for answer in answers if answer[:1] == b"K"] == wanted


def test_recipients_that_cannot_be_are_refused_and_the_others_taken(intake: IntakeDaemon) -> None:
    answers = ask(intake.home, qmtp(MAIL, b"ann", [b"bob", b"x" * 1003, b"joe\0", b"joe"]), 4)
    assert [answer[:1] for answer in answers] == [b"K", b"D", b"D", b"K"]
    assert only(intake.home).envelope.recipients == [b"bob", b"joe"]
    assert ask(intake.home, qmqp(MAIL, b"ann", []))[0][:1] == b"D"
    assert len(queued(intake.home)) == 1


@pytest.mark.parametrize(
    "cut", [qmtp(MAIL, b"ann", [b"bob"])[:-1], qmqp(MAIL, b"ann", [b"bob"])[:-1], qmtp(b"x" * 300_000, b"", [b""])[:-3]]
)
def test_a_message_that_is_not_complete_is_not_queued(intake: IntakeDaemon, cut: bytes) -> None:
    with Client(intake.home) as client:
        client.send(cut)
        client.socket.shutdown(socket.SHUT_WR)
        assert client.answer() == b""
    assert ask(intake.home, qmtp(MAIL, b"ann", [b"bob"]))[0][:1] == b"K"
    assert only(intake.home).message == MAIL


def test_what_a_client_has_sent_that_is_gone_is_not_read(intake: IntakeDaemon) -> None:
    with Client(intake.home) as kept:
        kept.send(qmtp(MAIL, b"ann", [b"bob"]))
        assert kept.answer()[:1] == b"K"
        gone = Client(intake.home)
        gone.send(qmtp(MAIL, b"ann", [b"joe"]))
        assert gone.answer()[:1] == b"K"
        intake.process.send_signal(signal.SIGSTOP)
        gone.send(qmtp(MAIL, b"ann", [b"not read"]) * 1000)
        gone.close()
        intake.process.send_signal(signal.SIGCONT)
        kept.send(qmtp(MAIL, b"ann", [b"eve"]))
        assert kept.answer()[:1] == b"K"
    assert sorted(each.envelope.recipients[0] for each in queued(intake.home)) == [b"bob", b"eve", b"joe"]


def test_what_breaks_the_protocol_ends_the_connection_after_the_answers_to_what_came_before(
    intake: IntakeDaemon,
) -> None:
    for bad in (b"hello", qmqp(MAIL, b"a", [b"b"]), b"3:\nabc"):
        assert ask(intake.home, qmtp(MAIL, b"ann", [b"bob"]) + bad, 2)[1] == b""
    assert len(queued(intake.home)) == 3


def test_a_message_in_pieces_is_queued_or_given_up(intake: IntakeDaemon) -> None:
    with Client(intake.home) as client:
        text = [b"line %d\n" % number * 2000 for number in range(30)]
        client.send(pack_facts(pieces=True) + b"".join(map(pack_piece, text)) + GIVE_UP)
        client.send(pack_facts(4321, pieces=True) + b"".join(map(pack_piece, text)) + PIECES_END)
        client.send(pack_envelope(b"ann", [b"bob"]))
        assert mess_of(client.answer()) == only(intake.home).number
    found = only(intake.home)
    assert found.message == b"".join(text)
    # The owner of the queue, who runs this test or is root, may say whose message it is.
    assert found.envelope.uid == 4321 and b"invoked by uid 4321)" in found.received


def test_a_message_can_be_on_hold_from_the_beginning(intake: IntakeDaemon) -> None:
    with Client(intake.home) as client:
        client.send(pack_facts(hold=b"the filter says so") + qmtp(MAIL, b"ann", [b"bob"]))
        held = mess_of(client.answer())
        client.send(qmtp(MAIL, b"ann", [b"bob"]))
        other = mess_of(client.answer())
        client.send(pack_facts(pieces=True) + pack_piece(MAIL) + pack_facts(hold=HoldOrder.DELETE.value))
        client.send(PIECES_END + pack_envelope(b"ann", [b"bob"]))
        last = mess_of(client.answer())
    layout = open_layout(intake.home.queue)
    assert [read_mark(layout, each) for each in (held, other, last)] == [
        HoldMark(b"the filter says so"), None, unpack_mark(HoldOrder.DELETE.value + b"\n")
    ]
    envelopes = [os.stat(layout.todo(each)).st_mode & HELD_BIT for each in (held, other, last)]
    assert envelopes == [HELD_BIT, 0, HELD_BIT]
    owner = os.stat(intake.home.queue)
    found = inspect_messages(layout, (owner.st_uid, owner.st_gid), time.time(), 0.0)
    assert [finding.code for finding in found if finding.code == "mode"] == []


def test_a_copy_for_the_postmaster_stays_when_its_message_has_gone(intake: IntakeDaemon) -> None:
    with Client(intake.home) as client:
        client.send(pack_facts(copy=b"no date/../x") + qmtp(MAIL, b"ann", [b"bob"]))
        message = mess_of(client.answer())
        place = Path(intake.home.queue, "postman")
        assert os.listdir(place) == [f"{message}_no-date-..-x"]
        os.unlink(open_layout(intake.home.queue).mess(message))
        assert (place / f"{message}_no-date-..-x").read_bytes().endswith(MAIL)


def test_a_full_postman_refuses_no_mail(intake: IntakeDaemon) -> None:
    place = Path(intake.home.queue, "postman")
    for number in range(COPIES_MAX):
        (place / f"old{number}").touch()
    with Client(intake.home) as client:
        client.send(pack_facts(copy=b"x") + qmtp(MAIL, b"ann", [b"bob"]))
        assert mess_of(client.answer()) == only(intake.home).number
    intake.wait_for(b"no copy for the postmaster was made: ")
    assert len(os.listdir(place)) == COPIES_MAX


def test_another_user_cannot_have_a_message_held_or_copied(intake: IntakeDaemon) -> None:
    if not ROOT:
        pytest.skip("needs root, to be another user")
    pieces = pack_facts(pieces=True) + pack_piece(MAIL) + pack_facts(hold=b"x")
    stream = pack_facts(copy=b"x") + qmtp(MAIL, b"ann", [b"bob"]) + pieces + PIECES_END + pack_envelope(b"a", [b"b"])
    assert ask_as(intake.home, USER, stream).count(b":Donly the queue's own programs") == 2
    assert not queued(intake.home) and not os.listdir(f"{intake.home.queue}/postman")


def test_another_users_uid_is_in_the_envelope_and_that_user_cannot_name_another_one(intake: IntakeDaemon) -> None:
    if not ROOT:
        pytest.skip("needs root, to be another user")
    assert b":Kok" in ask_as(intake.home, USER, qmtp(MAIL, b"ann", [b"bob"]))
    found = only(intake.home)
    assert found.envelope.uid == USER and b"invoked by uid %d)" % USER in found.received
    output = ask_as(intake.home, USER, pack_facts(0) + qmtp(MAIL, b"ann", [b"bob"]))
    assert b":Donly the queue's own programs" in output and len(queued(intake.home)) == 1
    assert b":Kok" in ask_as(intake.home, OWNER, pack_facts(77) + qmtp(MAIL, b"ann", [b"bob"]))
    assert sorted(each.envelope.uid for each in queued(intake.home)) == [77, USER]


def test_another_user_cannot_take_the_share_of_another_submitter(intake: IntakeDaemon) -> None:
    if not ROOT:
        pytest.skip("needs root, to be another user")
    named = pack_facts(submitter=b"0123456789abcdef") + qmtp(MAIL, b"ann", [b"bob"])
    assert b":Kok" in ask_as(intake.home, USER, named)
    assert (only(intake.home).envelope.uid, only(intake.home).envelope.submitter) == (USER, b"")
    # Only the packages of which it is said, on a connection that has mail for many.
    assert ask_as(intake.home, OWNER, named + qmtp(MAIL, b"ann", [b"bob"])).count(b":Kok") == 2
    pieces = pack_facts(pieces=True) + pack_piece(MAIL) + pack_facts(submitter=b"fedcba9876543210") + PIECES_END
    assert b":Kok" in ask_as(intake.home, OWNER, pieces + pack_envelope(b"ann", [b"bob"]))
    found = [each.envelope.submitter for each in queued(intake.home)]
    assert sorted(found) == [b"", b"", b"0123456789abcdef", b"fedcba9876543210"]


def test_nobody_else_can_put_a_socket_in_its_place(intake: IntakeDaemon) -> None:
    place = Path(intake.home.queue, "intake")
    assert oct(place.stat().st_mode & 0o7777) == "0o711" and oct((place / "socket").stat().st_mode & 0o777) == "0o666"


@pytest.mark.parametrize("way", ["TERM", "end of queue-send"])
def test_its_end_answers_what_is_complete_and_drops_the_rest(intake: IntakeDaemon, way: str) -> None:
    half = Client(intake.home)
    half.send(qmtp(MAIL, b"ann", [b"bob"])[:-5])
    with Client(intake.home) as client:
        client.send(qmtp(MAIL, b"ann", [b"bob"]) * 50)
        assert client.answer()[:1] == b"K"
        if way == "TERM":
            intake.process.send_signal(signal.SIGTERM)
        else:
            intake.close_input()
        answered = 1
        while (answer := client.answer()) != b"":
            answered += answer[:1] == b"K"
    assert intake.wait() == 0
    assert half.answer() == b""
    half.close()
    assert len(queued(intake.home)) == answered and states(intake.home) == {4: answered}


def test_databytes_is_in_force_within_a_second_and_at_hup(intake: IntakeDaemon) -> None:
    limit = Path(intake.home.control, "databytes")
    assert ask(intake.home, qmtp(b"x" * 1000, b"", [b"b"]))[0][:1] == b"K"
    limit.write_bytes(b"500\n")
    intake.process.send_signal(signal.SIGHUP)
    wait_until(lambda: ask(intake.home, qmtp(b"x" * 1000, b"", [b"b"]))[0][:1] == b"D")
    assert b"limit is 500 bytes" in ask(intake.home, qmqp(b"x" * 1000, b"", [b"b"]))[0]
    pieces = pack_facts(pieces=True) + pack_piece(b"x" * 300) * 2 + PIECES_END + pack_envelope(b"", [b"b"])
    assert ask(intake.home, pieces + qmtp(b"x" * 500, b"", [b"b"]), 2)[0][:1] == b"D"
    limit.write_bytes(b"many\n")
    intake.command(b"H")
    intake.wait_for(b"databytes line 1: not a size")
    assert ask(intake.home, qmtp(b"x" * 1000, b"", [b"b"]))[0][:1] == b"D"
    limit.unlink()
    wait_until(lambda: ask(intake.home, qmtp(b"x" * 1000, b"", [b"b"]))[0][:1] == b"K")


def test_a_full_disk_is_a_temporary_failure_and_leaves_nothing(shared: Home) -> None:
    Path(shared.control, "queueminfree").write_bytes(b"1048576T\n")
    with IntakeDaemon(shared) as intake:
        (answer,) = ask(intake.home, qmtp(MAIL, b"ann", [b"bob"]))
        assert answer.startswith(b"Zunable to queue message: the disk is almost full")
        assert is_empty(shared)
        Path(shared.control, "queueminfree").unlink()
        wait_until(lambda: ask(intake.home, qmtp(MAIL, b"ann", [b"bob"]))[0][:1] == b"K")


def test_the_marks_of_queue_todo_slow_it_and_make_it_refuse(intake: IntakeDaemon) -> None:
    slow, refuse = (Path(intake.home.queue, "lock", name) for name in ("slow", "refuse"))
    ahead = time.time() + 8
    for mark in (slow, refuse):
        mark.touch()
        os.utime(mark, (ahead, ahead))
    assert ask(intake.home, qmtp(MAIL, b"ann", [b"bob"]))[0].startswith(b"Ztoo much new mail")
    refuse.unlink()
    wait_until(lambda: ask(intake.home, qmtp(MAIL, b"ann", [b"bob"]))[0][:1] == b"K")
    begun = time.monotonic()
    assert ask(intake.home, qmtp(MAIL, b"ann", [b"bob"]))[0][:1] == b"K"
    assert time.monotonic() - begun >= 0.4
    slow.unlink()


def test_two_hundred_connections_share_commits(shared: Home) -> None:
    # Each commit pulls the trigger once. The first of them waits until all messages have been sent.
    trigger = os.open(f"{shared.queue}/lock/trigger", os.O_RDONLY | os.O_NONBLOCK)
    gate = Path(shared.path, "gate")
    os.mkfifo(gate)
    script = (
        "import os; old = os.fsync; count = [0]; "
        "os.fsync = lambda handle: (count.append(0), open(sys.argv[2] + '/gate').read() if len(count) == 2 else 0, "
        "old(handle))[-1]"
    )
    with IntakeDaemon(shared, script=script) as intake:
        clients = [Client(intake.home) for _ in range(200)]
        for number, client in enumerate(clients):
            client.send(qmtp(b"%d\n" % number, b"ann", [b"bob"]))
        threads = [threading.Thread(target=gate.write_bytes, args=(b"go",))]
        threads[0].start()
        answers = [client.answer() for client in clients]
        threads[0].join()
        for client in clients:
            client.close()
    assert all(answer[:1] == b"K" for answer in answers)
    texts = {each.number: each.message for each in queued(shared)}
    assert [texts[mess_of(answer)] for answer in answers] == [b"%d\n" % number for number in range(200)]
    pulls = len(os.read(trigger, 4096))
    os.close(trigger)
    assert pulls <= 20, f"{pulls} commits"


def test_a_large_message_keeps_no_other_client_waiting_and_is_not_held_in_memory(intake: IntakeDaemon) -> None:
    before = intake.memory()
    size = 60_000_000
    with Client(intake.home) as large:
        large.send(b"%d:\n" % (size + 1))
        for _ in range(size // 1_000_000):
            large.send(b"x" * 999_999 + b"\n")
        assert ask(intake.home, qmtp(MAIL, b"ann", [b"bob"]))[0][:1] == b"K"
        assert intake.memory() - before < 20_000_000
        large.send(b",3:ann,6:3:bob,,")
        assert large.answer()[:1] == b"K"
    assert {len(each.message) for each in queued(intake.home)} == {len(MAIL), size}


def test_clients_that_stall_hold_nobody_and_are_disconnected(shared: Home) -> None:
    with IntakeDaemon(shared, script="c.STALL_SECONDS = 1.5; c.IDLE_SECONDS = 3.0; m.CHECK = 0.1") as intake:
        idle, half = Client(intake.home), [Client(intake.home) for _ in range(50)]
        for client in half:
            client.send(qmtp(MAIL, b"ann", [b"bob"])[:-5])
        deaf = Client(intake.home)
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        many = [b"b%d" % number for number in range(50_000)]
        deaf.send(qmtp(MAIL, b"ann", many))
        assert ask(intake.home, qmtp(MAIL, b"ann", [b"bob"]))[0][:1] == b"K"
        begun = time.monotonic()
        for client in half:
            assert client.answer() == b""
        assert time.monotonic() - begun < 10
        assert idle.answer() == b""
        deaf.socket.settimeout(20)
        received = 0
        while data := deaf.socket.recv(65536):
            received += len(data)
        assert received < 30 * len(many), "a client that does not read is disconnected"
        for client in (idle, *half, deaf):
            client.close()
    # The message of the deaf client was complete.
    assert sorted(len(each.envelope.recipients) for each in queued(shared)) == [1, 50_000]


def test_a_user_at_the_limits_waits_and_no_other_user_does(shared: Home) -> None:
    if not ROOT:
        pytest.skip("needs root, to be another user")
    script = "import queue_intake.sharing as s; m.limits_for = lambda most: s.SharingLimits(3, 2, 1000, 50, 50)"
    with IntakeDaemon(shared, script=script) as intake:
        # A connection of that user which never ends its message, and two more than it may have.
        code = AS_USER.replace("client.sendall(sys.stdin.buffer.read())", "").replace(
            "client.shutdown(socket.SHUT_WR)",
            "more = [socket.socket(socket.AF_UNIX) for _ in range(4)]\n"
            "for each in more: each.connect(sys.argv[2])\n"
            "client.sendall(b'900:\\nabc'); more[0].sendall(b'900:\\nabc')\n"
            "more[1].sendall(b'3:\\nhi,0:,3:0:,,'); more[1].settimeout(0.5)\n"
            "ends = [each.recv(9) for each in more[2:]]\n"
            "try: more[1].recv(9); waits = False\n"
            "except TimeoutError: waits = True\n"
            "client.close(); more[1].settimeout(60)\n"
            "print(ends, waits, more[1].recv(99)[3:6], flush=True); sys.exit()",
        )
        words = [sys.executable, "-c", code, str(USER), f"{shared.queue}/intake/socket"]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert ask(intake.home, qmtp(MAIL, b"ann", [b"bob"]))[0][:1] == b"K"
            assert b":Kok" in ask_as(intake.home, OWNER, qmtp(MAIL, b"ann", [b"bob"]))
            assert process.communicate(timeout=60)[0] == b"[b'', b''] True b'Kok'\n"


def test_users_who_hold_all_connections_lose_one_to_another_user(shared: Home) -> None:
    if not ROOT:
        pytest.skip("needs root, to be other users")
    script = "import queue_intake.sharing as s; m.limits_for = lambda most: s.SharingLimits(4, 50, 1 << 20, 4, 50)"
    with IntakeDaemon(shared, script=script) as intake:
        # One within a message, which speaks last; one that is silent; and one whose message is answered after that.
        code = AS_USER.replace("client.sendall(sys.stdin.buffer.read())", "").replace(
            "client.shutdown(socket.SHUT_WR)",
            "more = [socket.socket(socket.AF_UNIX) for _ in range(2)]\n"
            "for each in more: each.connect(sys.argv[2])\n"
            "more[1].sendall(b'3:\\nhi,0:,3:0:,,'); answer = more[1].recv(99)[3:6]\n"
            "client.sendall(b'900:\\nabc')\n"
            "print(answer, flush=True); more[0].settimeout(60)\n"
            "print(more[0].recv(9), flush=True); more[1].settimeout(0.2); client.settimeout(0.2)\n"
            "for each in (more[1], client):\n"
            "    try: print(each.recv(9))\n"
            "    except TimeoutError: print('stays')\n"
            "sys.exit()",
        )
        words = [sys.executable, "-c", code, str(USER), f"{shared.queue}/intake/socket"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout and process.stdout.readline() == "b'Kok'\n"
            assert b":Kok" in ask_as(intake.home, USER + 1, qmtp(MAIL, b"ann", [b"bob"]))
            assert process.communicate(timeout=60)[0] == "b''\nstays\nstays\n"


def test_queue_start_runs_it_and_its_mail_is_delivered(home: Home) -> None:
    maildir = Path(home.path, "alias", "Maildir")
    for name in ("new", "cur", "tmp"):
        (maildir / name).mkdir(parents=True)
    Path(home.alias, ".qmail-default").write_text(f"{maildir}/\n")
    with Suite(home) as suite:
        suite.daemon("queue-intake")
        wait_until(lambda: Path(home.queue, "intake/socket").exists())
        number = mess_of(ask(home, qmtp(MAIL, b"ann@example.net", [b"bob@me.example.org"]))[0])
        suite.wait_for(rf"^end msg {number}")
        Path(home.control, "databytes").write_bytes(b"x\n")
        suite.signal(signal.SIGHUP)
        suite.wait_for("queue-intake: .*databytes line 1: not a size")
        os.kill(suite.daemon("queue-intake"), signal.SIGKILL)
        suite.wait_for("alert: oh no! lost queue-intake connection! dying...")
        assert suite.process.wait(60) == 111


def test_what_a_held_message_needs_is_imported_before_there_is_one() -> None:
    """Descriptors may be short then, or another version may be installed: its whole commit would be refused."""
    names = ["queue_base.queue.hold_marks", "queue_base.queue.postman", "queue_wire.ids"]
    script = "import sys, queue_intake.main; sys.exit(not set(sys.argv[1:]) <= set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", script, *names], timeout=60).returncode == 0
