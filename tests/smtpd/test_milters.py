"""queue-smtpd with milters: each stage is asked, what they change is in the queue, and none of them does harm."""

import asyncio
import os
import re
import smtplib
import socket
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path

import psutil
import pytest

from queue_base.queue.hold_marks import read_mark
from queue_base.queue.layout import open_layout
from queue_smtpd.milter.message_spool import SpoolMemory
from queue_smtpd.milter.milter_client import NO_BODY, NO_HEADERS
from queue_smtpd.milter.milter_link import MilterAlerts
from queue_smtpd.milter.session_filter import FilterPlace, SessionFilter
from queue_smtpd.sessions.client_facts import ClientFacts
from queue_wire.control.milters import REFUSE, FilterSetup, unpack_milters
from queue_wire.files.hold_mark import HoldMark
from support.inject.injectors import only, queued, shared_home
from support.intake.intake_daemon import IntakeDaemon
from support.processes.suite import wait_until
from support.smtpd import milter_server
from support.smtpd.milter_server import MilterServer, Script
from support.smtpd.smtpd_daemon import SmtpdDaemon
from support.smtpd.smtpd_process import GivenSession

ANN, BOB, JOE = "ann@example.net", "bob@example.org", "joe@example.org"
TEXT = "From: ann@example.net\r\nDate: 20 Nov 2026 13:00:00 -0000\r\nSubject: hello\r\n\r\nHow are\r\nyou?\r\n"
BODY = b"How are\nyou?\n"


class Filtered:
    """A home with queue-intake, two milters, and a queue-smtpd that asks them; all tests of this file use it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.home = stack.enter_context(shared_home(0))
        Path(self.home.control, "rcpthosts").write_text("example.org\n")
        Path(self.home.control, "relayclients").write_text("127.0.0.1\n")
        Path(self.home.control, "checkrcpt").write_text("0\n")
        stack.enter_context(IntakeDaemon(self.home))
        paths = [Path(self.home.path, f"milter{number}") for number in range(2)]
        self.milters = [stack.enter_context(MilterServer(path)) for path in paths]
        self.milter = self.milters[0]
        self.daemon = self.serve("".join(f"unix:{path}\n" for path in paths))

    def serve(self, milters: str, headerfaults: str = "accept") -> SmtpdDaemon:
        """Start a queue-smtpd with this control/milters."""
        Path(self.home.control, "milters").write_text(milters)
        Path(self.home.control, "headerfaults").write_text(headerfaults + "\n")
        return self._stack.enter_context(SmtpdDaemon(self.home))

    def start(self, *scripts: Script, daemon: SmtpdDaemon | None = None) -> smtplib.SMTP:
        """Begin a test: give the milters these scripts, or none; return a client."""
        layout = open_layout(self.home.queue)
        for each in queued(self.home):
            for path in (layout.todo(each.number), layout.mess(each.number), layout.hashed("hold", each.number)):
                Path(path).unlink(missing_ok=True)
        self.daemon.said(b"")
        self.daemon.log = b""
        for milter, script in zip_longest(self.milters, scripts):
            milter.begin(script)
        client = (daemon or self.daemon).smtp()
        self._stack.callback(client.close)
        return client

    def refusal(self, client: smtplib.SMTP, text: str = TEXT, to: Sequence[str] = (BOB,)) -> tuple[int, bytes]:
        """Send a message; return the reply that refuses it or its sender."""
        with pytest.raises((smtplib.SMTPDataError, smtplib.SMTPSenderRefused)) as refused:
            client.sendmail(ANN, to, text)
        error = refused.value
        assert isinstance(error.smtp_error, bytes)
        return error.smtp_code, error.smtp_error


@pytest.fixture(scope="module")
def filtered() -> Iterator[Filtered]:
    with ExitStack() as stack:
        yield Filtered(stack)


@pytest.fixture(scope="module")
def lenient(filtered: Filtered) -> SmtpdDaemon:
    """A queue-smtpd that goes on without its milter."""
    return filtered.serve(f"unix:{filtered.milter.path} default=accept\n")


def test_each_stage_is_told_to_a_milter_with_macros_and_the_message_is_as_it_was(filtered: Filtered) -> None:
    client = filtered.start()
    client.ehlo("c.example")
    client.sendmail(ANN, [BOB, JOE], TEXT, mail_options=["BODY=8BITMIME"])
    milter = filtered.milter
    assert milter.commands == b"OCHMRRTLLLNBE"
    assert milter.data(b"C")[0].startswith(b"[127.0.0.1]\x004") and milter.data(b"H") == [b"c.example\0"]
    assert milter.data(b"M")[0].split(b"\0")[:3] == [b"<ann@example.net>", b"SIZE=%d" % len(TEXT), b"BODY=8BITMIME"]
    assert milter.data(b"R") == [b"<bob@example.org>\0", b"<joe@example.org>\0"]
    assert milter.data(b"L")[2] == b"Subject\0hello\0" and milter.data(b"B") == [b"How are\r\nyou?\r\n"]
    assert milter.macros[b"{client_addr}"] == b"127.0.0.1" and milter.macros[b"{rcpt_addr}"] == JOE.encode()
    assert milter.macros[b"j"] and milter.macros[b"{mail_addr}"] == ANN.encode()
    found = only(filtered.home)
    assert re.fullmatch(rb"[0-9]+-1", milter.macros[b"i"])
    assert b" id %d;" % found.number in found.message
    assert found.message.endswith(TEXT.replace("\r", "").encode())
    # The next message needs no other connection; what was begun is given up.
    client.mail(ANN)
    client.rset()
    client.sendmail(ANN, [BOB], TEXT)
    assert milter.commands[13:] == b"M" + b"A" + b"MRTLLLNBE" and milter.connections == 1
    client.quit()


def test_what_a_milter_changes_is_in_the_queue(filtered: Filtered) -> None:
    changes = [
        b"hX-Last\0end\0", b"i\0\0\0\1X-Second\0a\n b\nc\0", b"i\0\0\0\0X-First\0top\0", b"m\0\0\0\1Subject\0other\0",
        b"m\0\0\0\1Date\0\0", b"bnew\r", b"b\nbody\r\n", b"e<eve@example.net>\0", b"+<new@example.org>\0",
        b"-<bob@example.org>\0", b"p", b"c",
    ]  # fmt: skip
    client = filtered.start({b"E": changes})
    client.sendmail(ANN, [BOB, JOE], TEXT)
    found = only(filtered.home)
    head, _, body = found.message.partition(b"\n\n")
    assert body == b"new\nbody\n"
    lines = head.split(b"\n")
    assert lines[0] == b"X-First: top" and lines[1].startswith(b"Received: from ")
    assert lines[4:] == [
        b"X-Second: a", b" b", b"\tc", b"From: ann@example.net", b"Subject: other", b"X-Last: end"
    ]  # fmt: skip
    assert (found.envelope.sender, found.envelope.recipients) == (
        b"eve@example.net", [b"joe@example.org", b"new@example.org"]
    )  # fmt: skip


def test_a_milter_gets_the_message_as_the_one_before_it_has_changed_it(filtered: Filtered) -> None:
    client = filtered.start({b"E": [b"hX-One\0yes\0", b"bother\r\n", b"a"]}, {})
    client.sendmail(ANN, [BOB], TEXT)
    second = filtered.milters[1]
    assert second.data(b"L")[-1] == b"X-One\0yes\0" and second.data(b"B") == [b"other\r\n"]


@pytest.mark.parametrize("stage", [b"C", b"H", b"M", b"T", b"L", b"N", b"B", b"E"])
def test_a_refusal_at_any_stage_is_the_reply(filtered: Filtered, stage: bytes) -> None:
    client = filtered.start({stage: [b"y550 5.7.9 not with me\0"]})
    assert filtered.refusal(client) == (550, b"5.7.9 not with me")
    assert not queued(filtered.home)
    filtered.daemon.wait_for(b" refuses ")


def test_a_message_that_a_new_ehlo_has_ended_is_aborted_before_the_new_name_is_told(filtered: Filtered) -> None:
    client = filtered.start()
    for name in ("one", "two"):
        client.ehlo(name)
        client.mail(ANN)
    assert filtered.milter.commands == b"OCHMAHM"


def test_a_refused_recipient_leaves_the_others(filtered: Filtered) -> None:
    client = filtered.start({b"R": lambda data: [b"t" if b"bob" in data else b"c"]})
    assert client.sendmail(ANN, [BOB, JOE], TEXT) == {BOB: (451, b"4.7.1 Service unavailable - try again later")}
    assert only(filtered.home).envelope.recipients == [JOE.encode()]


@pytest.mark.parametrize("stage", [b"M", b"R", b"T", b"L", b"E"])
def test_a_message_that_is_discarded_is_accepted_and_logged(filtered: Filtered, stage: bytes) -> None:
    client = filtered.start({stage: [b"d"]})
    assert client.sendmail(ANN, [BOB], TEXT) == {}
    assert not queued(filtered.home)
    filtered.daemon.wait_for(b": discarded bytes ")


def test_a_message_without_recipients_left_is_discarded(filtered: Filtered) -> None:
    client = filtered.start({b"E": [b"-<bob@example.org>\0", b"c"]})
    client.sendmail(ANN, [BOB], TEXT)
    filtered.daemon.wait_for(b": discarded bytes ")
    assert not queued(filtered.home)


def test_a_message_in_quarantine_is_queued_on_hold(filtered: Filtered) -> None:
    client = filtered.start({b"E": [b"qlooks like spam\0", b"c"]})
    client.sendmail(ANN, [BOB], TEXT)
    found = only(filtered.home)
    assert read_mark(open_layout(filtered.home.queue), found.number) == HoldMark(b"milter: looks like spam")
    filtered.daemon.wait_for(b" holds message: looks_like_spam")


@pytest.mark.parametrize("accepted", [b"C", b"H", b"M", b"R", b"L"])
def test_a_milter_that_accepts_is_asked_no_more(filtered: Filtered, accepted: bytes) -> None:
    client = filtered.start({accepted: [b"a"], b"E": [b"r"]})
    client.sendmail(ANN, [BOB], TEXT)
    assert len(queued(filtered.home)) == 1
    client.sendmail(ANN, [BOB], TEXT)
    sessions = accepted in (b"C", b"H")
    # For the session, or for this message.
    assert filtered.milter.commands.count(accepted) == (1 if sessions else 2)


# Most of what a field may have.
LARGE = "Cc: " + "a@example.net,\r\n " * 4000 + "b@example.net\r\n"
BROKEN: list[Script] = [
    {b"M": [b""]}, {b"L": [b""]}, {b"E": [b""]}, {b"M": [b"?"]}, {b"B": [b"qspam\0"]}, {b"E": [b"hA", b"c"]},
    {b"E": [b"+not an address\0", b"c"]}, {b"E": [b"c" * 70000]},
]  # fmt: skip


@pytest.mark.parametrize("script", BROKEN)
def test_a_broken_milter_defers_mail_and_harms_nothing_else(filtered: Filtered, script: Script) -> None:
    client = filtered.start(script)
    assert filtered.refusal(client)[0] == 451
    filtered.daemon.wait_for(b" failed: ")
    assert not queued(filtered.home)
    assert client.noop()[0] == 250


@pytest.mark.parametrize("script", [{b"C": [b""]}, {b"M": [b""]}, {b"R": [b"?"]}, {b"T": [b""]}])
def test_a_broken_milter_is_left_out_where_the_line_says_so(
    filtered: Filtered, lenient: SmtpdDaemon, script: Script
) -> None:
    client = filtered.start(script, daemon=lenient)
    for _ in range(2):
        client.sendmail(ANN, [BOB], TEXT)
    assert [each.message.endswith(BODY) for each in queued(filtered.home)] == [True, True]
    assert filtered.milter.connections == 1


@pytest.mark.parametrize("script", [{b"L": [b""]}, {b"B": []}, {b"E": [b""]}, {b"E": [b"hA", b"c"]}, {b"E": []}])
def test_a_milter_that_fails_over_a_message_never_lets_it_in_and_is_asked_about_the_next_one(
    filtered: Filtered, script: Script
) -> None:
    daemon = filtered.serve(f"unix:{filtered.milter.path} default=accept content=1\n")
    client = filtered.start(script, daemon=daemon)
    for _ in range(2):
        assert filtered.refusal(client) == (451, b"4.7.1 Service unavailable - try again later")
    daemon.wait_for(b"; its mail is deferred\n")
    assert not queued(filtered.home)
    assert filtered.milter.commands.count(b"M") == 2


def test_a_message_whose_header_costs_too_much_to_filter_is_refused(
    filtered: Filtered, lenient: SmtpdDaemon
) -> None:
    for header, text in (
        ("A:\r\n" * 1001, b"Message header has too many fields"),
        ("Cc: " + " b\r\n" * 30_000, b"Field Cc of the message header is too large to be filtered"),
        ("Subject: " + "x" * 65_527 + "\r\n", b"Field Subject of the message header is too large to be filtered"),
        (LARGE * 17, b"Message header is too large"),
    ):
        client = filtered.start(daemon=lenient)
        assert filtered.refusal(client, header + TEXT) == (552, b"5.3.4 " + text)
        assert not queued(filtered.home) and b"E" not in filtered.milter.commands
    client.sendmail(ANN, [BOB], "A:\r\n" * 997 + TEXT)
    client.sendmail(ANN, [BOB], "Subject: " + "x" * 65_526 + "\r\n" + TEXT)
    client.sendmail(ANN, [BOB], LARGE * 15 + TEXT)
    assert len(queued(filtered.home)) == 3
    assert lenient.log.count(b"alert: ") == 0


def test_a_field_that_an_earlier_milter_has_made_too_long_refuses_the_message(filtered: Filtered) -> None:
    client = filtered.start({b"E": [b"hX-Long\0" + b"x" * 65_528 + b"\0", b"c"]})
    assert filtered.refusal(client)[0] == 552
    assert b"E" not in filtered.milters[1].commands


def test_a_milter_that_does_not_answer_is_waited_for_no_longer_than_its_line_says(filtered: Filtered) -> None:
    daemon = filtered.serve(f"unix:{filtered.milter.path} connect=1 command=1 content=1\n")
    client = filtered.start({b"E": []}, daemon=daemon)
    assert filtered.refusal(client) == (451, b"4.7.1 Service unavailable - try again later")
    daemon.wait_for(b" failed: no_answer_within_1_seconds")


def test_a_milter_that_is_not_there_or_is_for_other_listeners(filtered: Filtered) -> None:
    daemon = filtered.serve(f"unix:{filtered.home.path}/none\nunix:{filtered.milter.path} submission\n")
    client = filtered.start({b"M": [b"r"]}, daemon=daemon)
    assert filtered.refusal(client)[0] == 451
    daemon.wait_for(b"/none failed: unable_to_connect:")
    assert filtered.milter.connections == 0


def test_a_milter_that_is_down_has_one_alert_and_not_one_a_session(filtered: Filtered) -> None:
    daemon = filtered.serve(f"unix:{filtered.home.path}/gone\nunix:{filtered.home.path}/missing default=accept\n")
    for _ in range(3):
        assert filtered.refusal(filtered.start(daemon=daemon))[0] == 451
    text = f"alert: unable to ask milter unix:{filtered.home.path}/gone: unable to connect: no such file or directory"
    daemon.wait_for(f"{text}; its mail is deferred\n".encode())
    daemon.wait_for(b"/gone failed: ")
    assert daemon.log.count(b"alert: ") == 1 and daemon.log.count(b"/gone failed: ") == 3
    daemon = filtered.serve(f"unix:{filtered.home.path}/missing default=accept\n")
    for _ in range(2):
        filtered.start(daemon=daemon).sendmail(ANN, [BOB], TEXT)
    daemon.wait_for(b"; mail is accepted without it\n")
    assert daemon.log.count(b"alert: ") == 1


def test_without_room_for_a_message_it_is_deferred_and_there_is_an_alert(filtered: Filtered) -> None:
    Path(filtered.home.control, "milters").write_text(f"unix:{filtered.milter.path}\n")
    with SmtpdDaemon(filtered.home, shell="ulimit -f 100; ") as daemon:
        process = psutil.Process(daemon.process.pid)
        filtered.start(daemon=daemon).sendmail(ANN, [BOB], TEXT)
        before = process.num_fds()
        for _ in range(2):
            client = filtered.start(daemon=daemon)
            assert filtered.refusal(client, TEXT + "x" * 70 + ("\r\n" + "y" * 70) * 6000)[0] == 451
            client.sendmail(ANN, [BOB], TEXT)
            client.quit()
        daemon.wait_for(b" filter spool failed: file_too_large")
        text = b"alert: unable to keep a message for filters in /tmp: file too large; mail is deferred\n"
        daemon.wait_for(text.replace(b"/tmp", os.fsencode(tempfile.gettempdir())))
        assert daemon.log.count(b"alert: ") == 1
        # Each session had a connection to the milter, and one of its own.
        wait_until(lambda: process.num_fds() <= before, why="descriptors to be closed")


def test_results_in_our_name_come_from_milters_alone(filtered: Filtered) -> None:
    Path(filtered.home.control, "relayclients").write_text("192.0.2.1\n")
    forged, foreign = "Authentication-Results: MX.example.org; dkim=pass", "Authentication-Results: a.example; spf=pass"
    try:
        daemon = filtered.serve(f"unix:{filtered.milter.path} authserv=mx.example.org\n")
        added = b"i\0\0\0\1Authentication-Results\0mx.example.org; dkim=fail\0"
        client = filtered.start({b"E": [added, b"c"]}, daemon=daemon)
        client.sendmail(ANN, [BOB], f"{forged}\r\n{foreign}\r\n{TEXT}")
    finally:
        Path(filtered.home.control, "relayclients").write_text("127.0.0.1\n")
    fields = [data for data in filtered.milter.data(b"L") if data.startswith(b"Auth")]
    assert fields == [b"Authentication-Results\0a.example; spf=pass\0"]
    lines = only(filtered.home).message.partition(b"\n\n")[0].split(b"\n")
    results = [line for line in lines if line.startswith(b"Auth")]
    assert results == [b"Authentication-Results: mx.example.org; dkim=fail", foreign.encode()]


def test_a_large_message_is_the_same_behind_a_milter(filtered: Filtered) -> None:
    client = filtered.start({b"E": [b"hX-Seen\0yes\0", b"c"]})
    lines = [f"line {number} " + "x" * 60 for number in range(20000)]
    client.sendmail(ANN, [BOB], TEXT + "\r\n".join(lines) + "\r\n")
    message = only(filtered.home).message
    assert message.endswith("\n".join(lines).encode() + b"\n") and b"\nX-Seen: yes\n\nHow" in message
    assert b"".join(filtered.milter.data(b"B")).replace(b"\r", b"") == message.partition(b"\n\n")[2]


BAD = TEXT.replace("Date:", "X-Date:")


def test_a_header_that_breaks_the_standard_is_treated_as_the_administrator_wants(filtered: Filtered) -> None:
    postman = Path(filtered.home.queue, "postman")
    found = []
    for word in ("accept", "copy", "hold"):
        client = filtered.start(daemon=filtered.serve("", word))
        client.sendmail(ANN, [BOB], BAD)
        message = only(filtered.home)
        mark = read_mark(open_layout(filtered.home.queue), message.number)
        found.append((mark, (postman / f"{message.number}_no-date").exists(), message.message.endswith(BODY)))
    assert found == [(None, False, True), (None, True, True), (HoldMark(b"header: no-date"), False, True)]


def test_a_header_that_breaks_the_standard_can_be_refused(filtered: Filtered) -> None:
    client = filtered.start(daemon=filtered.serve("", "refuse"))
    assert filtered.refusal(client, BAD) == (554, b"5.6.0 Message header breaks RFC 5322: no-date")
    client.sendmail(ANN, [BOB], TEXT)
    assert len(queued(filtered.home)) == 1


def test_a_client_that_goes_while_a_milter_thinks_leaves_nothing(filtered: Filtered) -> None:
    client = filtered.start({b"M": []})
    client.ehlo("c")
    client.send("MAIL FROM:<>\r\n")
    filtered.milter.wait_for(b"M")
    # So that the end is a reset, and not a client that still listens.
    assert client.sock is not None
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    filtered.daemon.wait_for(b": end connection_lost")
    with filtered.daemon.smtp() as other:
        assert other.ehlo("d")[0] == 250


def test_a_milter_is_asked_under_a_super_server_too(filtered: Filtered) -> None:
    filtered.start({b"E": [b"hX-Seen\0yes\0", b"c"]})
    Path(filtered.home.control, "milters").write_text(f"unix:{filtered.milter.path}\n")
    with GivenSession(filtered.home) as given:
        mail = TEXT.encode() + b".\r\nQUIT\r\n"
        said = given.exchange(b"EHLO c\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<bob@example.org>\r\nDATA\r\n" + mail)
    assert b"\r\n250 2.6.0 ok " in said
    assert b"\nX-Seen: yes\n\nHow" in only(filtered.home).message


def test_a_header_of_many_fields_leaves_others_their_turns(
    filtered: Filtered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn may cost 20 ms of CPU, whatever a message is like."""
    monkeypatch.setattr(milter_server, "OFFER", struct.pack(">III", 6, 0x1FF, NO_HEADERS | NO_BODY))
    filtered.start({b"E": [b"m\0\0\0\1Subject\0changed\0", b"hX-Last\0yes\0", b"c"]})
    fields = b"From: a@b\nDate: x\n" + b"A:\n" * 340_000 + b"Subject: x\n"
    setup = FilterSetup(tuple(unpack_milters(f"unix:{filtered.milter.path}\n".encode())), REFUSE)
    shared = SpoolMemory(), MilterAlerts()
    filters = SessionFilter(setup, 12, FilterPlace(b"mx"), *shared, lambda lines: None)
    longest, text = 0.0, b""

    async def work() -> None:
        nonlocal text
        client = ClientFacts("192.0.2.1")
        assert await filters.ask_sender(client, b"1-1", b"", []) is None and await filters.ask_data() is None
        filters.begin_message()
        filters.add(b"Received: x\n")
        for at in range(0, len(fields), 32768):
            filters.add(fields[at : at + 32768])
            await asyncio.sleep(0)
        verdict = await filters.ask_message(b"", [b"bob@example.org"])
        assert verdict.reply is None
        pieces = []
        for piece in filters.pieces():
            pieces.append(piece)
            await asyncio.sleep(0)
        filters.drop_message()
        await asyncio.sleep(0)
        text = b"".join(pieces)
        filters.close()

    async def watch() -> None:
        nonlocal longest
        task = asyncio.create_task(work())
        while not task.done():
            begun = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - begun)
        await task

    asyncio.run(watch())
    changed = fields.replace(b"Subject: x\n", b"Subject:changed\nX-Last:yes\n\n")
    assert text.replace(b": changed", b":changed").replace(b": yes", b":yes") == b"Received: x\n" + changed
    assert longest < 0.02
