"""Mail of strangers by QMTP: by the rules of SMTP, an answer for each recipient, and whatever bytes come."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queue_smtp import server_replies as replies
from queue_smtp.incoming import MessageLimits
from queue_smtp.server_replies import ServerReply
from queue_smtpd.sessions import qmtp_server
from queue_smtpd.sessions.client_facts import ClientFacts
from queue_smtpd.sessions.relay_rules import MailboxFound
from queue_smtpd.strangers.client_limits import ClientLimits
from queue_wire.control.listeners import Role
from queue_wire.control.strangers.smtpdlimits import ClientLimit
from queue_wire.pipes.framing import pack_netstring
from queue_wire.pipes.qmtp import NUMBERS, PERMANENT, TEMPORARY, Answer, AnswerReader, pack_facts, pack_package
from support.intake.intake_daemon import netstring, qmtp
from support.smtpd.sessions import NO_LIMITS, STRANGER, UNLIMITED, DrivenSession, K

MAIL = b"Subject: x\n\nhello\n"
JOE = b"joe@example.org"
OUT = b"x@elsewhere.example"
K_TEXT = b"Kok 1700000000 qp 77 457-tk3x2a"
DENIED = b"DRelaying denied: that domain is not in the list of allowed rcpthosts (#5.7.1)"


def make(
    client: ClientFacts = STRANGER,
    *,
    limits: MessageLimits = NO_LIMITS,
    answer: Answer | None = K,
    found: MailboxFound = MailboxFound.EXISTS,
    dnslists: bool = False,
    refusal: ServerReply | None = None,
    client_limits: ClientLimits | None = None,
    recipients: int = 1000,
) -> DrivenSession:
    return DrivenSession(
        client,
        role=Role.QMTP,
        limits=limits,
        answer=answer,
        found=found,
        dnslists=dnslists,
        refusal=refusal,
        client_limits=client_limits,
        recipients=recipients,
    )


def answers(data: bytes) -> list[bytes]:
    reader = AnswerReader()
    return [each.letter + each.text for each in reader.feed(data)]


def letters(data: bytes) -> bytes:
    return b"".join(each[:1] for each in answers(data))


def test_each_recipient_of_a_package_that_is_written_out_has_its_answer() -> None:
    session = make()
    assert session.greeting == b""
    said = session.feed(b"19:\n" + MAIL + b",13:a@example.net,42:15:joe@example.org,19:x@elsewhere.example,,")
    assert said == b"31:" + K_TEXT + b",78:" + DENIED + b","
    ((text, sender, recipients),) = session.messages
    assert (sender, recipients) == (b"a@example.net", [JOE])
    assert text == (
        b"Received: from unknown (unknown [198.51.100.7])\n"
        b"  by mx.example.org with QMTP id \0;\n"
        b"  14 Nov 2023 22:13:20 -0000\n" + MAIL
    )
    session.lose()
    assert session.lines == [
        b"smtp 12: connect 198.51.100.7:40000 unknown to 192.0.2.1:25",
        b"smtp 12: from <a@example.net> bytes 21",
        b"smtp 12: to <joe@example.org>",
        b"smtp 12: refused RCPT <x@elsewhere.example>: 550_5.7.1_Relaying_denied:_that_domain_is_not_in_the_list_of_"
        b"allowed_rcpthosts client 198.51.100.7",
        b"smtp 12: queued 457-tk3x2a bytes 21 recipients 1",
        b"smtp 12: end QUIT: messages 1 errors 1 seconds 2",
    ]


def test_crlf_line_ends_are_those_of_the_queue_and_packages_may_follow_each_other() -> None:
    session = make()
    one = netstring(b"\rSubject: x\r\n\r\nhello\r\n") + netstring(b"") + netstring(netstring(JOE))
    assert letters(session.feed(one + qmtp(MAIL, b"a@b.example", [JOE, JOE]))) == b"KKK"
    assert [text[-len(MAIL) :] for text, _, _ in session.messages] == [MAIL, MAIL]
    assert [recipients for _, _, recipients in session.messages] == [[JOE], [JOE, JOE]]


_STREAM = (
    qmtp(MAIL, b"a@example.net", [JOE, OUT, b"", JOE])
    + netstring(b"\r\r\r\nx\r\n.\r\n")
    + netstring(b"bad@example.net")
    + netstring(netstring(JOE))
    + qmtp(b"a\rb\n", b"", [JOE])
    + qmtp(b"", b"#@[]", [JOE, b"no\ncommand@example.org", b"a\0b@example.org", b"joe@@example.org"])
    + qmtp(MAIL, b"", [])
    + qmtp(MAIL, b"x" * 1003, [JOE])
)


@given(cuts=st.lists(st.integers(0, len(_STREAM)), max_size=20))
@settings(max_examples=60, deadline=None)
def test_pieces_of_a_stream_make_no_difference(cuts: list[int]) -> None:
    whole, session = make(), make()
    said = whole.feed(_STREAM)
    assert letters(said) == b"KDDK" + b"D" + b"D" + b"KDDK" + b"D"
    places = [0, *sorted(cuts), len(_STREAM)]
    assert b"".join([session.feed(_STREAM[begin:end]) for begin, end in pairwise(places)]) == said
    assert (session.messages, session.lines) == (whole.messages, whole.lines)


def test_pieces_of_one_byte_make_no_difference() -> None:
    whole, session = make(), make()
    assert b"".join([session.feed(bytes((byte,))) for byte in _STREAM]) == whole.feed(_STREAM)
    assert (session.messages, session.lines) == (whole.messages, whole.lines)


@pytest.mark.parametrize(
    ("address", "letter"),
    [
        (OUT, b"D"),
        (b"x%elsewhere.example@hack.example.org", b"D"),
        (b"@example.org:x@elsewhere.example", b"D"),
        (b"x@[203.0.113.9]", b"D"),
        (b"x", b"D"),
        (b"joe@example.org@elsewhere.example", b"D"),
        (b"joe@example.org\n", b"D"),
        (b"joe@example.org ", b"D"),
        (b"j\xff@example.org", b"D"),
        (b'"joe@example.org', b"K"),
        (b"j o e@example.org", b"K"),
        (b"joe@example.org.", b"K"),
        (b"joe@example.org..", b"D"),
        ("j\u00f6@example.org".encode(), b"K"),
        (b"postmaster", b"K"),
    ],
)
def test_the_rules_for_recipients_are_those_of_smtp(address: bytes, letter: bytes) -> None:
    assert letters(make().feed(qmtp(MAIL, b"", [address]))) == letter


def test_an_envelope_has_no_final_dot_of_a_domain() -> None:
    session = make()
    assert letters(session.feed(qmtp(MAIL, b"ann@elsewhere.example.", [b"joe@example.org."]))) == b"K"
    assert session.messages[0][1:3] == (b"ann@elsewhere.example", [JOE])


def test_a_client_that_may_relay_sends_to_everybody() -> None:
    session = make(STRANGER._replace(address="192.0.2.5"))
    assert letters(session.feed(qmtp(MAIL, b"joe@example.org", [OUT]))) == b"K"
    assert session.messages[0][2] == [OUT]


def test_a_refused_sender_is_the_answer_to_all_and_the_message_is_forgotten() -> None:
    session = make()
    said = answers(session.feed(qmtp(MAIL, b"bad@example.net", [JOE, OUT])))
    assert said == [b"DYour envelope sender is in the badmailfrom list (#5.7.1)"] * 2
    assert (session.messages, session.dropped) == ([], 1)
    assert session.feed(qmtp(MAIL, b"", [JOE])) != b""


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, b"ZQueue is not available now (#4.3.0)"),
        (Answer(TEMPORARY, b"no space on /var/queue"), b"ZQueue is not available now (#4.3.0)"),
        (Answer(PERMANENT, b"message too large (#5.3.4)"), b"Dmessage too large (#5.3.4)"),
    ],
)
def test_only_k_of_queue_intake_is_k(answer: Answer | None, said: bytes) -> None:
    assert answers(make(answer=answer).feed(qmtp(MAIL, b"", [JOE, OUT, JOE]))) == [said, DENIED, said]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (MailboxFound.UNKNOWN, b"DNo such mailbox here (#5.1.1)"),
        (MailboxFound.UNDECIDED, b"ZCannot look up the recipient now (#4.3.0)"),
    ],
)
def test_a_mailbox_that_is_not_found_is_refused(found: MailboxFound, said: bytes) -> None:
    session = make(found=found)
    assert answers(session.feed(qmtp(MAIL, b"", [JOE]))) == [said]
    assert session.dropped == 1


@pytest.mark.parametrize(
    ("text", "limits", "said"),
    [
        (b"x" * 40, MessageLimits(size=30), b"DMessage is too large (#5.3.4)"),
        (b"\n" * 20, MessageLimits(size=30), b"DMessage is too large (#5.3.4)"),
        (b"a\rb\n", NO_LIMITS, b"D" + replies.BARE_LINE_END.text + b" (#5.6.11)"),
        (b"a\rb\n", MessageLimits(bare_line_ends=True), K_TEXT),
        (b"Received: x\n" * 101, NO_LIMITS, b"DToo many hops; this message is looping (#5.4.6)"),
        (b"x" * 30, MessageLimits(size=30), K_TEXT),
    ],
)
def test_the_limits_of_a_message_are_those_of_smtp(text: bytes, limits: MessageLimits, said: bytes) -> None:
    session = make(limits=limits)
    stream = qmtp(text, b"", [JOE, OUT])
    found = answers(session.feed(stream[:7]) + session.feed(stream[7:]))
    assert found[0] == said and (found[1] == said or said == K_TEXT)
    assert letters(session.feed(qmtp(b"x\n", b"", [JOE]))) == b"K"


def test_a_message_far_over_the_limit_ends_the_session_before_it_is_sent() -> None:
    session = make(limits=MessageLimits(size=1000))
    assert session.feed(b"%d:\n" % (qmtp_server.SKIP_MAX + 2)) == b""
    assert session.session.over
    assert b"552" in session.lines[-2]


def test_what_is_over_limits_of_a_client_is_to_come_again() -> None:
    limits = ClientLimits(UNLIMITED._replace(messages=ClientLimit(1, 0)))
    session = make(client_limits=limits)
    assert letters(session.feed(qmtp(MAIL, b"", [JOE]))) == b"K"
    over = b"ZToo many messages from your address; try again later (#4.7.0)"
    assert answers(session.feed(qmtp(MAIL, b"", [JOE, OUT]))) == [over, over]
    limits = ClientLimits(UNLIMITED._replace(recipients=ClientLimit(1, 0)))
    assert letters(make(client_limits=limits).feed(qmtp(MAIL, b"", [JOE, JOE]))) == b"KZ"


def test_a_client_that_is_turned_away_hears_nothing() -> None:
    limits = ClientLimits(UNLIMITED._replace(connections=ClientLimit(1, 0)))
    make(client_limits=limits)
    session = make(client_limits=limits)
    assert session.session.over and session.greeting == b""
    assert [b"refused connect: 421" in session.lines[-2], session.feed(qmtp(MAIL, b"", [JOE]))] == [True, b""]


def test_strangers_are_looked_up_for_each_recipient() -> None:
    session = make(dnslists=True, refusal=replies.GREYLISTED)
    said = session.feed(qmtp(MAIL, b"a@example.net", [JOE, b"postmaster@example.org"]))
    assert answers(said) == [b"ZGreylisted; try again later (#4.7.1)", K_TEXT]
    assert [(each.sender, each.recipient) for each in session.checks] == [(b"a@example.net", JOE)]


def test_too_many_errors_end_the_session_and_the_others_are_to_come_again() -> None:
    session = make()
    said = session.feed(qmtp(MAIL, b"", [JOE, *[OUT] * 19, *[b"no address"] * 20]) + qmtp(MAIL, b"", [JOE]))
    assert letters(said) == b"Z" + b"D" * 20 + b"Z" * 19
    assert session.session.over and session.dropped == 1 and not session.messages


def test_refusals_for_now_and_packages_for_nobody_are_errors() -> None:
    session = make(client_limits=ClientLimits(UNLIMITED._replace(messages=ClientLimit(1, 0))))
    for _ in range(21):
        assert not session.session.over
        session.feed(qmtp(MAIL, b"", [JOE]))
    assert session.session.over and len(session.messages) == 1
    session = make()
    session.feed(qmtp(MAIL, b"", []) * 50)
    assert session.session.over and session.dropped == 20


def test_many_recipients_over_the_limit_of_the_address_are_to_come_again_and_the_others_are_taken() -> None:
    session = make(client_limits=ClientLimits(UNLIMITED._replace(recipients=ClientLimit(3, 0))))
    assert letters(session.feed(qmtp(MAIL, b"", [JOE] * 50))) == b"KKK" + b"Z" * 47
    assert len(session.messages) == 1


def test_recipients_over_the_limit_are_to_come_again() -> None:
    session = make(recipients=3)
    said = session.feed(qmtp(MAIL, b"", [JOE, b"a\0b", JOE, JOE, JOE]) + qmtp(MAIL, b"", [JOE]))
    assert answers(said)[3:5] == [b"ZToo many recipients (#4.5.3)"] * 2
    assert letters(said) == b"KDKZZ" + b"K"
    assert sum(b"refused RCPT: 452" in line for line in session.lines) == 1


def test_many_recipients_are_decided_in_turns() -> None:
    session = make()
    assert letters(session.feed(qmtp(MAIL, b"", [JOE] * 1000))) == b"K" * 1000
    assert session.pauses >= 1000 // qmtp_server.TURN - 1


def test_a_package_of_recipients_without_end_ends_the_session() -> None:
    session = make()
    said = session.feed(netstring(MAIL.join((b"\n", b""))) + netstring(b"") + b"900000000:")
    while not session.session.over:
        said += session.feed(b"0:," * 10_000)
    assert said == b"" and session.dropped == 1
    assert b"refused package: 421" in session.lines[-3]


def test_impossible_recipients_without_end_are_refused_as_a_whole() -> None:
    session = make(recipients=5000)
    assert letters(session.feed(qmtp(MAIL, b"", [b"\0"] * 1500))) == b"D" * 1500
    assert session.dropped == 1


@pytest.mark.parametrize(
    "stream",
    [
        b"EHLO x\r\n",
        b"GET / HTTP/1.1\r\n",
        b"5:hello,",
        b"0:,",
        b"3:\nab;",
        b"22:5:hello,3:a@b,3:c@d,,",
        NUMBERS,
        pack_facts(uid=0),
        pack_facts(pieces=True),
        pack_netstring(b"+nonsense"),
    ],
)
def test_what_is_no_package_ends_the_session(stream: bytes) -> None:
    session = make()
    assert session.feed(stream + qmtp(MAIL, b"", [JOE])) == b""
    assert session.session.over and not session.messages
    assert session.lines[-2].startswith(b"smtp 12: refused package: 521_5.5.2_") or session.dropped
    assert session.lines[-1].startswith(b"smtp 12: end refused: ")


def test_packages_before_what_is_none_are_answered() -> None:
    session = make()
    assert letters(session.feed(qmtp(MAIL, b"", [JOE]) + b"?" * 100)) == b"K"
    assert session.session.over


def test_a_client_that_is_gone_within_a_package_has_sent_nothing() -> None:
    stream = qmtp(MAIL, b"", [JOE])
    for end in range(1, len(stream)):
        session = make()
        assert session.feed(stream[:end]) == b""
        session.lose()
        assert not session.messages and b"end connection_lost" in session.lines[-1]
    session = make()
    session.lose()
    assert b"end QUIT" in session.lines[-1]


def test_the_end_of_a_session_is_the_answer_to_a_package_that_is_complete() -> None:
    session = make()
    session.session.feed(qmtp(MAIL, b"", [JOE, JOE]), 1.0)
    # The session waits for what the lookup finds.
    session.session.begin_message(None, 0, 1.0)
    session.session.close(replies.TIMED_OUT, "timeout", 2.0)
    assert answers(session.session.data_to_send()) == [b"ZTimeout exceeded (#4.4.2)"] * 2


@given(
    data=st.binary(max_size=200) | st.text("0123456789:,\n\r+a@.\0", max_size=200).map(str.encode),
    begin=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_no_bytes_break_a_session_or_make_it_grow(data: bytes, begin: bool) -> None:
    session = make(recipients=5)
    if begin:
        session.feed(_STREAM[: len(data) % len(_STREAM)])
    for at in range(0, len(data), 7):
        session.feed(data[at : at + 7])
    assert len(session.messages) <= len(data) + 5
    session.lose()
    assert session.session.over


_PACKAGES = st.lists(
    st.tuples(
        st.binary(max_size=60),
        st.sampled_from((b"", b"a@b.example", b"bad@example.net", b"#@[]", b"\0")) | st.binary(max_size=20),
        st.lists(st.sampled_from((JOE, OUT, b"", b"\0", b"postmaster")) | st.binary(max_size=20), max_size=8),
    ),
    max_size=6,
)


@given(packages=_PACKAGES)
@settings(max_examples=200, deadline=None)
def test_every_package_has_as_many_answers_as_recipients(
    packages: list[tuple[bytes, bytes, list[bytes]]],
) -> None:
    session = make(recipients=5)
    for text, sender, recipients in packages:
        over = session.session.over
        said = letters(session.feed(pack_package(text, sender, recipients)))
        assert len(said) == (0 if over else len(recipients))
        if not over:
            found = session.messages.pop() if session.messages else (b"", b"", [])
            assert said.count(b"K") == len(found[2])
