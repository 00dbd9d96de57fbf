"""lock/control under clients of all kinds: garbage, silence, crowds, and a queue-send that is gone."""

import os
import signal
import socket
import stat
from pathlib import Path

import pytest

from queue_base.home import Home
from queue_wire.admin.socket import FLUSH, HOLD, RELEASE, Note, Request, Response, pack_request
from support.plugins import strategies
from support.queues.queued import classified_message
from support.send.control import Client, long_id, order, queuectl
from support.send.scripted_send import ScriptedSend

FLUSH_NOTHING = Request(FLUSH, b"", [])


def test_the_socket_is_the_owners_alone_and_goes_with_queue_send(home: Home, send: ScriptedSend) -> None:
    path = Path(home.queue, "lock", "control")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    send.signal(signal.SIGTERM)
    assert send.wait() == 0
    assert not path.exists()


def test_a_stale_socket_is_replaced_at_the_next_start(home: Home) -> None:
    with ScriptedSend(home) as send:
        send.fence()
        send.kill()
    assert Path(home.queue, "lock", "control").exists()
    message = classified_message(home, remote=[b"b@c.example"], due=4e9)
    with ScriptedSend(home) as send:
        send.fence()
        assert order(home, "hold", "--all") == "held 1 message"
        send.wait_for(f"hold msg {message}: .*")


def test_a_request_is_taken_however_it_arrives(home: Home, send: ScriptedSend) -> None:
    data = pack_request(Request(HOLD, b"why", [b"1-1"])) + pack_request(FLUSH_NOTHING)
    wanted = [Response(0, [Note(b"-", b"1-1: no such message")]), Response(0, [])]
    for pieces in list(strategies.arrivals(data))[:12]:
        with Client(home) as client:
            for piece in pieces:
                client.socket.sendall(piece)
            assert [client.reply(), client.reply()] == wanted


GARBAGE = [b"GET / HTTP/1.0\r\n\r\n", b"4:stop,", b"999999999:", b"4:holdx", b"0:,", b"\0" * 9]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_gets_an_error_and_is_closed(home: Home, send: ScriptedSend, garbage: bytes) -> None:
    with Client(home) as client:
        client.socket.sendall(garbage)
        reply = client.reply()
        assert reply is not None and reply.error
        assert client.reply() is None
    with Client(home) as client:
        client.send(FLUSH_NOTHING)
        assert client.reply() == Response(0, [])


def test_clients_that_leave_at_any_moment_do_no_harm(home: Home, send: ScriptedSend) -> None:
    message = classified_message(home, remote=[b"b@c.example"])
    send.todo.classified(message)
    job = send.remote.job()
    data = pack_request(Request(HOLD, b"why", [long_id(home, message).encode()]))
    for end in (1, 5, len(data) - 1, len(data)):
        client = Client(home)
        client.socket.sendall(data[:end])
        client.socket.close()
        send.fence()
    send.wait_for(f"hold msg {message}: why")
    send.remote.report(job, b"Kok")
    send.wait_for("delivery 1: success: ok")


def test_more_clients_than_are_served_at_once_wait_and_silent_ones_delay_no_mail(
    home: Home, send: ScriptedSend
) -> None:
    clients = [Client(home) for _ in range(12)]
    for client in clients:
        client.send(FLUSH_NOTHING)
    for client in clients[:8]:
        assert client.reply() == Response(0, [])
    message = classified_message(home, remote=[b"b@c.example"])
    send.todo.classified(message)
    send.remote.deliver(b"Kok")
    for client in clients[:8]:
        client.socket.close()
    for client in clients[8:]:
        assert client.reply() == Response(0, [])
        client.socket.close()


def test_concurrent_orders_about_the_same_messages_are_done_once(home: Home, send: ScriptedSend) -> None:
    messages = [classified_message(home, remote=[b"b@c.example"], due=4e9) for _ in range(40)]
    for message in messages:
        send.todo.classified(message)
    send.fence()
    names = [long_id(home, message).encode() for message in messages]
    for command, line in ((HOLD, "hold msg .*"), (RELEASE, "release msg .*")):
        clients = [Client(home) for _ in range(5)]
        for client in clients:
            client.send(Request(command, b"", names))
        replies = [client.reply() for client in clients]
        for client in clients:
            client.socket.close()
        assert sum(reply.touched for reply in replies if reply) == 40
        send.wait_for(line, 40)
        send.fence()
        assert len(send.found(line)) == 40


def test_a_reply_that_nobody_reads_stops_that_client_alone(home: Home, send: ScriptedSend) -> None:
    name = b"x" * 600
    request = pack_request(Request(RELEASE, b"", [name] * 100))
    with Client(home) as client:
        client.socket.setblocking(False)
        try:
            for _ in range(1000):
                client.socket.send(request)
        except BlockingIOError:
            pass
        message = classified_message(home, remote=[b"b@c.example"], due=4e9)
        assert order(home, "hold", "--all") == "held 1 message"
        send.fence()
        assert send.found(f"hold msg {message}: .*")


def test_a_socket_of_another_kind_in_its_place_is_named(home: Home, send: ScriptedSend) -> None:
    classified_message(home, remote=[b"b@c.example"], due=4e9)
    path = Path(home.queue, "lock", "control")
    path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        directory = os.open(path.parent, os.O_PATH)
        other.bind(f"/proc/self/fd/{directory}/control")
        os.close(directory)
        done = queuectl(home, "flush", "--all")
    assert done.returncode == 111
    assert "lock/control" in done.stderr
