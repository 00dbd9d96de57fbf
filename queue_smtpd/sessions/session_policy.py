"""What the server answers to the questions of a session (queue_smtp.server_events): the rules, in the order they apply.

    decision = policy.decide(question, client, now)

A decision is None for yes, a ServerReply, or a MailboxWanted: the caller looks up the recipient and gives the result to
`decide_mailbox`. Questions about passwords and the message itself are not for the rules; the caller answers them.

The order: what the role demands (TLS, AUTH), how much the client may do, who may send. A client that may relay, or is
exempt by control/smtpdlimits, has no limits; any other is a stranger. Refused recipients, senders and passwords count
as errors of the client's address.
"""

from queue_smtp import server_replies as replies
from queue_smtp.server_events import MessageBegun, Question, RecipientGiven, SenderGiven
from queue_smtp.server_replies import ServerReply
from queue_smtpd.sessions.client_facts import ClientFacts
from queue_smtpd.sessions.relay_rules import (
    MailboxFound,
    MailboxWanted,
    RelayRules,
    judge_mailbox,
    judge_recipient,
    judge_sender,
    may_relay,
)
from queue_smtpd.strangers.client_limits import ClientLimits
from queue_wire.control.listeners import Role

Decision = ServerReply | MailboxWanted | None


class SessionPolicy:
    """The rules for the sessions of one listener; `limits` are shared by all listeners of a process."""

    __slots__ = ("_limits", "_role", "_rules")

    def __init__(self, role: Role, rules: RelayRules, limits: ClientLimits) -> None:
        self._role = role
        self._rules = rules
        self._limits = limits

    def greet(self, client: ClientFacts, now: float) -> ServerReply | None:
        """Decide on the connection."""
        return None if self.trusts(client) else self._limits.connect(client.address, now)

    def pause(self, client: ClientFacts) -> int:
        """Return the seconds before the greeting, in which the client may say nothing; 0: no pause."""
        seconds = self._limits.pause if self._role is Role.MX else 0
        return 0 if not seconds or self.trusts(client) else seconds

    def decide(self, question: Question, client: ClientFacts, now: float) -> Decision:
        """Decide on a question. Raises OSError and FormatError of `morercpthosts`; the answer is RULES_UNDECIDED then.

        Questions that no rule is about are answered with yes.
        """
        if isinstance(question, SenderGiven):
            return self._decide_sender(question.address, client, now)
        if isinstance(question, RecipientGiven):
            return self._decide_recipient(question.address, client, now)
        if isinstance(question, MessageBegun) and not self.trusts(client):
            return self._limits.begin_message(client.address, now)
        return None

    def decide_mailbox(self, found: MailboxFound, client: ClientFacts, now: float) -> ServerReply | None:
        """Decide on a recipient by what the lookup has found."""
        return self._count(judge_mailbox(found), client, now)

    def count_refusal(self, reply: ServerReply | None, client: ClientFacts, now: float) -> ServerReply | None:
        """Count what was found elsewhere; return it, or the reply that ends the session."""
        return self._count(reply, client, now)

    def trusts(self, client: ClientFacts) -> bool:
        """Return whether the client is no stranger, and nothing is done to slow it down."""
        return may_relay(client, self._rules) or self._limits.exempts(client.address)

    def relays(self, client: ClientFacts) -> bool:
        """Return whether the client may send to everybody, so what it says of other hosts is believed."""
        return may_relay(client, self._rules)

    def count_refused_user(self, client: ClientFacts, now: float) -> ServerReply | None:
        """Count a wrong password; a reply ends the session."""
        if self._limits.exempts(client.address):
            return None
        return self._limits.add_error(client.address, now)

    def _decide_sender(self, sender: bytes, client: ClientFacts, now: float) -> ServerReply | None:
        if self._role.for_users and not may_relay(client, self._rules):
            return replies.TLS_REQUIRED if client.tls is None else replies.AUTH_REQUIRED
        return self._count(judge_sender(sender, client, self._rules), client, now)

    def _decide_recipient(self, recipient: bytes, client: ClientFacts, now: float) -> Decision:
        if not self.trusts(client):
            over = self._limits.add_recipient(client.address, now)
            if over is not None:
                return over
        verdict = judge_recipient(recipient, client, self._rules)
        return self._count(verdict, client, now) if isinstance(verdict, ServerReply) else verdict

    def _count(self, reply: ServerReply | None, client: ClientFacts, now: float) -> ServerReply | None:
        """Count a refusal as an error of the client's; return it, or the reply that ends the session."""
        if reply is None or reply.code < 500 or self.trusts(client):
            return reply
        return self._limits.add_error(client.address, now) or reply
