"""queuectl smtpd: what the processes of queue-smtpd tell of themselves, and that nobody who asks can stall them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_admin.commands.state.smtpd import _summary
from queue_admin.main import main
from queue_admin.metrics.smtpd_client import SmtpdReading, ask_processes
from queue_base.daemon.unix_sockets import find_abstract, listen_abstract, status_prefix
from queue_base.home import Home
from queue_report.match.grammar import parse_event
from queue_smtp.server_replies import BAD_CREDENTIALS, RELAYING_DENIED, SERVER_BUSY, ServerReply
from queue_smtpd.processes.status_socket import ASKERS_MAX
from queue_smtpd.server_counters import ServerCounters
from queue_smtpd.sessions import session_log as log
from queue_wire.admin.smtpd_status import (
    STATES,
    ProcessStatus,
    SessionStatus,
    pack_status,
    unpack_process,
    unpack_session,
)
from queue_wire.format_error import FormatError
from support.inject.injectors import shared_home
from support.intake.intake_daemon import IntakeDaemon
from support.processes.suite import wait_until
from support.smtpd.smtpd_daemon import SmtpdDaemon

PROCESS = ProcessStatus(411, 1, 2, 1_700_000_000.5, 100, 3, {"command": 3}, {"messages": 7})
SESSION = SessionStatus(12, "192.0.2.1", "mx.example", 25, "message", 3, 1, "TLSv1.3", "joe")


@pytest.fixture
def smtpd_home() -> Iterator[Home]:
    with shared_home(0) as home:
        Path(home.control, "rcpthosts").write_text("example.org\n")
        Path(home.control, "relayclients").write_text("127.0.0.1\n")
        yield home


def queuectl(home: Home, *words: str) -> int:
    """Run queuectl smtpd; return its exit code."""
    return main(["queuectl", "--home", home.path, "smtpd", *words])


def asked(home: Home, connections: int) -> SmtpdReading:
    """Return what the processes say when they have so many connections."""
    found: list[SmtpdReading] = []

    def is_there() -> bool:
        found.append(ask_processes(home, True))
        return sum(each.sessions for each in found[-1].processes) == connections

    wait_until(is_there, 60, f"{connections} connections")
    return found[-1]


def test_all_processes_tell_of_their_sessions_and_of_what_they_have_counted(
    smtpd_home: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    Path(smtpd_home.control, "processessmtpd").write_text("2\n")
    with IntakeDaemon(smtpd_home), SmtpdDaemon(smtpd_home) as daemon, ExitStack() as stack:
        wait_until(lambda: len(ask_processes(smtpd_home, False).processes) == 2, 60, "both processes")
        client = stack.enter_context(daemon.smtp())
        client.sendmail("ann@example.net", ["bob@example.org", "eve@example.org"], "Subject: x\r\n\r\nx\r\n")
        assert client.docmd("RCPT TO:<x@example.org>")[0] == 503
        client.mail("ann@example.net")
        idle = stack.enter_context(daemon.connect())
        assert idle.recv(100).startswith(b"220 ")
        reading = asked(smtpd_home, 2)
        assert [(each.place, each.of) for each in reading.processes] == [(1, 2), (2, 2)]
        assert not reading.troubles
        states = sorted((session.state, session.messages) for _, session in reading.sessions)
        assert states == [("command", 0), ("transaction", 1)]
        numbers = {number for _, session in reading.sessions for number in [session.number]}
        daemon.said(b"")
        assert numbers <= {int(number) for number in re.findall(rb"smtp (\d+): connect", daemon.log)}
        assert queuectl(smtpd_home, "--format", "json") == 0
        out, err = capfd.readouterr()
        assert err == ""
        objects = [json.loads(line) for line in out.splitlines()]
        processes, sessions = objects[:2], objects[2:]
        words = "process place of started connections limit states accepted refused dropped discarded filters tls auth"
        assert {" ".join(each) for each in processes} == {words + " ended"}
        assert {" ".join(sorted(each)) for each in sessions} == {
            "client messages name port process seconds session state tls user"
        }
        assert sum(each["accepted"]["messages"] for each in processes) == 1
        assert sum(each["accepted"]["recipients"] for each in processes) == 2
        assert sum(each["refused"]["RCPT"]["5xx"] + each["refused"]["other"]["5xx"] for each in processes) == 1
        assert sum(each["states"]["transaction"] for each in processes) == 1
        assert {each["process"] for each in sessions} <= {each["process"] for each in processes}
        assert {each["client"] for each in sessions} == {"127.0.0.1"} and sessions[0]["tls"] is None
        assert queuectl(smtpd_home, "--sessions") == 0
        text = capfd.readouterr().out
        assert "all processes:" in text and "clients: 127.0.0.1 2" in text and re.search(r"\d  127.0.0.1 .*\n", text)
        daemon.wait_for(b": queued ")
        kinds = {event[0].name if event else "" for event in map(parse_event, daemon.log.splitlines())}
        assert {"smtp_start", "smtp_connect", "smtp_to", "smtp_queued", "smtp_refused"} <= kinds
        assert kinds.isdisjoint(("", "smtp_other"))
        # What has ended is told of no more.
        daemon.process.send_signal(signal.SIGTERM)
        client.rset()
        client.close()
        idle.close()
        assert daemon.process.wait(60) == 0
        assert queuectl(smtpd_home) == 111
        assert "it does not run for this queue" in capfd.readouterr().err


def test_who_asks_and_does_not_read_stalls_nobody(smtpd_home: Home) -> None:
    with SmtpdDaemon(smtpd_home) as daemon, ExitStack() as stack:
        wait_until(lambda: ask_processes(smtpd_home, False).processes, 60, "the process")
        (name,) = find_abstract(status_prefix(smtpd_home.queue))

        def ask() -> socket.socket:
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.settimeout(60)
            connection.connect(b"\0" + name.encode())
            return connection

        silent = [ask() for _ in range(ASKERS_MAX)]
        # One too many is turned away, and clients are served meanwhile.
        assert ask().recv(10) == b""
        with daemon.smtp() as client:
            assert client.noop()[0] == 250
        for connection in silent:
            connection.close()
        wait_until(lambda: ask_processes(smtpd_home, False).processes, 60, "an answer to who asks next")
        for request in (b"\0" * 9, b"sessions", b"nonsense!\n" * 1000):
            connection = ask()
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            # What it has not read makes a reset of the end.
            with suppress(ConnectionResetError):
                assert connection.recv(10) == b""
        assert ask_processes(smtpd_home, True).processes


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_other_users_are_not_answered(smtpd_home: Home) -> None:
    with SmtpdDaemon(smtpd_home):
        wait_until(lambda: ask_processes(smtpd_home, False).processes, 60, "the process")
        (name,) = find_abstract(status_prefix(smtpd_home.queue))
        script = (
            "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(chr(0) + sys.argv[1]);"
            "s.sendall(b'sessions\\n'); print(s.recv(100))"
        )
        words = [sys.executable, "-c", script, name]
        done = subprocess.run(words, capture_output=True, text=True, check=False, user=65534, group=65534)
        assert "{" not in done.stdout, done.stdout


def test_a_socket_of_another_user_is_passed_by_and_one_that_says_nothing_is_trouble(
    smtpd_home: Home, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("queue_admin.metrics.smtpd_client.ANSWER_WAIT", 0.05)
    prefix, said = status_prefix(smtpd_home.queue), f"process {os.getpid()} of queue-smtpd does not answer: "
    # No process has the second name's pid.
    with listen_abstract(f"{prefix}{os.getpid()}.x", 5), listen_abstract(f"{prefix}999999999.x", 5):
        (trouble,) = ask_processes(smtpd_home, False).troubles
        assert trouble.startswith(said)
        assert queuectl(smtpd_home) == 111
        assert said in capfd.readouterr().err
        monkeypatch.setattr("queue_admin.metrics.smtpd_client.trusted_users", lambda _: frozenset((4711,)))
        assert ask_processes(smtpd_home, False) == SmtpdReading([], [], [])


def test_counters_are_what_the_lines_of_the_log_say() -> None:
    counters = ServerCounters()
    counters.take([
        log.connect(1, "192.0.2.1", 9, b"", "192.0.2.2", 25), log.tls_started(1, b"TLSv1.3", b"AES"),
        log.tls_failed(1, "x"), log.authenticated(1, b"joe", b"PLAIN"),
        log.refused(1, b"AUTH joe", BAD_CREDENTIALS, "192.0.2.1"),
        log.sender_accepted(1, b"a@b", 0), log.refused(1, b"RCPT <x>", RELAYING_DENIED, "192.0.2.1"),
        log.refused(1, b"connect", SERVER_BUSY, "192.0.2.1"),
        log.refused(1, b"", RELAYING_DENIED, "192.0.2.1"), log.dropped(1),
        log.refused(1, b"ABCD " + b"x" * 3000, ServerReply(500, b"5.5.1", b"y" * 3000), "192.0.2.1"),
        log.queued(1, b"457-x", 2310, 2), log.ended(1, "QUIT", 1, 0, 1), log.ended(2, "connection lost", 1, 0, 1),
        log.ended(3, "too many errors", 1, 0, 1), b"smtp 4: something new", b"alert: x", b"warning: unable to y",
        b"smtp 4: discarded bytes 7 recipients 1", b"smtp 4: refused early talker: 554_5.5.1_You_spoke",
        *(log.filtered(4, b"x", what) for what in (b"refuses RCPT", b"discards message", b"copies message: x")),
        *(log.filtered(4, b"unix:/x", what) for what in (b"holds message: spam", b"failed: it is gone", b"failed: no")),
    ])  # fmt: skip
    assert {name: number for name, number in counters.counts.items() if number} == {
        "connections": 1, "tls": 1, "tls-failed": 1, "auth": 1, "auth-failed": 1, "refused-AUTH-5": 1,
        "refused-RCPT-5": 1, "refused-connect-4": 1, "refused-other-5": 2, "dropped": 1, "messages": 1, "bytes": 2310,
        "recipients": 2, "end-QUIT": 1, "end-connection lost": 1, "end-refused": 1, "discarded": 1,
        "refused-early talker-5": 1, "filter-refuses": 1, "filter-discards": 1, "filter-holds": 1, "filter-failed": 2,
        "filter-copies": 1,
    }  # fmt: skip


def test_what_filters_have_said_is_shown_if_they_have_said_something() -> None:
    silent, asked = PROCESS._replace(counters={}), PROCESS._replace(counters={"filter-holds": 1, "filter-failed": 2})
    assert not any(line.startswith("filters") for line in _summary([silent]))
    assert "filters: holds 2, failed 4" in _summary([asked, asked])


def test_a_status_comes_back_as_it_was_packed() -> None:
    assert unpack_process(pack_status(PROCESS)[:-1]) == PROCESS
    odd = SESSION._replace(user='\n"\u2028\udcff', name="", state=STATES[0])
    line = pack_status(odd)
    assert line.count(b"\n") == 1 and line.isascii() and unpack_session(line) == odd


@given(st.binary(max_size=80) | st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=3) | st.booleans(), lambda one: st.lists(one, max_size=2)
    | st.dictionaries(st.sampled_from(SESSION._fields), one, max_size=9), max_leaves=12,
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_bytes_are_a_status_or_a_format_error(line: bytes) -> None:
    for unpack in (unpack_process, unpack_session):
        try:
            assert unpack(line)
        except FormatError as error:
            assert str(error).isprintable()
    number = pack_status(SESSION).replace(b'"messages": 1', b'"messages": -1')
    with pytest.raises(FormatError):
        unpack_session(number)
