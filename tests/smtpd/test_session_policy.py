"""What a session is answered, and the lines of control/smtpd."""

import pytest

from queue_smtp import server_replies as replies
from queue_smtp.command import SenderParameters
from queue_smtp.server_events import HelloGiven, MessageBegun, RecipientGiven, SenderGiven, TlsWanted
from queue_smtpd.sessions.client_facts import ClientFacts, TlsFacts
from queue_smtpd.sessions.relay_rules import MailboxFound, MailboxWanted, RelayRules
from queue_smtpd.sessions.session_policy import SessionPolicy
from queue_smtpd.strangers.client_limits import ClientLimits
from queue_wire.control.listeners import Listener, Role, unpack_listeners
from queue_wire.control.networks import unpack_networks
from queue_wire.control.rewrite import Rules
from queue_wire.control.strangers.smtpdlimits import ClientLimit, SmtpdLimits
from queue_wire.format_error import LineError
from support.smtpd.sessions import NO_LIMIT, UNLIMITED

RULES = RelayRules(
    b"mx.example.org",
    Rules(b"mx.example.org", frozenset((b"example.org",)), frozenset(), {}),
    badmailfrom=frozenset((b"bad@example.net",)),
    relayclients=unpack_networks(b"192.0.2.5"),
)
STRANGER = ClientFacts("198.51.100.7")
FRIEND = ClientFacts("192.0.2.5")
TLS = TlsFacts(b"TLSv1.3", b"X")
SENDER = SenderGiven(b"a@example.net", SenderParameters())
BAD_SENDER = SenderGiven(b"bad@example.net", SenderParameters())
JOE = RecipientGiven(b"joe@example.org")
ELSEWHERE = RecipientGiven(b"x@elsewhere.example")
ONE = ClientLimit(1, 0)


def policy(role: Role = Role.MX, rates: SmtpdLimits = UNLIMITED) -> SessionPolicy:
    return SessionPolicy(role, RULES, ClientLimits(rates))


def test_a_stranger_may_send_to_this_host_and_nowhere_else() -> None:
    rules = policy()
    assert rules.greet(STRANGER, 0) is None
    assert rules.decide(HelloGiven(b"c", True), STRANGER, 0) is None
    assert rules.decide(TlsWanted(), STRANGER, 0) is None
    assert rules.decide(SENDER, STRANGER, 0) is None
    assert rules.decide(BAD_SENDER, STRANGER, 0) == replies.SENDER_REFUSED
    assert rules.decide(JOE, STRANGER, 0) == MailboxWanted(b"joe@example.org", None, b"joe@example.org")
    assert rules.decide(ELSEWHERE, STRANGER, 0) == replies.RELAYING_DENIED
    assert rules.decide(MessageBegun(), STRANGER, 0) is None


@pytest.mark.parametrize("role", [Role.SUBMISSION, Role.SUBMISSIONS])
def test_a_user_must_authenticate_to_submit(role: Role) -> None:
    rules = policy(role)
    assert rules.decide(SENDER, STRANGER, 0) == replies.TLS_REQUIRED
    assert rules.decide(SENDER, STRANGER._replace(tls=TLS), 0) == replies.AUTH_REQUIRED
    assert rules.decide(SENDER, STRANGER._replace(tls=TLS, user=b"joe"), 0) is None
    assert rules.decide(SENDER, FRIEND, 0) is None


def test_a_network_that_is_exempt_has_no_limits() -> None:
    rules = policy(rates=SmtpdLimits(messages=ONE, exempt=unpack_networks(b"198.51.100.0/24")))
    assert [rules.decide(MessageBegun(), STRANGER, 0) for _ in range(2)] == [None, None]
    assert rules.trusts(STRANGER)
    # It may not relay.
    assert rules.decide(ELSEWHERE, STRANGER, 0) == replies.RELAYING_DENIED


def test_strangers_wait_for_the_greeting_of_role_mx() -> None:
    rates = UNLIMITED._replace(pause=3)
    assert policy(rates=rates).pause(STRANGER) == 3
    assert policy(rates=rates).pause(FRIEND) == 0
    assert policy(Role.SUBMISSION, rates).pause(STRANGER) == 0
    assert policy(rates=rates._replace(exempt=unpack_networks(STRANGER.address.encode()))).pause(STRANGER) == 0


def test_a_stranger_is_limited_and_a_friend_is_not() -> None:
    rules = policy(rates=SmtpdLimits(ONE, ONE, ONE, NO_LIMIT))
    for expected in (
        (None, None, MailboxWanted(b"joe@example.org", None, b"joe@example.org")),
        (replies.TOO_MANY_CONNECTIONS, replies.TOO_MANY_MESSAGES, replies.TOO_FAST_RECIPIENTS),
    ):
        got = rules.greet(STRANGER, 0), rules.decide(MessageBegun(), STRANGER, 0), rules.decide(JOE, STRANGER, 0)
        assert got == expected
    for _ in range(5):
        assert rules.greet(FRIEND, 0) is None
        assert rules.decide(MessageBegun(), FRIEND, 0) is None
        assert rules.decide(ELSEWHERE, FRIEND, 0) == MailboxWanted(
            b"x@elsewhere.example", MailboxFound.EXISTS, b"x@elsewhere.example"
        )


def test_too_many_refusals_end_the_session() -> None:
    rules = policy(rates=UNLIMITED._replace(errors=ClientLimit(3, 0)))
    assert rules.decide(BAD_SENDER, STRANGER, 0) == replies.SENDER_REFUSED
    assert rules.decide(ELSEWHERE, STRANGER, 0) == replies.RELAYING_DENIED
    assert rules.decide_mailbox(MailboxFound.UNDECIDED, STRANGER, 0) == replies.RECIPIENT_UNDECIDED
    assert rules.decide_mailbox(MailboxFound.EXISTS, STRANGER, 0) is None
    assert rules.decide_mailbox(MailboxFound.UNKNOWN, STRANGER, 0) == replies.UNKNOWN_RECIPIENT
    assert rules.decide_mailbox(MailboxFound.UNKNOWN, STRANGER, 0) == replies.TOO_MANY_ERRORS
    assert rules.count_refused_user(STRANGER, 0) == replies.TOO_MANY_ERRORS
    assert rules.decide_mailbox(MailboxFound.UNKNOWN, FRIEND, 0) == replies.UNKNOWN_RECIPIENT


def test_the_lines_of_the_listeners() -> None:
    assert unpack_listeners(
        b"# x\n*:25 mx\n[2001:db8::1]:587 submission noauth\n192.0.2.1:465 submissions authname bare proxy\n"
        b"*:209 qmtp\n"
        b"*:366 odmr proxy\n*:1366 odmrs\n"
    ) == [
        Listener("*", 25, Role.MX),
        Listener("2001:db8::1", 587, Role.SUBMISSION, noauth=True),
        Listener("192.0.2.1", 465, Role.SUBMISSIONS, bare=True, proxy=True, authname=True),
        Listener("*", 209, Role.QMTP),
        Listener("*", 366, Role.ODMR, proxy=True),
        Listener("*", 1366, Role.ODMRS),
    ]


@pytest.mark.parametrize(
    "line",
    [
        *(b"*:25", b"25 mx", b"*:0 mx", b"*:65536 mx", b"*:25 smtp", b"*:25 mx fast", b"*:25 mx early", b"\x0b"),
        *(b"192.0.2.256:25 mx", b"[192.0.2.1:25 mx", b"2001:db8::1:25 mx", b"mx *:25", b"\xff:25 mx", b"*:24 mx"),
        *(b"*:366 odmr noauth", b"*:366 odmr bare", b"*:366 odmr authname", b"*:366 odmrs priority=bulk"),
    ],
)
def test_a_line_that_is_no_listener_is_named(line: bytes) -> None:
    with pytest.raises(LineError, match="line 2"):
        unpack_listeners(b"*:24 mx\n" + line + b"\n")
