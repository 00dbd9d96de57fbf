"""The Received field of the server, and the lines of its log."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_smtp.server_replies import RELAYING_DENIED
from queue_smtpd.sessions import session_log
from queue_smtpd.sessions.client_facts import ClientFacts, TlsFacts
from queue_smtpd.sessions.received_line import pack_received, protocol_keyword

TLS = TlsFacts(b"TLSv1.3", b"TLS_AES_256_GCM_SHA384")
FULL = ClientFacts("192.0.2.1", "203.0.113.1", b"host.example.net", b"client.example", True, TLS, b"joe")


@pytest.mark.parametrize(("names_user", "note"), [(False, b""), (True, b"; authenticated as joe")])
def test_the_field_says_who_handed_in_the_message_and_how(names_user: bool, note: bytes) -> None:
    assert pack_received(FULL, b"mx.example.org", 0, names_user=names_user) == (
        b"Received: from client.example (host.example.net [192.0.2.1])\n"
        b"  (using TLSv1.3 with cipher TLS_AES_256_GCM_SHA384%s)\n" % note +
        b"  by mx.example.org with ESMTPSA id \0;\n  1 Jan 1970 00:00:00 -0000\n"
    )


def test_a_name_of_any_bytes_is_one_word_of_ascii_and_is_cut() -> None:
    line = pack_received(ClientFacts("192.0.2.1", hello=b"B\xfcro(PC;" + b"x" * 1000), b"mx", 0).splitlines()[0]
    assert line == b"Received: from B_ro_PC_%s (unknown [192.0.2.1])" % (b"x" * 247)


def test_what_is_not_known_is_left_out() -> None:
    assert pack_received(ClientFacts("2001:db8::1", hello=b"c"), b"mx", 0) == (
        b"Received: from c (unknown [IPv6:2001:db8::1])\n  by mx with SMTP id \0;\n  1 Jan 1970 00:00:00 -0000\n"
    )


@pytest.mark.parametrize(
    ("client", "smtputf8", "keyword"),
    [
        (FULL, False, b"ESMTPSA"),
        (FULL._replace(user=b""), False, b"ESMTPS"),
        (FULL._replace(tls=None), False, b"ESMTPA"),
        (FULL._replace(tls=None, user=b""), False, b"ESMTP"),
        (FULL._replace(esmtp=False), False, b"SMTP"),
        (FULL, True, b"UTF8SMTPSA"),
        (FULL._replace(tls=None, user=b""), True, b"UTF8SMTP"),
    ],
)
def test_the_keyword_of_the_protocol(client: ClientFacts, smtputf8: bool, keyword: bytes) -> None:
    assert protocol_keyword(client, smtputf8) == keyword


@given(st.binary(max_size=400), st.binary(max_size=400))
def test_nothing_from_outside_ends_the_field_or_a_comment(hello: bytes, user: bytes) -> None:
    field = pack_received(FULL._replace(hello=hello, user=user or b"x", name=hello), b"mx", 0, names_user=True)
    assert field.count(b"\0") == 1
    assert re.fullmatch(rb"Received: from \S+ \(\S+ \[192.0.2.1\]\)\n  \([^()]*\)\n  by mx .*;\n  .*\n", field)


LINES = [
    (
        session_log.connect(1, "192.0.2.1", 99, b"h.example", "2001:db8::1", 25),
        b"connect 192.0.2.1:99 h.example to [2001:db8::1]:25",
    ),
    (session_log.connect(1, "192.0.2.1", 99, b"", "", 0), b"connect 192.0.2.1:99 unknown to local:0"),
    (session_log.tls_started(1, *TLS), b"tls TLSv1.3 TLS_AES_256_GCM_SHA384"),
    (session_log.authenticated(1, b"joe", b"PLAIN"), b"auth joe PLAIN"),
    (session_log.authenticated(1, b"j e", b"PLAIN"), b"auth j_e PLAIN"),
    (session_log.tls_failed(1, "no shared cipher"), b"tls failed: no_shared_cipher"),
    (session_log.sender_accepted(1, b"", 0), b"from <> bytes 0"),
    (session_log.recipient_accepted(1, b"a b@example.org"), b"to <a_b@example.org>"),
    (
        session_log.refused(1, b"RCPT TO:<x@y> NOTIFY=z", RELAYING_DENIED, "192.0.2.1"),
        b"refused RCPT TO:<x@y>_NOTIFY=z: "
        b"550_5.7.1_Relaying_denied:_that_domain_is_not_in_the_list_of_allowed_rcpthosts client 192.0.2.1",
    ),
    (session_log.queued(1, b"457-tk3x2a", 2310, 1), b"queued 457-tk3x2a bytes 2310 recipients 1"),
    (session_log.dropped(1), b"dropped"),
    (session_log.ended(1, "too many errors", 1, 20, 3), b"end too_many_errors: messages 1 errors 20 seconds 3"),
]


@pytest.mark.parametrize(("line", "text"), LINES)
def test_each_line_of_the_log(line: bytes, text: bytes) -> None:
    assert line == b"smtp 1: " + text


@given(st.binary(max_size=3000))
def test_no_text_from_outside_makes_a_second_line_or_a_long_one(text: bytes) -> None:
    for line in (
        session_log.connect(1, "192.0.2.1", 1, text, "192.0.2.2", 25),
        session_log.authenticated(1, text, text),
        session_log.sender_accepted(1, text, 1),
        session_log.recipient_accepted(1, text),
        session_log.refused(1, text, RELAYING_DENIED._replace(text=text), "192.0.2.1"),
        session_log.queued(1, text, 1, 1),
    ):
        assert len(line) <= 1000
        assert re.fullmatch(rb"smtp 1: [ -~]+", line)
