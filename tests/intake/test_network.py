"""Hosts of the network hand in mail where control/intake says, and only those that it allows."""

import os
import re
import signal
import socket
from pathlib import Path

from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.files.envelope import unpack_todo
from queue_wire.pipes.qmtp import pack_facts
from queue_wire.submitter import pack_submitter
from support.inject.injectors import only, queued
from support.intake.intake_daemon import Client, IntakeDaemon, ask, qmqp, qmtp
from support.processes.suite import Suite, wait_until
from support.servers.ports import free_ports

MAIL = b"Subject: hello\n\nHow are you?\n"
RECEIVED = rb"Received: from \[127\.0\.0\.1\]\n  by me\.example\.org with %s; \d+ [A-Z][a-z]+ \d{4} [\d:]{8} -0000\n"


class NetworkClient(Client):
    """A client on the network."""

    def __init__(self, port: int) -> None:
        super().__init__(socket.create_connection(("127.0.0.1", port), 60))


def hand_in(port: int, data: bytes) -> bytes:
    """Connect, send bytes, and return the first answer; empty if there is none."""
    with NetworkClient(port) as client:
        try:
            client.send(data)
        except OSError:
            return b""
        return client.answer()


def inherited(listener: socket.socket) -> tuple[str, tuple[int, ...]]:
    """Return what a daemon has to run so that it inherits a socket as descriptor 3, and the descriptors to pass."""
    number = listener.fileno()
    script = f"import os; os.dup2({number}, 3); os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))"
    return script, (number,)


def test_a_listed_host_hands_in_by_qmtp_and_qmqp_and_another_one_is_closed(home: Home) -> None:
    ports = free_ports("qmtp", "qmqp", "strange", "new")
    lines = Path(home.control, "intake")
    text = f"127.0.0.1:{ports['qmtp']} qmtp 127.0.0.0/8\n127.0.0.1:{ports['qmqp']} qmqp ::1 127.0.0.1\n"
    lines.write_text(f"{text}127.0.0.1:{ports['strange']} qmtp 192.0.2.0/24 2001:db8::/32\n")
    Path(home.control, "concurrencylocal").write_text("0\n")
    Path(home.control, "concurrencyremote").write_text("0\n")
    with Suite(home) as suite:
        wait_until(lambda: Path(home.queue, "intake/socket").exists())
        for name, package in ("qmtp", qmtp), ("qmqp", qmqp):
            found = hand_in(ports[name], package(MAIL, b"ann@example.org", [b"bob@example.net"]))
            number = re.fullmatch(rb"Kok \d+ qp \d+ (\d+)-[0-9a-z]+", found)
            assert number, found
            message = Path(open_layout(home.queue).mess(int(number[1]))).read_bytes()
            begin = rb"Received: \(qmail \d+ invoked by uid %d\); .*\n" % os.stat(home.queue).st_uid
            assert re.match(begin + RECEIVED % name.upper().encode(), message), message
            assert message.endswith(MAIL)
            envelope = unpack_todo(Path(open_layout(home.queue).todo(int(number[1]))).read_bytes())
            assert envelope.submitter == pack_submitter("127.0.0.1")
        # A listener speaks its own protocol only.
        assert hand_in(ports["qmtp"], qmqp(MAIL, b"", [b"bob"])) == b""
        assert hand_in(ports["strange"], qmtp(MAIL, b"", [b"bob"])) == b""
        suite.wait_for(rf"queue-intake: 127.0.0.1 connected to 127.0.0.1:{ports['strange']}: .* does not allow it")
        # HUP changes the networks. A new place needs a new start.
        lines.write_text(f"{text.replace('127.0.0.0/8', '10.0.0.0/8')}127.0.0.1:{ports['new']} qmtp ::1\n")
        suite.signal(signal.SIGHUP)
        suite.wait_for(f"alert: queue-intake: nothing listens on 127.0.0.1:{ports['new']}")
        assert hand_in(ports["qmtp"], qmtp(MAIL, b"", [b"bob"])) == b""
        assert hand_in(ports["strange"], qmtp(MAIL, b"", [b"bob"])) == b""
        assert hand_in(ports["qmqp"], qmqp(MAIL, b"", [b"bob"]))[:1] == b"K"
        # What is wrong changes nothing.
        lines.write_text("127.0.0.1:1 smtp 10.0.0.0/8\n")
        suite.signal(signal.SIGHUP)
        suite.wait_for("alert: queue-intake: .*control/intake line 1: no protocol")
        assert hand_in(ports["qmqp"], qmqp(MAIL, b"", [b"bob"]))[:1] == b"K"


def test_a_port_that_is_taken_does_not_keep_the_suite_from_starting(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        Path(home.control, "intake").write_text(f"127.0.0.1:{other.getsockname()[1]} qmtp ::1\n")
        with Suite(home) as suite:
            suite.wait_for("alert: queue-intake: nothing listens on 127.0.0.1")
            assert ask(home, qmtp(MAIL, b"", [b"bob"]))[0][:1] == b"K"


def test_a_host_has_limits_of_its_own_and_may_not_say_whose_a_message_is(home: Home) -> None:
    limits = "import queue_intake.sharing as s; m.limits_for = lambda most: s.SharingLimits(2, 9, 1000, 50, 50); "
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        Path(home.control, "intake").write_text(f"127.0.0.1:{port} qmtp 127.0.0.1\n")
        script, descriptors = inherited(listener)
        with IntakeDaemon(home, script=limits + script, pass_descriptors=descriptors):
            with NetworkClient(port) as one, NetworkClient(port) as two, NetworkClient(port) as three:
                two.send(b"900:\nhalf a message")
                assert three.answer() == b""
                one.send(pack_facts(77) + qmtp(MAIL, b"", [b"bob"]))
                assert one.answer().startswith(b"Donly the queue's own programs")
                assert ask(home, qmtp(MAIL, b"", [b"joe"]))[0][:1] == b"K"
                assert only(home).envelope.recipients == [b"joe"]
                one.send(qmtp(MAIL, b"", [b"bob"]))
                assert one.answer()[:1] == b"K"
            assert len(queued(home)) == 2
