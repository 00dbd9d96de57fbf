"""What to do about TLS with one target, and what is made of the certificates that it shows."""

import ssl
import time
from collections.abc import Callable
from typing import NamedTuple

from queue_base.errors import complain
from queue_smtp.client import Tls

PROGRAM = "queue-remote"
# A complaint that repeats itself is made once in this time.
REPEAT_SECONDS = 3600.0
_COMPLAINTS_MOST = 1000


class Complaints:
    """Lines on stderr about what is only tested, each once an hour."""

    def __init__(self, put: Callable[[str], None] | None = None) -> None:
        """`put` gets the lines in place of stderr."""
        self._put = put or (lambda text: complain(PROGRAM, text))
        self._made: dict[str, float] = {}

    def make(self, text: str) -> None:
        now = time.monotonic()
        if now - self._made.pop(text, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return
        while len(self._made) >= _COMPLAINTS_MOST:
            del self._made[next(iter(self._made))]
        self._made[text] = now
        self._put(text)


class Check(NamedTuple):
    """What the certificates must pass: `judge` gets them (DER, the peer's own first) and returns what is wrong.

    Where it is not `enforced`, what is wrong is only logged. `policy` names what wants it, for a person.
    """

    policy: str
    enforced: bool
    judge: Callable[[list[bytes]], str | None]


class TlsPlan:
    """One target's plan. `mode` is NEVER, MAY, MUST or DONE (from the first byte).

    `port`, where it is not None, is in place of the target's. `fallback`: a broken handshake is tried again in clear,
    on a fresh connection. `policy` is what all this is by, for texts. Where `refusal` is not None, nothing is to be
    sent there, for that reason.
    """

    __slots__ = (
        *("_complaints", "_peer", "checks", "context", "fallback", "mode", "policy", "port"),
        *("refusal", "server_name"),
    )

    def __init__(
        self,
        mode: Tls,
        context: ssl.SSLContext | None = None,
        server_name: str | None = None,
        fallback: bool = False,
        policy: str = "may",
    ) -> None:
        self.mode = mode
        self.context = context
        self.server_name = server_name
        self.fallback = fallback
        self.policy = policy
        self.port: int | None = None
        self.refusal: str | None = None
        self.checks: list[Check] = []
        self._complaints: Complaints | None = None
        self._peer = ""

    def require(self, context: ssl.SSLContext, server_name: str | None, policy: str) -> None:
        """Make it TLS or nothing, by a policy."""
        if self.mode is Tls.MAY:
            self.mode = Tls.MUST
        self.context = context
        self.server_name = server_name
        self.fallback = False
        self.policy = policy

    def test(self, complaints: Complaints, peer: str) -> None:
        """Say where to complain of this peer when a check that is not enforced fails."""
        self._complaints = complaints
        self._peer = peer

    def verify(self, ssl_object: ssl.SSLObject) -> str | None:
        """Return why the peer's certificate will not do, None where it does. Called once after the handshake."""
        if not self.checks:
            return None
        # It takes a while to import, and few policies need it.
        from queue_remote.tls.chain import peer_chain

        chain = peer_chain(ssl_object)
        for check in self.checks:
            objection = check.judge(chain)
            if objection is not None and check.enforced:
                return objection
            if objection is not None:
                self.complain(check.policy, objection)
        return None

    @property
    def verifies(self) -> bool:
        """Whether the peer has to show who it is."""
        by_ca = self.context is not None and self.context.verify_mode is not ssl.CERT_NONE
        return by_ca or any(check.enforced for check in self.checks)

    def in_clear(self) -> None:
        """Take note that a session goes on without TLS."""
        for check in self.checks:
            self.complain(check.policy, "the session is not under TLS")

    def complain(self, policy: str, objection: str) -> None:
        """Log what would have kept the mail from this peer if the policy were enforced."""
        if self._complaints is not None:
            self._complaints.make(
                f"warning: unable to verify {self._peer} by {policy}: {objection}; "
                "that is only tested, mail goes there all the same"
            )

    def __str__(self) -> str:
        """Return the plan for a person."""
        if self.refusal is not None:
            return f"no mail goes there: {self.refusal}, by {self.policy}"
        if self.mode is Tls.NEVER:
            return "in clear, by none"
        if self.mode is Tls.MAY:
            text = "where it is offered, with any certificate, else in clear"
        else:
            text = "from the first byte" if self.mode is Tls.DONE else "required"
            if self.port is not None:
                text += f", on port {self.port}"
            if not self.verifies:
                text += ", with any certificate"
            elif not any(check.enforced for check in self.checks):
                text += f", with a certificate for {self.server_name} from a CA that is trusted"
        tests = "".join(f"; tested: {check.policy}" for check in self.checks if not check.enforced)
        return f"{text}, by {self.policy}{tests}"
