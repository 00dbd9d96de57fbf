"""What to do about TLS with one target, and the contexts that it is done with.

Contexts are shared by all connections that want the same, as each takes about half a megabyte.
"""

import ssl

from queue_remote.order import Target
from queue_remote.route import Route, Router
from queue_remote.settings import Settings
from queue_wire.smtp_session import Tls


class TlsPlan:
    """One target's plan. `mode` is NEVER, MAY, MUST or DONE (from the first byte).

    `port`, where it is not None, is in place of the target's. `fallback`: a broken handshake is tried again in clear,
    on a fresh connection. `policy` is for texts.
    """

    __slots__ = ("context", "fallback", "mode", "policy", "port", "server_name")

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

    def verify(self, ssl_object: ssl.SSLObject) -> str | None:
        """Return why the peer's certificate will not do, None where it does. Called once after the handshake."""
        return None


class TlsPolicies:
    """Plans by one reading of the control files."""

    def __init__(self, settings: Settings, router: Router) -> None:
        self._settings = settings
        self._router = router
        self._unverified: ssl.SSLContext | None = None

    async def plan(self, nexthop: bytes, route: Route, target: Target) -> TlsPlan:
        """Return the plan for a target. Raises Unroutable where no mail may go there now."""
        name = target.host.decode("ascii", "replace") or None
        return TlsPlan(Tls.MAY, self._any_certificate(), name, fallback=True)

    def _any_certificate(self) -> ssl.SSLContext:
        """Return the context of opportunistic TLS: any certificate is better than none (RFC 7435)."""
        if self._unverified is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self._unverified = context
        return self._unverified
