"""The opening of an SMTP connection: greeting, EHLO or HELO (RFC 5321), STARTTLS (RFC 3207), AUTH (RFC 4954).

It ends READY, or CLOSED with a temporary `failure`: a host that does not want to talk to us may want to later, or
another one may, and a wrong password or policy is a person's mistake, which bounces no mail.
"""

import binascii

from queue_smtp import text
from queue_smtp.auth import Mechanism, choose
from queue_smtp.dialogue import CLOSED_BY_PEER, Dialogue
from queue_smtp.reply import Reply, ReplyReader
from queue_smtp.session import Phase, Session, Tls
from queue_wire.format_error import FormatError
from queue_wire.report import TEMPORARY

# No mechanism has more than three; a server that never has enough is left.
CHALLENGES_MOST = 10
# How a connection ends that the peer has closed: what we said after that makes it a reset.
_ENDS = (CLOSED_BY_PEER, "connection reset by peer", "broken pipe")


class Opening(Dialogue):
    """`extensions` maps each EHLO keyword, in upper case, to its parameters; none of them was said before TLS.

    `secure` once under TLS. `tls_broken`: the connection ended because of TLS, or after it began and before it was
    READY, by no word of the peer's. `ehlo_broken`: it ended over EHLO, which HELO might not have done. `looped`: it
    ended because the peer is this host.
    """

    __slots__ = (
        *("_challenges", "_greeted", "_mechanism", "_name"),
        *("ehlo_broken", "extensions", "looped", "secure", "tls_broken"),
    )

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.extensions: dict[bytes, bytes] = {}
        self.secure = session.tls is Tls.DONE
        self.tls_broken = False
        self.ehlo_broken = False
        self.looped = False
        self._greeted = b""
        self._name = session.name
        self._mechanism: Mechanism | None = None
        self._challenges = 0
        self._expected.append((b"TLS handshake" if self.secure else b"greeting", self._on_greeting))

    @property
    def authenticating(self) -> bool:
        """What is sent now answers a challenge: it is a secret."""
        return self._mechanism is not None

    def secured(self) -> bytes:
        """The TLS handshake is done and the peer is who it should be; return what to send.

        What was heard before it is forgotten (RFC 3207 section 4.2). Under implicit TLS the greeting comes now.
        """
        if self.failure is not None:
            return b""
        if self.session.tls is Tls.DONE:
            self._expected[0] = (b"greeting", self._on_greeting)
            return b""
        assert self.phase is Phase.STARTTLS
        self.phase = Phase.GREETING
        self.secure = True
        self.extensions = {}
        self._reader = ReplyReader()
        self._ask(b"EHLO", b"EHLO %s\r\n" % self._name, self._on_ehlo)
        return self._sent()

    def handshake_failed(self, reason: str) -> None:
        """The TLS handshake came to nothing."""
        self._end_tls(text.tls_failed(self._peer, reason, self.session.policy))

    def unverified(self, reason: str) -> None:
        """The handshake is done, and the certificate will not do."""
        self._end_tls(text.not_verified(self._peer, reason, self.session.policy))

    def lost(self, reason: str = CLOSED_BY_PEER) -> None:
        opening = self.phase in (Phase.GREETING, Phase.STARTTLS)
        if opening and (self.secure or self.phase is Phase.STARTTLS):
            self.tls_broken = True
        elif opening and reason in _ENDS and self.stage in (b"EHLO", b"HELO"):
            # Servers of old close at a command that they do not know, some without a word.
            self.ehlo_broken = self.session.esmtp
        super().lost(reason)

    def _end_tls(self, reason: bytes) -> None:
        self.tls_broken = True
        self.fail(TEMPORARY, reason)

    def _injected(self) -> None:
        self._end_tls(text.injected(self._peer, self.session.policy))

    def _on_greeting(self, reply: Reply) -> None:
        self._greeted = _host(reply)
        if reply.code != 220:
            self._decline(text.greeting_failed(self._peer, reply))
        elif self.session.esmtp:
            self._ask(b"EHLO", b"EHLO %s\r\n" % self._name, self._on_ehlo)
        else:
            self._ask(b"HELO", b"HELO %s\r\n" % self._name, self._on_helo)

    def _on_ehlo(self, reply: Reply) -> None:
        if reply.accepted:
            for line in reply.text.split(b"\n")[1:]:
                keyword, _, parameters = line[4:].strip().partition(b" ")
                # `AUTH=` is what servers said before RFC 2554; some still say both.
                keyword, equals, first = keyword.upper().partition(b"=")
                self.extensions[keyword] = b"%s %s" % (first, parameters) if equals else parameters
            self._meet(reply)
        elif reply.permanent and not self.secure:
            # RFC 5321 section 3.2: a server that does not know EHLO is asked again with HELO.
            self._ask(b"HELO", b"HELO %s\r\n" % self._name, self._on_helo)
        else:
            self._decline(text.name_rejected(self._peer, reply))

    def _on_helo(self, reply: Reply) -> None:
        if reply.accepted:
            self._meet(reply)
        else:
            self._decline(text.name_rejected(self._peer, reply))

    def _meet(self, reply: Reply) -> None:
        """Go on with a peer that has said its name, unless that is ours: mail for it would come back to us.

        A server that greets with another name has only repeated what it was told.
        """
        ours = self.session.ours
        if _host(reply) in ours and (self._greeted in ours or b"." not in self._greeted):
            self.looped = True
            self._decline(text.own_name(self._peer, reply))
        else:
            self._start_tls()

    def _start_tls(self) -> None:
        tls = self.session.tls
        if self.secure or tls is Tls.NEVER:
            self._authenticate()
        elif b"STARTTLS" in self.extensions:
            self._ask(b"STARTTLS", b"STARTTLS\r\n", self._on_starttls)
        elif tls is Tls.MUST:
            self._decline(text.no_starttls(self._peer, self.session.policy))
        else:
            self._authenticate()

    def _on_starttls(self, reply: Reply) -> None:
        if reply.code == 220:
            self.phase = Phase.STARTTLS
            if self._reader.pending:
                self._injected()
        elif reply.code == 421 or self.session.tls is Tls.MUST:
            self._decline(text.starttls_failed(self._peer, reply, self.session.policy))
        else:
            self._authenticate()

    def _authenticate(self) -> None:
        credentials = self.session.credentials
        if credentials is None:
            self.phase = Phase.READY
            return
        mechanism = choose(self.extensions.get(b"AUTH", b""), credentials, self.secure)
        if mechanism is None:
            self._decline(text.no_mechanism(self._peer, self.extensions.get(b"AUTH"), self.secure))
            return
        self._mechanism = mechanism
        initial = mechanism.initial()
        command = b"AUTH " + mechanism.name
        if initial is not None:
            command += b" " + (_base64(initial) or b"=")
        self._ask(b"AUTH", command + b"\r\n", self._on_auth)

    def _on_auth(self, reply: Reply) -> None:
        assert self._mechanism is not None
        try:
            if reply.code != 334:
                mechanism, self._mechanism = self._mechanism, None
                if reply.accepted:
                    mechanism.finish()
                    self.phase = Phase.READY
                else:
                    self._decline(text.auth_failed(self._peer, reply))
                return
            self._challenges += 1
            if self._challenges > CHALLENGES_MOST:
                raise FormatError("more challenges than any mechanism has")
            answer = self._mechanism.answer(binascii.a2b_base64(reply.text.rpartition(b"\n")[2][4:]))
        except (FormatError, binascii.Error) as error:
            self._mechanism = None
            if reply.code == 334:
                # RFC 4954 section 4: this is how a client gives up.
                self._out.append(b"*\r\n")
            self._decline(text.auth_broken(self._peer, str(error)))
            return
        self._ask(b"AUTH", _base64(answer) + b"\r\n", self._on_auth)


def _host(reply: Reply) -> bytes:
    """Return the first word of a greeting or an answer to EHLO, where a server names itself, in lower case."""
    return reply.text.partition(b"\n")[0][4:].strip().partition(b" ")[0].lower().removesuffix(b".")


def _base64(data: bytes) -> bytes:
    return binascii.b2a_base64(data, newline=False)
