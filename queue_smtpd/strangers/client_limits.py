"""How much a client may do: its address (/32, /64) and the network around it (/24, /48). The caller has the time.

A network may do more than an address, so that one host does not lock out its neighbours, and one that changes its
address gains little. Whom the limits are for is decided elsewhere; connections are counted of all clients. The counts
are those of all processes that were forked after this was made (control/processessmtpd).
"""

from queue_smtp import server_replies as replies
from queue_smtp.server_replies import ServerReply
from queue_smtpd.strangers.connection_counts import ConnectionCounts
from queue_smtpd.strangers.token_bucket import TokenBuckets
from queue_wire.control.networks import counted_networks, is_listed
from queue_wire.control.strangers.smtpdlimits import ClientLimit, SmtpdLimits


class _Pair:
    """The buckets of addresses and of networks for one kind of thing."""

    __slots__ = ("_networks", "_own")

    def __init__(self) -> None:
        self._own = TokenBuckets(0)
        self._networks = TokenBuckets(0)

    def configure(self, limit: ClientLimit) -> None:
        self._own.burst, self._networks.burst = limit

    def take(self, keys: tuple[str, str], now: float) -> bool:
        return self._own.take(keys[0], now) and self._networks.take(keys[1], now)

    def empty(self, keys: tuple[str, str], now: float) -> bool:
        return self._own.empty(keys[0], now) or self._networks.empty(keys[1], now)


class ClientLimits:
    """Counts what clients do. Most methods return the reply that refuses one more, None if it may happen."""

    __slots__ = ("_connections", "_counts", "_errors", "_limits", "_messages", "_recipients")

    def __init__(self, limits: SmtpdLimits, processes: int = 1) -> None:
        self._counts = ConnectionCounts(processes)
        self._connections, self._messages, self._recipients, self._errors = _Pair(), _Pair(), _Pair(), _Pair()
        self._limits = limits
        self.configure(limits)

    def configure(self, limits: SmtpdLimits) -> None:
        """Use these limits from now on."""
        self._limits = limits
        self._connections.configure(limits.connections)
        self._messages.configure(limits.messages)
        self._recipients.configure(limits.recipients)
        self._errors.configure(limits.errors)

    def exempts(self, address: str) -> bool:
        """Return whether an address is in a network that has no limits."""
        exempt = self._limits.exempt
        return bool(exempt) and is_listed(address, exempt)

    @property
    def pause(self) -> int:
        """Seconds before the greeting."""
        return self._limits.pause

    @property
    def reserve(self) -> int:
        """How many percent of all places are not for strangers."""
        return self._limits.reserve

    def begin(self, process: int) -> None:
        """Be one of the processes, from 0."""
        self._counts.begin(process)

    def hold(self, address: str) -> int:
        """Count a connection until `release`; return how many there are, of all clients."""
        self._counts.add(counted_networks(address))
        return self._counts.total()

    def release(self, address: str) -> None:
        """Note that a connection has ended."""
        self._counts.remove(counted_networks(address))

    def connect(self, address: str, now: float) -> ServerReply | None:
        """Decide on a connection that is held."""
        keys = counted_networks(address)
        own, around = self._limits.concurrency
        if (own and self._counts.count(keys[0]) > own) or (around and self._counts.count(keys[1]) > around):
            return replies.TOO_MANY_AT_ONCE
        if self._errors.empty(keys, now):
            return replies.TOO_MANY_ERRORS
        return None if self._connections.take(keys, now) else replies.TOO_MANY_CONNECTIONS

    def begin_message(self, address: str, now: float) -> ServerReply | None:
        """Decide on a message."""
        return None if self._messages.take(counted_networks(address), now) else replies.TOO_MANY_MESSAGES

    def add_recipient(self, address: str, now: float) -> ServerReply | None:
        """Decide on a recipient."""
        return None if self._recipients.take(counted_networks(address), now) else replies.TOO_FAST_RECIPIENTS

    def add_error(self, address: str, now: float) -> ServerReply | None:
        """Count a refused command, recipient or password; a reply ends the session."""
        return None if self._errors.take(counted_networks(address), now) else replies.TOO_MANY_ERRORS
