"""A session by the rules: who may send what to whom, what is handed over and logged, and that no form is a relay."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queue_smtp.incoming import MessageLimits
from queue_smtp.server_session import ServerSettings
from queue_smtpd.milter.milter_client import UNAVAILABLE
from queue_smtpd.sessions.relay_rules import MailboxFound
from queue_smtpd.sessions.session import SenderFiltered
from queue_smtpd.strangers.client_limits import ClientLimits
from queue_wire.control.milters import REFUSE, FilterSetup
from queue_wire.control.strangers.smtpdlimits import ClientLimit
from queue_wire.logline import LINE_MAX
from queue_wire.pipes.qmtp import PERMANENT, TEMPORARY, Answer
from support.smtpd.sessions import RULES, STRANGER, UNLIMITED, DrivenSession, make_session

ENVELOPE = b"EHLO client.example.net\r\nMAIL FROM:<a@example.net>\r\nRCPT TO:<joe@example.org>\r\n"
MAIL = b"Subject: x\r\n\r\nhello\r\n.\r\n"
NOT_NOW = b"451 4.3.0 Queue is not available now\r\n"
FRIEND = STRANGER._replace(relays=True)
# Each is for somebody at another host, if anything.
RELAY_FORMS = (
    *("x@elsewhere.example", '"x"@elsewhere.example', '"x@elsewhere.example"', "x%elsewhere.example"),
    *("x@[203.0.113.9]", "x@example.org,elsewhere.example"),
    *("elsewhere.example!x", "@example.org:x@elsewhere.example", "@example.org,@mx.example.org:x@elsewhere.example"),
    *("x%elsewhere.example@hack.example.org", "x@[IPv6:2001:db8::9]", "x"),
    *("x%elsewhere.example%hack.example.org@hack.example.org", "x@elsewhere.example.", "x@127.1", "x@[127.0.0.1]"),
    *("a%b@c%elsewhere.example@hack.example.org", "x@.example.org", "x@ELSEWHERE.example", "x@sub.example.org"),
    *('"x%elsewhere.example"@hack.example.org', '"a@b"%elsewhere.example@hack.example.org', "x@[198.51.100.7]"),
    *("x@example.org@elsewhere.example", "x@elsewhere.example@", '""@elsewhere.example'),
)  # fmt: skip


@pytest.mark.parametrize("form", RELAY_FORMS)
def test_no_form_of_a_recipient_makes_an_open_relay(form: str) -> None:
    session = DrivenSession()
    recipient = form.encode()
    session.feed(b"EHLO c\r\nMAIL FROM:<joe@example.org>\r\n")
    replies = [session.feed(b"RCPT TO:" + path + b"\r\n") for path in (b"<%s>" % recipient, recipient)]
    assert [reply[:1] for reply in replies] == [b"5", b"5"], replies
    session.feed(b"DATA\r\n" + MAIL)
    assert not session.messages


@pytest.mark.parametrize(
    "form",
    [
        "elsewhere.example!x@example.org",
        "x%elsewhere.example@example.org",
        '"@x"@example.org',
        '"x@elsewhere.example"@hack.example.org',
    ],
)
def test_a_local_part_that_looks_like_a_route_is_a_local_part(form: str) -> None:
    session = DrivenSession()
    session.feed(b"EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<%s>\r\nDATA\r\n" % form.encode() + MAIL)
    assert session.messages[0][2] == [form.replace('"', "").encode()]


def test_a_message_is_handed_over_with_its_received_field_and_logged() -> None:
    session = DrivenSession()
    replies = session.feed(ENVELOPE + b"RCPT TO:<x@elsewhere.example>\r\nDATA\r\n" + MAIL + b"QUIT\r\n")
    assert replies.splitlines()[-4:] == [
        b"550 5.7.1 Relaying denied: that domain is not in the list of allowed rcpthosts",
        b"354 End data with <CR><LF>.<CR><LF>",
        b"250 2.6.0 ok 1700000000 qp 77 457-tk3x2a",
        b"221 2.0.0 Bye",
    ]
    ((text, sender, recipients),) = session.messages
    assert (sender, recipients) == (b"a@example.net", [b"joe@example.org"])
    received, mail = text.split(b"Subject:", 1)
    assert mail == b" x\n\nhello\n"
    assert received == (
        b"Received: from client.example.net (unknown [198.51.100.7])\n"
        b"  by mx.example.org with ESMTP id \0;\n"
        b"  14 Nov 2023 22:13:20 -0000\n"
    )
    assert session.lines == [
        b"smtp 12: connect 198.51.100.7:40000 unknown to 192.0.2.1:25",
        b"smtp 12: from <a@example.net> bytes 0",
        b"smtp 12: to <joe@example.org>",
        b"smtp 12: refused RCPT <x@elsewhere.example>: 550_5.7.1_Relaying_denied:_that_domain_is_not_in_the_list_of_"
        b"allowed_rcpthosts client 198.51.100.7",
        b"smtp 12: queued 457-tk3x2a bytes 21 recipients 1",
        b"smtp 12: end QUIT: messages 1 errors 1 seconds 1",
    ]


def test_a_friend_may_send_to_everybody_and_its_suffix_is_added() -> None:
    session = DrivenSession(FRIEND, suffix=b".fixed.example")
    session.feed(b"EHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<x@elsewhere>\r\nDATA\r\n" + MAIL)
    assert session.messages[0][2] == [b"x@elsewhere.fixed.example"]


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        (None, NOT_NOW),
        (Answer(TEMPORARY, b"no space on /var/queue"), NOT_NOW),
        (Answer(PERMANENT, b"message too large (#5.3.4)"), b"554 5.3.4 message too large\r\n"),
        (Answer(PERMANENT, b"no"), b"554 5.6.0 no\r\n"),
    ],
)  # fmt: skip
def test_only_k_of_queue_intake_is_250(answer: Answer | None, reply: bytes) -> None:
    session = DrivenSession(answer=answer)
    session.feed(ENVELOPE + b"DATA\r\n")
    assert session.feed(MAIL) == reply
    assert not any(b"queued" in line for line in session.lines)
    assert (b"_/var/queue" in session.lines[-1]) == (answer == Answer(TEMPORARY, b"no space on /var/queue"))


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (MailboxFound.UNKNOWN, b"550 5.1.1"),
        (MailboxFound.UNDECIDED, b"451 4.3.0"),
        (MailboxFound.NOT_NOW, b"450 4.2.1"),
    ],
)
def test_a_mailbox_that_is_not_found_is_refused(found: MailboxFound, code: bytes) -> None:
    session = DrivenSession(found=found)
    assert session.feed(ENVELOPE).splitlines()[-1].startswith(code)


def test_a_message_that_is_refused_or_lost_is_dropped() -> None:
    session = DrivenSession(limits=MessageLimits(size=10))
    assert session.feed(ENVELOPE + b"DATA\r\n" + MAIL).endswith(b"552 5.3.4 Message is too large\r\n")
    assert (session.messages, session.dropped) == ([], 1)
    session = DrivenSession()
    session.feed(ENVELOPE + b"DATA\r\nSubject: x\r\n\r\nhel")
    session.lose()
    assert (session.messages, session.dropped) == ([], 1)
    assert session.lines[-2:] == [b"smtp 12: dropped", b"smtp 12: end connection_lost: messages 0 errors 0 seconds 2"]


class _Broken:
    def __contains__(self, host: object) -> bool:
        raise OSError(5, "broken")


def test_rules_that_cannot_be_read_defer_the_recipient() -> None:
    rules = RULES._replace(rcpthosts=frozenset((b"other.example",)), morercpthosts=_Broken())
    assert DrivenSession(rules=rules).feed(ENVELOPE).splitlines()[-1].startswith(b"451 4.3.5")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from([ENVELOPE, b"DATA\r\n", MAIL, b"RSET\r\n", b"\r\n"]), st.binary(max_size=40)))
)
def test_whatever_a_client_sends_each_log_line_is_one_printable_line(pieces: list[bytes]) -> None:
    session = DrivenSession(STRANGER._replace(name=b"evil\nsmtp 1: queued x"))
    for piece in pieces:
        if not session.session.over:
            session.feed(piece)
            session.feed(b"MAIL FROM:<%s>\r\n" % piece)
    if not session.session.over:
        session.lose()
    for line in session.lines:
        assert re.fullmatch(rb"smtp 12: [ -~]+", line) and len(line) <= LINE_MAX
    assert sum(b"smtp 12: queued" in line for line in session.lines) == len(session.messages)
    assert sum(line.startswith(b"smtp 12: end ") for line in session.lines) == 1


def test_filters_that_cannot_be_asked_are_no_fault_of_the_client_address() -> None:
    limits = ClientLimits(UNLIMITED._replace(errors=ClientLimit(1, 1)))
    session = make_session(client_limits=limits, filters=FilterSetup(headerfaults=REFUSE))
    session.start(40000, 25, 0.0)
    session.feed(b"EHLO c\r\n", 1.0)
    for _ in range(ServerSettings(b"x").errors - 1):
        assert isinstance(session.feed(b"MAIL FROM:<>\r\n", 1.0)[-1], SenderFiltered)
        # No reply is delayed.
        assert session.answer_filter(UNAVAILABLE, 1.0) == []
        assert session.data_to_send().endswith(b"451 4.7.1 Service unavailable - try again later\r\n")
    assert not session.over and limits.add_error(STRANGER.address, 1.0) is None
