"""A session by the server's rules, whose queue is a list; and what a home of the tests has in control/."""

from queue_smtp.incoming import MessageLimits
from queue_smtp.server_replies import ServerReply
from queue_smtp.server_session import ServerSettings
from queue_smtpd.sessions.client_facts import ClientFacts
from queue_smtpd.sessions.relay_rules import MailboxFound, MailboxWanted, RelayRules
from queue_smtpd.sessions.session import (
    Action,
    ClientReplaced,
    MessageDropped,
    MessageFinished,
    MessageStarted,
    MessageText,
    SessionSetup,
    SmtpSession,
    StrangerWanted,
)
from queue_smtpd.sessions.session_policy import SessionPolicy
from queue_smtpd.strangers.client_limits import ClientLimits
from queue_wire.control.listeners import Role
from queue_wire.control.milters import FilterSetup
from queue_wire.control.networks import unpack_networks
from queue_wire.control.rewrite import Rules
from queue_wire.control.strangers.smtpdlimits import ClientLimit, SmtpdLimits
from queue_wire.pipes.qmtp import ACCEPTED, Answer

ME = b"mx.example.org"
STRANGER = ClientFacts("198.51.100.7", "192.0.2.1")
RULES = RelayRules(
    ME,
    Rules(ME, frozenset((b"example.org", b"hack.example.org")), frozenset((b"hack.example.org",)), {}),
    badmailfrom=frozenset((b"bad@example.net",)),
    relayclients=unpack_networks(b"192.0.2.5"),
)
K = Answer(ACCEPTED, b"ok 1700000000 qp 77 457-tk3x2a")
DATE = 1700000000
NO_LIMITS = MessageLimits()
NO_LIMIT = ClientLimit(0, 0)
UNLIMITED = SmtpdLimits(NO_LIMIT, NO_LIMIT, NO_LIMIT, NO_LIMIT, NO_LIMIT)
NO_FILTERS = FilterSetup()


def make_session(
    client: ClientFacts = STRANGER,
    rules: RelayRules = RULES,
    role: Role = Role.MX,
    limits: MessageLimits = NO_LIMITS,
    suffix: bytes = b"",
    tls: bool = False,
    client_limits: ClientLimits | None = None,
    dnslists: bool = False,
    greylist: bool = False,
    filters: FilterSetup = NO_FILTERS,
    xclients: bytes = b"",
    recipients: int = 1000,
) -> SmtpSession:
    """Return a session that is not started."""
    policy = SessionPolicy(role, rules, client_limits or ClientLimits(UNLIMITED))
    settings = ServerSettings(ME, limits, recipients=recipients, tls=tls)
    setup = SessionSetup(
        *(ME, settings, policy, suffix, filters, dnslists, greylist),
        xclients=unpack_networks(xclients),
        authserv=frozenset((ME,)),
        qmtp=role is Role.QMTP,
    )
    return SmtpSession(12, client, setup, 0.0)


_QUESTIONS = (MailboxWanted, StrangerWanted, ClientReplaced, MessageStarted, MessageFinished)


class DrivenSession:
    """A session. `messages` are those that it has handed over: text, sender, recipients. `dropped` counts the others.

    `answer` is what queue-intake says to each, `found` what each lookup of a mailbox finds, `refusal` what the checks
    of strangers say, which `checks` have asked for. `clients` are those of XCLIENT. `pauses` counts its turns.
    """

    def __init__(
        self,
        client: ClientFacts = STRANGER,
        *,
        rules: RelayRules = RULES,
        role: Role = Role.MX,
        limits: MessageLimits = NO_LIMITS,
        suffix: bytes = b"",
        answer: Answer | None = K,
        found: MailboxFound = MailboxFound.EXISTS,
        dnslists: bool = False,
        greylist: bool = False,
        refusal: ServerReply | None = None,
        client_limits: ClientLimits | None = None,
        xclients: bytes = b"",
        recipients: int = 1000,
    ) -> None:
        self.session = make_session(
            *(client, rules, role, limits, suffix, False, client_limits),
            dnslists=dnslists,
            greylist=greylist,
            xclients=xclients,
            recipients=recipients,
        )
        self.checks: list[StrangerWanted] = []
        self.clients: list[ClientReplaced] = []
        self._refusal = refusal
        self.messages: list[tuple[bytes, bytes, list[bytes]]] = []
        self.dropped = self.pauses = 0
        self.lines: list[bytes] = []
        self._answer = answer
        self._found = found
        self._text = b""
        self.greeting = self._go_on(self.session.start(40000, 25, 0.0))

    def feed(self, data: bytes, now: float = 1.0) -> bytes:
        """Send bytes; return the replies."""
        said = self._go_on(self.session.feed(data, now))
        while self.session.paused:
            self.pauses += 1
            said += self._go_on(self.session.feed(b"", now))
        return said

    def lose(self) -> None:
        """End the connection."""
        self._go_on(self.session.lost(2.0))

    def _go_on(self, actions: list[Action]) -> bytes:
        while actions:
            assert not any(isinstance(fact, _QUESTIONS) for fact in actions[:-1])
            following: list[Action] = []
            for action in actions:
                if isinstance(action, MessageText):
                    self._text += action.data
                elif isinstance(action, MailboxWanted):
                    following = self.session.answer_mailbox(self._found, 1.0)
                elif isinstance(action, StrangerWanted):
                    self.checks.append(action)
                    following = self.session.answer_stranger(self._refusal, 1.0)
                elif isinstance(action, ClientReplaced):
                    self.clients.append(action)
                    following = self.session.greet_anew(1.0)
                elif isinstance(action, MessageStarted):
                    self._text = b""
                    following = self.session.begin_message(None, DATE, 1.0)
                elif isinstance(action, MessageFinished):
                    self.messages.append((self._text, action.sender, list(action.recipients)))
                    following = self.session.end_message(self._answer, 1.0)
                else:
                    assert isinstance(action, MessageDropped)
                    self.dropped += 1
            actions = following
        self.lines += self.session.log_lines()
        return self.session.data_to_send()
