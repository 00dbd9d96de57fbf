"""How mail is delivered, by its sender and domain: the lines of the control files that apply, kept for each domain.

Mail with equal options may share a transaction and a connection; they have the same ConnectionKey object then.
"""

from collections import OrderedDict
from typing import NamedTuple

from queue_remote.config import RemoteConfig
from queue_remote.smtpauth import Logins
from queue_wire.control.choices import SourceAddresses
from queue_wire.control.hostmap import find_key
from queue_wire.control.localroutes import find_local_route
from queue_wire.control.registry import LOCALROUTES, OUTGOINGIP, REMOTEPROGRAM
from queue_wire.control.smtproutes import find_nexthop

KEPT_MAX = 10_000


class DeliveryOptions(NamedTuple):
    """How mail for a domain is delivered. Mail with equal options can share a transaction and a connection.

    `name` is that of the relays if `relayed`, else the domain. `tlspolicy` and `login` are the keys of the domain's
    lines, None if it has none: a relay carries the mail of all domains, except those that have lines of their own.
    """

    name: bytes
    relayed: bool
    tlspolicy: bytes | None
    login: bytes | None
    helohost: bytes
    source: SourceAddresses
    program: tuple[bytes, ...]


class ConnectionKey:
    """What mail must have in common to share a connection: options by one reading of the control files.

    Two keys are equal only if they are the same object.
    """

    __slots__ = ("config", "options")

    def __init__(self, options: DeliveryOptions, config: RemoteConfig) -> None:
        self.options = options
        self.config = config


class OptionChoices:
    """The options by one reading of the control files."""

    __slots__ = ("_by_sender", "_config", "_found", "_keys", "_logins")

    def __init__(self, config: RemoteConfig, logins: Logins) -> None:
        self._config = config
        self._logins = logins
        values = config.values
        self._by_sender = bool(config.helohost.senders or values[OUTGOINGIP].senders or values[REMOTEPROGRAM].senders)
        # By domain, and by the sender's domain if a file has a line for one.
        self._found: OrderedDict[bytes | tuple[bytes, bytes], ConnectionKey] = OrderedDict()
        self._keys: OrderedDict[DeliveryOptions, ConnectionKey] = OrderedDict()

    def find(self, sender: bytes, domain: bytes) -> ConnectionKey:
        """Return the key with the options for mail from a sender to a domain, or to a local recipient (with an @)."""
        name = (sender.rpartition(b"@")[2], domain) if self._by_sender and sender else domain
        key = self._found.get(name)
        if key is None:
            key = self._found[name] = self.key(self._choose(sender, domain))
            if len(self._found) > KEPT_MAX:
                self._found.popitem(last=False)
        return key

    def key(self, options: DeliveryOptions) -> ConnectionKey:
        """Return the key with these options."""
        key = self._keys.get(options)
        if key is None:
            key = self._keys[options] = ConnectionKey(options, self._config)
            if len(self._keys) > KEPT_MAX:
                # A connection of the old key is not found again, and expires.
                self._keys.popitem(last=False)
        return key

    def _choose(self, sender: bytes, domain: bytes) -> DeliveryOptions:
        config = self._config
        if b"@" in domain:
            servers = find_local_route(config.values[LOCALROUTES], domain)
            domain = domain.rpartition(b"@")[2]
            helohost, source = config.helohost.choose(sender, domain), config.values[OUTGOINGIP].choose(sender, domain)
            return DeliveryOptions(b"" if servers is None else servers.name, True, None, None, helohost, source, ())
        name, relayed = find_nexthop(config.routes, domain)
        tlspolicy = login = None
        if relayed:
            # Without a relay the name is the domain, which determines both.
            tlspolicy = find_key(config.tlspolicy, domain) if config.tlspolicy else None
            login = self._logins.key(domain)
        helohost = config.helohost.choose(sender, domain)
        source = config.values[OUTGOINGIP].choose(sender, domain)
        program = config.values[REMOTEPROGRAM].choose(sender, domain)
        return DeliveryOptions(name, relayed, tlspolicy, login, helohost, source, program)
