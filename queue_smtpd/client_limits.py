"""How much a client may do in a minute: its address (/32, /64) and the network around it (/24, /48). The caller has
the time.

A network may do NETWORK_SHARE times as much as an address, so that one host does not lock out its neighbours, and
one that changes its address gains little. Clients that may relay are not limited.
"""

from typing import NamedTuple

from queue_smtp import server_replies as replies
from queue_smtp.server_replies import ServerReply
from queue_smtpd.token_bucket import Rate, TokenBuckets
from queue_wire.control.networks import counted_networks

NETWORK_SHARE = 4
_MINUTE = 60.0


class ClientRates(NamedTuple):
    """What one address may do in a minute; 0: no limit."""

    connections: int = 60
    messages: int = 120
    recipients: int = 600
    errors: int = 60


class _Pair:
    """The buckets of addresses and of networks for one kind of thing."""

    __slots__ = ("_networks", "_own")

    def __init__(self, burst: int) -> None:
        self._own = TokenBuckets(Rate(burst, _MINUTE))
        self._networks = TokenBuckets(Rate(burst * NETWORK_SHARE, _MINUTE))

    def take(self, keys: tuple[str, str], now: float) -> bool:
        return self._own.take(keys[0], now) and self._networks.take(keys[1], now)


class ClientLimits:
    """Counts what clients do. Each method returns the reply that refuses one more, None if it may happen."""

    __slots__ = ("_connections", "_errors", "_messages", "_recipients")

    def __init__(self, rates: ClientRates) -> None:
        self._connections = _Pair(rates.connections)
        self._messages = _Pair(rates.messages)
        self._recipients = _Pair(rates.recipients)
        self._errors = _Pair(rates.errors)

    def connect(self, address: str, now: float) -> ServerReply | None:
        allowed = self._connections.take(counted_networks(address), now)
        return None if allowed else replies.TOO_MANY_CONNECTIONS

    def begin_message(self, address: str, now: float) -> ServerReply | None:
        return None if self._messages.take(counted_networks(address), now) else replies.TOO_MANY_MESSAGES

    def add_recipient(self, address: str, now: float) -> ServerReply | None:
        return None if self._recipients.take(counted_networks(address), now) else replies.TOO_FAST_RECIPIENTS

    def add_error(self, address: str, now: float) -> ServerReply | None:
        """Count a refused command, recipient or password; a reply ends the session."""
        return None if self._errors.take(counted_networks(address), now) else replies.TOO_MANY_ERRORS
