"""The TLS plan of one target: whether to use TLS, with which context, and how to verify the server's certificates."""

import ssl
import time
from collections.abc import Callable
from typing import NamedTuple

from queue_base.errors import complain
from queue_smtp.client import Tls

PROGRAM = "queue-remote"
# The same complaint is logged once in this time.
REPEAT_SECONDS = 3600.0
_COMPLAINTS_MAX = 1000


class Complaints:
    """Logs complaints on stderr, the same one once an hour."""

    def __init__(self, put: Callable[[str], None] | None = None) -> None:
        """`put` takes the lines instead of stderr."""
        self._put = put or (lambda text: complain(PROGRAM, text))
        self._made: dict[str, float] = {}

    def make(self, text: str) -> None:
        now = time.monotonic()
        if now - self._made.pop(text, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return
        while len(self._made) >= _COMPLAINTS_MAX:
            del self._made[next(iter(self._made))]
        self._made[text] = now
        self._put(text)


class Check(NamedTuple):
    """A check of the server's certificates: `verify` takes them (DER, its own first) and returns the objection.

    If the check is not `enforced`, the objection is only logged. `policy` names the policy that requires it, in texts.
    """

    policy: str
    enforced: bool
    verify: Callable[[list[bytes]], str | None]


class TlsPlan:
    """One target's plan. `mode` is NEVER, MAY, MUST or IMPLICIT (from the first byte).

    `port`, if not None, replaces the target's. `fallback`: after a failed handshake the delivery is tried once more in
    clear, on a new connection. `policy` names the policy that decided, in texts. If `refusal` is not None, the target
    gets no mail, for that reason.
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
        """Make TLS mandatory, by a policy."""
        if self.mode is Tls.MAY:
            self.mode = Tls.MUST
        self.context = context
        self.server_name = server_name
        self.fallback = False
        self.policy = policy

    def log_to(self, complaints: Complaints, peer: str) -> None:
        """Set where complaints about this peer are logged if a check that is not enforced fails."""
        self._complaints = complaints
        self._peer = peer

    def verify(self, ssl_object: ssl.SSLObject) -> str | None:
        """Return why the server's certificates are rejected, None if they are not. Called once after the handshake."""
        if not self.checks:
            return None
        # It takes a while to import, and few policies need it.
        from queue_remote.tls.certificates import peer_chain

        chain = peer_chain(ssl_object)
        for check in self.checks:
            objection = check.verify(chain)
            if objection is not None and check.enforced:
                return objection
            if objection is not None:
                self.complain(check.policy, objection)
        return None

    @property
    def verifies(self) -> bool:
        """Whether the server's identity is verified."""
        by_ca = self.context is not None and self.context.verify_mode is not ssl.CERT_NONE
        return by_ca or any(check.enforced for check in self.checks)

    def in_clear(self) -> None:
        """Log that the session continues without TLS, for checks that are not enforced."""
        for check in self.checks:
            self.complain(check.policy, "the session is not under TLS")

    def complain(self, policy: str, objection: str) -> None:
        """Log why the server would get no mail if the policy were enforced."""
        if self._complaints is not None:
            self._complaints.make(
                f"warning: unable to verify {self._peer} by {policy}: {objection}; "
                "that is only tested, mail goes there all the same"
            )

    def __str__(self) -> str:
        """Return the plan as `queuectl route` prints it."""
        if self.refusal is not None:
            return f"no mail goes there: {self.refusal}, by {self.policy}"
        if self.mode is Tls.NEVER:
            return "in clear, by none"
        if self.mode is Tls.MAY:
            text = "where it is offered, with any certificate, else in clear"
        else:
            text = "from the first byte" if self.mode is Tls.IMPLICIT else "required"
            if self.port is not None:
                text += f", on port {self.port}"
            if not self.verifies:
                text += ", with any certificate"
            elif not any(check.enforced for check in self.checks):
                text += f", with a certificate for {self.server_name} from a CA that is trusted"
        tests = "".join(f"; tested: {check.policy}" for check in self.checks if not check.enforced)
        return f"{text}, by {self.policy}{tests}"
