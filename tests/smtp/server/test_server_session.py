"""The server: what it says, what it reports, and that neither depends on the pieces in which a client's bytes come."""

import binascii
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from queue_smtp.auth_server import MECHANISMS
from queue_smtp.incoming import MessageLimits
from queue_smtp.server import WAITING_MAX, SmtpServer
from queue_smtp.server_events import (
    BadCommand,
    ClientChanged,
    MessageBegun,
    MessageEnded,
    RecipientGiven,
    SenderGiven,
    SessionClosed,
    TransactionDropped,
    UserAuthenticated,
    UserRefused,
)
from queue_smtp.server_replies import SHUTTING_DOWN, TIMED_OUT, ServerReply, pack_reply
from queue_smtp.server_session import ServerSettings, ServerState
from support.servers.session import GREETING, LIMITS, PASSWORD, SETTINGS, ScriptedSession, Taken

ENVELOPE = b"EHLO c\r\nMAIL FROM:<a@example.net>\r\nRCPT TO:<joe@example.org>\r\n"
JOE = (b"joe@example.org",)
# A secure session, with whatever the client may do.
FREE = SETTINGS._replace(errors=10**9, useless=10**9, implicit_tls=True, xclient=True)

COMMANDS = (
    *(
        b"EHLO c\r\n",
        b"HELO c\r\n",
        b"RSET\r\n",
        b"NOOP\r\n",
        b"QUIT\r\n",
        b"VRFY x\r\n",
        b"HELP\r\n",
        b"\r\n",
        b"X\r\n",
    ),
    *(b"MAIL FROM:<a@example.net>\r\n", b"MAIL FROM:<> SIZE=20000\r\n", b"MAIL FROM:<bad@example.net>\r\n"),
    *(b"RCPT TO:<joe@example.org>\r\n", b"RCPT TO:<x@elsewhere.example>\r\n", b"RCPT TO:<later@example.org>\r\n"),
    *(b"RCPT TO:<closed@example.org>\r\n", b"DATA\r\n", b"AUTH PLAIN\r\n", b"AUTH LOGIN am9l\r\n", b"*\r\n"),
    *(b"AGpvZQBzZWNyZXQ=\r\n", b"c2VjcmV0\r\n", b"BDAT 3 LAST\r\nabc", b"BDAT 3\r\na\r\n", b"BDAT 2\r\n\r\r"),
    *(b"BDAT 0 LAST\r\n", b"BDAT 70000000\r\n", b"XCLIENT ADDR=192.0.2.1\r\n", b"XCLIENT LOGIN=+00\r\n"),
    *(b"Received: x\r\n", b"a" * 3000 + b"\r\n", b"x" * 11000, b"\r\n.\r\n", b".\r\n", b"..\r\n", b"\n.\n", b"\r.\r"),
    *(b"\r", b"\n", b".", b"\0", b"\xff", b"GET / HTTP/1.1\r\n"),
)
# Whole envelopes are frequent, so that messages begin.
STREAMS = st.lists(
    st.one_of(
        st.sampled_from(COMMANDS),
        st.just(ENVELOPE),
        st.just(ENVELOPE + b"DATA\r\n"),
        st.just(ENVELOPE + b"BDAT 4\r\nx\r\n\r"),
        st.binary(max_size=20),
    ),
    max_size=12,
).map(b"".join)
CLOSED = ENVELOPE + b"RCPT TO:<closed@example.org>\r\n"  # Whose message is refused at DATA.
TRANSACTION_ENDS = (TransactionDropped, MessageEnded)


def run(stream: bytes, cuts: list[int], settings: ServerSettings = FREE) -> tuple[ScriptedSession, bytes]:
    """Feed a stream in pieces that end at `cuts`; return the session and all that it said."""
    session = ScriptedSession(settings)
    said, at = b"", 0
    for cut in [*sorted(cuts), len(stream)]:
        said += session.feed(stream[at:cut])
        at = max(at, cut)
    return session, said


def shown(session: ScriptedSession) -> list[str]:
    """Return the events as text: tuples of different classes may be equal."""
    return [repr(event) for event in session.events]


def drops(session: ScriptedSession) -> int:
    return len([event for event in session.events if isinstance(event, TransactionDropped)])


@given(STREAMS, st.lists(st.integers(0, 3000), max_size=20))
@example(ENVELOPE + b"DATA\r\nx\r\n.\r\n", list(range(100)))
@example(ENVELOPE + b"BDAT 2\r\nx\rBDAT 1 LAST\r\n\n", list(range(130)))
def test_a_session_is_the_same_whatever_the_pieces(stream: bytes, cuts: list[int]) -> None:
    whole, cut = run(stream, []), run(stream, cuts)
    assert cut[1] == whole[1]
    assert shown(cut[0]) == shown(whole[0])
    assert cut[0].messages == whole[0].messages
    assert cut[0].server.state is whole[0].server.state


@given(STREAMS)
def test_a_session_is_the_same_byte_by_byte(stream: bytes) -> None:
    whole, single = run(stream, []), run(stream, list(range(len(stream))))
    assert single[1] == whole[1]
    assert shown(single[0]) == shown(whole[0])
    assert single[0].messages == whole[0].messages


@given(STREAMS)
@example(CLOSED + b"DATA\r\n" + ENVELOPE + b"DATA\r\nx\r\n.\r\n")
@example(CLOSED + b"BDAT 2\r\nx\r" + ENVELOPE)
@example(CLOSED + b"RSET\r\n" + ENVELOPE)
def test_every_transaction_that_began_has_one_end(stream: bytes) -> None:
    session, _ = run(stream, [])
    session._take(session.server.lost())
    opened = is_closed = False
    for event in session.events:
        if isinstance(event, SenderGiven):
            assert not opened
            opened, is_closed = event.address != b"bad@example.net", False
        elif isinstance(event, RecipientGiven):
            assert opened
            is_closed |= event.address == b"closed@example.org"
        elif isinstance(event, MessageBegun):
            assert opened
            opened = not is_closed  # That of a mailbox that is closed ends with the answer to this.
        elif isinstance(event, TRANSACTION_ENDS):
            assert opened
            opened = False
    assert not opened
    assert isinstance(session.events[-1], SessionClosed)


@given(st.binary(max_size=5000), st.sampled_from(list(range(5))))
def test_no_bytes_crash_a_session(data: bytes, state: int) -> None:
    openings = (b"", ENVELOPE, ENVELOPE + b"DATA\r\n", ENVELOPE + b"BDAT 4000\r\n", b"EHLO c\r\nAUTH LOGIN\r\n")
    session = ScriptedSession(FREE)
    session.feed(openings[state])
    session.feed(data)
    session.feed(data)


# A second reader of a stream, who knows nothing of sessions: only of the replies, the end of DATA and sizes of chunks.

_BDAT = re.compile(rb"(?i)[ \t]*BDAT[ \t]+([0-9]{1,18})(?:[ \t]+(LAST))?[ \t]*\r\n")


def split_stream(stream: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the messages that the session takes of a stream, and those that this reader sees in it."""
    session = ScriptedSession(SETTINGS._replace(errors=10**9, useless=10**9, implicit_tls=True))
    session.feed(b"")
    seen: list[bytes] = []
    read, chunks, mode, left, last = b"", b"", "command", 0, False
    for at in range(len(stream)):
        said = session.feed(stream[at : at + 1])
        if session.server.state is ServerState.CLOSED:
            break
        read += stream[at : at + 1]
        code = said.rpartition(b"\r\n")[0].rpartition(b"\r\n")[2][:3]
        if mode == "chunk":
            left -= 1
            assert bool(said) == (not left)
        elif mode == "data":
            assert bool(said) == (b"\r\n" + read).endswith(b"\r\n.\r\n")
        else:
            chunk = _BDAT.fullmatch(read) if mode == "command" else None
            left = int(chunk[1]) if chunk else 0
            assert bool(said) == (read.endswith(b"\n") and not left)
            if chunk:
                mode, read, last = "chunk", b"", bool(chunk[2])
        if said and mode in ("data", "chunk"):
            if mode == "data":
                read, last, chunks = (b"\r\n" + read[:-3]).replace(b"\r\n.", b"\r\n")[2:], True, b""
            chunks = chunks + read if code == b"250" else b""
            if last and code == b"250":
                seen.append(chunks.replace(b"\r\n", b"\n"))
            chunks = b"" if last else chunks
        if said:
            begins_anew = mode == "command" and code == b"250" and re.match(rb"(?i)[ \t]*(RSET|EHLO|HELO)", read)
            chunks = b"" if begins_anew else chunks
            mode, read = {b"354": "data", b"334": "response"}.get(code, "command"), b""
    return [message.content for message in session.messages], seen


@given(STREAMS)
@example(b"DATA\r\nx\r\n.\ny\r\n.\r\n")
@example(b"RSET\r\nBDAT 12\r\nNOOP\r\nNOOP\r\n")
def test_messages_are_those_that_another_reader_of_the_same_stream_sees(stream: bytes) -> None:
    taken, seen = split_stream(ENVELOPE + stream)
    assert taken == seen


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(b"a\r\n.\0"), max_size=12))
def test_what_a_session_keeps_is_bounded(pieces: list[int]) -> None:
    for opening in (b"", ENVELOPE + b"DATA\r\n", ENVELOPE + b"BDAT 10000000\r\n", b"EHLO c\r\nAUTH LOGIN\r\n"):
        session = ScriptedSession(FREE)
        session.feed(opening)
        for piece in pieces:
            session.feed(bytes([piece]) * 4096)
            assert len(session.server._buffer) <= 16384


def test_while_a_question_is_open_the_session_asks_for_no_more_than_it_needs() -> None:
    server = SmtpServer(SETTINGS)
    server.greet()
    server.feed(b"EHLO c\r\n")
    assert server.wants_data
    server.feed(b"x" * WAITING_MAX)
    assert not server.wants_data
    server.answer()
    assert server.wants_data


# The opening.


def test_the_greeting_and_the_extensions() -> None:
    session = ScriptedSession()
    assert session.feed(b"") == GREETING
    assert session.feed(b"EHLO c\r\n") == (
        b"250-mx.example.org\r\n250-PIPELINING\r\n250-SIZE 10000\r\n250-STARTTLS\r\n250-ENHANCEDSTATUSCODES\r\n"
        b"250-8BITMIME\r\n250-SMTPUTF8\r\n250 CHUNKING\r\n"
    )
    session.feed(b"STARTTLS\r\n")
    assert session.feed(b"EHLO c\r\n") == (
        b"250-mx.example.org\r\n250-PIPELINING\r\n250-SIZE 10000\r\n250-AUTH SCRAM-SHA-256 PLAIN LOGIN\r\n"
        b"250-ENHANCEDSTATUSCODES\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250 CHUNKING\r\n"
    )
    assert session.feed(b"HELO c\r\n") == b"250 mx.example.org\r\n"


def test_what_is_not_offered_is_not_taken() -> None:
    plain = ServerSettings(b"mx", smtputf8=False, chunking=False)
    session = ScriptedSession(plain, greet=False)
    session._take(session.server.greet())
    assert session.feed(b"EHLO c\r\n").endswith(
        b"250-PIPELINING\r\n250-SIZE\r\n250-ENHANCEDSTATUSCODES\r\n250 8BITMIME\r\n"
    )
    assert session.feed(b"STARTTLS\r\n").startswith(b"502 5.5.1 ")
    assert session.feed(b"AUTH PLAIN\r\n").startswith(b"502 5.5.1 ")
    assert session.feed(b"MAIL FROM:<a@b> SMTPUTF8\r\n").startswith(b"555 5.5.4 ")
    # Its bytes are not taken for commands all the same.
    assert session.feed(b"BDAT 6\r\nNOOP\r\n").count(b"\r\n") == 1


def test_a_client_that_speaks_before_the_greeting_is_noticed() -> None:
    server = SmtpServer(SETTINGS)
    assert server.feed(b"EHLO c\r\n") == []
    assert server.early
    events = server.greet(ServerReply(554, b"5.5.1", b"You spoke first"))
    assert events == [SessionClosed("turned away")]
    assert server.data_to_send() == b"554 5.5.1 You spoke first\r\n"


def test_a_session_with_tls_from_the_first_byte_greets_after_the_handshake() -> None:
    server = SmtpServer(FREE)
    assert server.feed(b"EHLO c\r\n") == []
    states = [server.state]
    server.secured()
    assert [*states, server.state] == [ServerState.TLS, ServerState.GREETING]
    assert not server.early
    assert server.secure


def test_nothing_of_what_came_in_clear_behind_starttls_counts() -> None:
    session = ScriptedSession()
    session.feed(b"EHLO before.example\r\nSTARTTLS\r\nEHLO injected.example\r\nMAIL FROM:<x@example.net>\r\n")
    assert session.server.hello == b""
    assert session.feed(b"MAIL FROM:<a@example.net>\r\n").startswith(b"503 5.5.1 EHLO")
    assert not [event for event in session.events if isinstance(event, SenderGiven)]


# Messages.


def test_a_message_comes_with_lf_line_ends_and_without_the_doubled_dots() -> None:
    session = ScriptedSession()
    session.feed(ENVELOPE + b"DATA\r\nSubject: x\r\n\r\n..\r\n...a\r\n.b\r\n.\r\n")
    assert session.messages == [Taken(b"a@example.net", JOE, b"Subject: x\n\n.\n..a\nb\n")]
    assert MessageEnded(25) in session.events


def test_a_message_of_chunks_is_taken_as_it_is() -> None:
    session = ScriptedSession()
    session.feed(ENVELOPE + b"BDAT 8\r\n..\r\n.\r\n\rBDAT 2 LAST\r\n\nxRSET\r\n")
    assert session.messages == [Taken(b"a@example.net", JOE, b"..\n.\n\nx")]


def test_one_session_takes_several_messages() -> None:
    session = ScriptedSession()
    transaction = ENVELOPE[8:] + b"DATA\r\nx\r\n.\r\n"
    session.feed(b"EHLO c\r\n" + transaction * 3)
    assert session.messages == [Taken(b"a@example.net", JOE, b"x\n")] * 3


def test_addresses_come_unquoted_and_without_their_route() -> None:
    session = ScriptedSession()
    session.feed(b'EHLO c\r\nMAIL FROM:<"a b"@example.net>\r\nRCPT TO:<@x.example,@y.example:"jo\\e"@example.org>\r\n')
    session.feed(b"DATA\r\n.\r\n")
    assert session.messages == [Taken(b"a b@example.net", JOE, b"")]


@pytest.mark.parametrize(
    ("limits", "content", "status"),
    [
        (LIMITS, b"x" * 9998 + b"\r\n", b"250 2.6.0"),
        (LIMITS, b"x" * 9999 + b"\r\n", b"552 5.3.4"),
        (LIMITS, b"." + b"x" * 9998 + b"\r\n", b"250 2.6.0"),
        (MessageLimits(hops=2), b"Received: a\r\nDelivered-To: b\r\n\r\nReceived: c\r\n", b"250 2.6.0"),
        (MessageLimits(hops=2), b"Received: a\r\nrECEIVED: b\r\nDelivered-To: c\r\n\r\n", b"554 5.4.6"),
        (MessageLimits(hops=2), b"X: Received: a\r\n Received: a\r\nReceived: b\r\nReceived: c\r\n", b"250 2.6.0"),
        (MessageLimits(hops=0), b"\r\nReceived: a\r\n", b"250 2.6.0"),
        (MessageLimits(header=20), b"Subject: 90123456\r\n\r\n" + b"x" * 100 + b"\r\n", b"250 2.6.0"),
        (MessageLimits(header=20), b"Subject: 90123456789\r\n\r\nx\r\n", b"552 5.3.4"),
        (MessageLimits(fields=2), b"A: b\r\n c\r\n\td\r\nB:\r\n\r\nC:\r\nD:\r\n", b"250 2.6.0"),
        (MessageLimits(fields=2), b"A: b\r\n c\r\nB:\r\nC:\r\n\r\n", b"552 5.3.4"),
        (MessageLimits(text_line=10), b"0123456789\r\nx\r\n0123456789\r\n", b"250 2.6.0"),
        (MessageLimits(text_line=10), b"x\r\n01234567890\r\nx\r\n", b"554 5.6.0"),
        (MessageLimits(bare_line_ends=True), b"a\nb\rc\r\n", b"250 2.6.0"),
    ],
)
def test_a_message_over_a_limit_is_refused_at_its_end(limits: MessageLimits, content: bytes, status: bytes) -> None:
    for pieces in ([], list(range(500))):
        session, said = run(ENVELOPE + b"DATA\r\n" + content + b".\r\nNOOP\r\n", pieces, FREE._replace(message=limits))
        answers = said.split(b"\r\n")
        assert answers[-3].startswith(status)
        assert answers[-2].startswith(b"250 2.0.0")
        assert len(session.messages) == status.startswith(b"250")
        assert drops(session) == (not session.messages)


def test_a_client_that_sends_far_too_much_is_cut_off() -> None:
    session = ScriptedSession(FREE)
    session.feed(ENVELOPE + b"DATA\r\n")
    for _ in range(200):
        session.feed(b"x" * 8000)
    assert session.server.state is ServerState.CLOSED
    assert session.events[-1] == SessionClosed("message far over the limit on its size")
    assert drops(session) == 1


# Ends.


def test_too_many_errors_end_the_session() -> None:
    session = ScriptedSession()
    said = session.feed(b"EHLO c\r\n" + b"FOO\r\n" * 30)
    assert said.count(b"500 5.5.2") == 20
    assert said.endswith(b"421 4.7.0 Too many errors; closing connection\r\n")
    assert session.events[-1] == SessionClosed("too many errors")
    assert session.feed(b"NOOP\r\n") == b""


def test_a_message_that_is_taken_ends_the_count_of_errors() -> None:
    session = ScriptedSession()
    session.feed(b"EHLO c\r\n")
    for _ in range(5):
        session.feed(b"FOO\r\n" * 15 + ENVELOPE[8:] + b"DATA\r\n.\r\n")
    assert len(session.messages) == 5


def test_commands_that_lead_to_no_mail_become_errors() -> None:
    session = ScriptedSession()
    said = session.feed(b"NOOP\r\n" * 200)
    assert said.count(b"250 2.0.0") == 119
    assert session.events[-1] == SessionClosed("too many errors")


SENDER = b"EHLO c\r\nMAIL FROM:<a@example.net>\r\n"


@pytest.mark.parametrize(
    ("begin", "repeated", "count"),
    [
        (SENDER, b"RCPT TO:<full@example.org>\r\n", 20),
        (b"EHLO c\r\n", SENDER[8:] + b"RCPT TO:<closed@example.org>\r\nDATA\r\n", 20),
        (b"EHLO c\r\n", SENDER[8:] + b"RCPT TO:<closed@example.org>\r\nBDAT 0\r\n", 20),
        (b"EHLO c\r\n", SENDER[8:] + b"RCPT TO:<later@example.org>\r\nBDAT 0 LAST\r\n", 20),
        # As many recipients as a message may have, 5, are refused for now behind one that is accepted.
        (ENVELOPE, b"RCPT TO:<full@example.org>\r\n", 25),
        (SENDER, b"RCPT TO:<joe@example.org>\r\n", 30),
        (ENVELOPE, b"BDAT 0\r\n", 119),
        (ENVELOPE, b"BDAT 1\r\nx", 119),
        (ENVELOPE, b"BDAT 1000\r\n" + b"x" * 1000, 0),
    ],
)
def test_refusals_for_now_and_what_leads_to_no_mail_end_the_session(begin: bytes, repeated: bytes, count: int) -> None:
    session = ScriptedSession(SETTINGS._replace(message=MessageLimits()))
    session.feed(begin)
    taken = 0
    while session.server.state is not ServerState.CLOSED and taken < 200:
        session.feed(repeated)
        taken += 1
    assert taken == (count or 200)
    assert not count or session.events[-1] == SessionClosed("too many errors")


WHOLE = [each for each in COMMANDS if each.endswith(b"\r\n") and each not in (b"DATA\r\n", b"BDAT 70000000\r\n")]
# Transactions without EHLO, which is counted.
WHOLE += [b"BDAT 0\r\n", ENVELOPE[8:], CLOSED[8:] + b"DATA\r\n", CLOSED[8:] + b"BDAT 0\r\n"] * 4


@given(st.lists(st.sampled_from(WHOLE), min_size=1, max_size=4), st.booleans())
def test_whatever_a_client_repeats_without_a_message_its_session_ends(commands: list[bytes], secure: bool) -> None:
    session = ScriptedSession(SETTINGS._replace(implicit_tls=secure))
    session.feed(b"EHLO c\r\n")
    for _ in range(150):
        session.feed(b"".join(commands))
    assert session.server.state is ServerState.CLOSED or session.messages


def test_a_message_with_more_recipients_than_it_may_have_is_taken_for_some_of_them() -> None:
    session = ScriptedSession()
    for _ in range(10):
        session.feed(b"EHLO c\r\n" + SENDER[8:] + b"RCPT TO:<joe@example.org>\r\n" * 10 + b"DATA\r\n.\r\n")
    assert len(session.messages) == 10


def test_the_caller_can_end_a_session_at_any_time() -> None:
    session = ScriptedSession()
    session.feed(ENVELOPE + b"DATA\r\nx")
    assert session.server.close(TIMED_OUT, "timeout") == [TransactionDropped(), SessionClosed("timeout")]
    assert session.server.data_to_send() == b"421 4.4.2 Timeout exceeded\r\n"
    assert session.server.close(SHUTTING_DOWN, "stop") == []


def test_a_transaction_goes_on_while_a_chunk_that_is_out_of_turn_is_skipped() -> None:
    session = ScriptedSession()
    session.feed(b"EHLO c\r\nMAIL FROM:<a@example.net>\r\nBDAT 4\r\nx")
    assert session.server.in_transaction
    assert session.server.lost() == [TransactionDropped(), SessionClosed("connection lost")]


def test_what_came_behind_a_question_can_be_forgotten() -> None:
    server = SmtpServer(SETTINGS)
    server.greet()
    server.feed(b"EHLO c\r\nNOOP\r\nMAIL")
    server.forget_input()
    server.data_to_send()
    assert server.answer() == []
    assert server.data_to_send().count(b"\r\n250 ") == 1


def test_an_answer_421_ends_the_session() -> None:
    server = SmtpServer(SETTINGS)
    server.greet()
    server.feed(b"EHLO c\r\nMAIL FROM:<a@b>\r\n")
    server.answer()
    server.data_to_send()
    assert server.answer(SHUTTING_DOWN) == [SessionClosed("refused")]
    assert server.data_to_send() == b"421 4.3.2 Service is shutting down\r\n"


# AUTH.


def scram(user: bytes, password: bytes, before: bytes = b"") -> ScriptedSession:
    import scramp

    session = ScriptedSession(FREE)
    session.feed(b"EHLO c\r\n")
    client = scramp.ScramClient(["SCRAM-SHA-256"], user.decode(), password.decode())
    first = binascii.b2a_base64(client.get_client_first().encode(), newline=False)
    said = session.feed(b"AUTH SCRAM-SHA-256 " + first + b"\r\n")
    assert said.startswith(b"334 ")
    client.set_server_first(binascii.a2b_base64(said[4:]).decode())
    said = session.feed(binascii.b2a_base64(client.get_client_final().encode()).replace(b"\n", b"\r\n"))
    if said.startswith(b"334 "):
        client.set_server_final(binascii.a2b_base64(said[4:]).decode())
        assert session.feed(b"\r\n").startswith(b"235 2.7.0 ")
    return session


def test_scram_lets_in_a_user_who_knows_the_password() -> None:
    session = scram(b"joe", PASSWORD)
    assert session.server.user == b"joe"
    assert session.events[-1] == UserAuthenticated(b"joe", b"SCRAM-SHA-256")


@pytest.mark.parametrize("user", [b"joe", b"nobody"])
def test_scram_refuses_a_wrong_password_and_an_unknown_user_alike(user: bytes) -> None:
    session = scram(user, b"wrong")
    assert session.server.user == b""
    assert session.events[-1] == UserRefused(user, b"SCRAM-SHA-256")


def test_an_unknown_user_has_the_same_salt_each_time() -> None:
    def salt() -> bytes:
        session = ScriptedSession(FREE)
        session.feed(b"EHLO c\r\n")
        said = session.feed(b"AUTH SCRAM-SHA-256 " + binascii.b2a_base64(b"n,,n=who,r=abc", newline=False) + b"\r\n")
        return binascii.a2b_base64(said[4:]).partition(b",s=")[2]

    assert salt() == salt()


@given(st.sampled_from(MECHANISMS), st.lists(st.binary(max_size=60), max_size=4))
def test_no_response_crashes_a_mechanism(mechanism: bytes, responses: list[bytes]) -> None:
    session = ScriptedSession(FREE)
    session.feed(b"EHLO c\r\nAUTH " + mechanism + b"\r\n")
    for response in responses:
        session.feed(binascii.b2a_base64(response, newline=False) + b"\r\n")


def test_no_password_is_shown() -> None:
    session = ScriptedSession(FREE)
    session.feed(b"EHLO c\r\nAUTH PLAIN AHNlY3JldABzZWNyZXQ=x\r\nc2VjcmV0\r\nAUTH PLAIN AHNlY3JldABzZWNyZXQ=\r\n")
    assert [event.shown for event in session.events if isinstance(event, BadCommand)] == [b"AUTH", b"?"]
    assert "AHNl" not in repr(session.events)
    assert "b'secret', b'secret'" not in repr(session.events)


# XCLIENT.


def test_a_listed_host_says_who_its_client_is() -> None:
    session = ScriptedSession(SETTINGS._replace(xclient=True))
    session.feed(b"EHLO proxy.example\r\n")
    said = session.feed(b"XCLIENT ADDR=IPV6:2001:db8::1 NAME=[UNAVAILABLE] LOGIN=jo+65 PORT=99\r\n")
    assert said == GREETING
    changed = [event for event in session.events if isinstance(event, ClientChanged)]
    assert changed == [ClientChanged({b"ADDR": b"2001:db8::1", b"NAME": b"", b"LOGIN": b"joe", b"PORT": b"99"})]
    assert session.server.user == b"joe"
    assert session.feed(b"MAIL FROM:<>\r\n").startswith(b"503 ")


# Replies.


@given(st.binary(max_size=2000))
def test_no_text_can_end_a_reply_or_begin_another_one(text: bytes) -> None:
    packed = pack_reply(ServerReply(550, b"5.7.1", text))
    lines = packed.split(b"\r\n")
    assert lines.pop() == b""
    assert all(line.startswith(b"550-5.7.1 ") for line in lines[:-1])
    assert lines[-1].startswith(b"550 5.7.1 ")
    assert all(len(line) <= 510 and all(32 <= byte < 127 for byte in line) for line in lines)
