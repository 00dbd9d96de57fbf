"""Groups the recipients of a message by nexthop, with smtproutes applied. Pure.

The name of a nexthop is used by limits, rates and the `dest` lines of the log. For remote mail it is the domain in
lower case, or the relays that smtproutes names for it (`host`, `host:port`, several with `,` and `+` as there). A
domain with a line in destinationlimits, destinationrate or ondemand is a nexthop of its own even if a relay takes its
mail. For local mail it is the recipient, or the LMTP servers that localroutes names for it.
"""

from collections import OrderedDict
from collections.abc import Mapping

from queue_send.scheduler.model import Recipient
from queue_wire.address import domain_of, is_verp, split_address, strip_prepend
from queue_wire.control.destinationlimits import LimitLines, Nexthop, choose_nexthop
from queue_wire.control.localroutes import find_local_route, is_route_name
from queue_wire.control.networks import counted_networks
from queue_wire.control.smtproutes import Routes

KEPT_MAX = 5000


def holder_of(nexthop: bytes) -> bytes | None:
    """Return who has the share of places that a nexthop's jobs count for; None if nobody has.

    For a recipient it is the local user, the part of the address before the first `-`, with `@`. For a domain it is the
    zone that somebody can own: its last two labels, or its last three if these two are like `co.uk` or `com.au`, a
    country and at most three letters. A list of public suffixes would be out of date, and an error has little effect:
    unrelated domains have a share together, or one owner has several. An address has a share of its own. A relay with a
    port or a list has none.
    """
    if b"@" in nexthop:
        user = split_address(nexthop)[0].partition(b"-")[0]
        return user.lower() + b"@"
    if b":" in nexthop or b"," in nexthop or b"+" in nexthop or is_route_name(nexthop):
        return None
    labels = nexthop.rsplit(b".", 3)
    is_address = nexthop.startswith(b"[") or labels[-1].isdigit()
    if len(labels) > 2 and not is_address:
        keeps = 3 if len(labels[-1]) == 2 and len(labels[-2]) <= 3 else 2
        return b".".join(labels[-keeps:])
    return nexthop


def submitter_of(sender: bytes, uid: int | None = None, named: bytes = b"") -> bytes:
    """Return who has submitted a message: whom its injector has `named` (queue_wire.submitter), or the local user
    `uid`, or if neither is known who its sender is.

    Of the sender's local part only what is before the first `-` or `+` counts, since the sender of a mailing list may
    be different for each recipient. It begins with a NUL, so it is never equal to the name of a holder.
    """
    if named:
        return b"\0" + named
    if uid is not None:
        return b"\0uid %d" % uid
    local = split_address(sender)[0]
    return b"\0%s<%s" % (local.partition(b"-")[0].partition(b"+")[0], domain_of(sender))


def address_holder(address: bytes) -> bytes:
    """Return who has the share of the jobs at a server's address: that address, or the /64 network of an IPv6 one."""
    return b"at " + counted_networks(address.decode("ascii"))[0].encode("ascii")


class NexthopChoices:
    """Chooses nexthops by one reading of the control files; remembers those of the last KEPT_MAX domains."""

    __slots__ = ("_kept", "_lines", "_local_routes", "_on_demand", "_prepends", "_routes")

    def __init__(
        self,
        routes: Routes,
        lines: LimitLines,
        local_routes: Routes | None = None,
        prepends: Mapping[bytes, bytes] | None = None,
        on_demand: frozenset[bytes] = frozenset(),
    ) -> None:
        """`prepends` is control/virtualdomains; `on_demand` are the domains of control/ondemand."""
        self._on_demand = on_demand
        self._routes = routes
        self._local_routes = local_routes or {}
        self._prepends = prepends or {}
        self._lines = lines
        self._kept: OrderedDict[bytes, Nexthop] = OrderedDict()

    def choose(self, address: bytes) -> Nexthop:
        """Return the nexthop of a remote recipient."""
        domain = domain_of(address)
        found = self._kept.get(domain)
        if found is None:
            if domain in self._on_demand:
                found = Nexthop(domain, False, None)
            else:
                found = choose_nexthop(self._routes, self._lines, domain)
            self._kept[domain] = found
            if len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return found

    def route_local(self, address: bytes) -> bytes | None:
        """Return the name of the LMTP servers for a local recipient; None if queue-local delivers its mail."""
        if not self._local_routes:
            return None
        servers = find_local_route(self._local_routes, strip_prepend(address, self._prepends))
        return None if servers is None else servers.name

    def name(self, kind: str, address: bytes) -> bytes:
        """Return the name of the nexthop of a recipient; `kind` is local or remote."""
        return (self.route_local(address) or address) if kind == "local" else self.choose(address).name


class Grouping:
    """Groups the recipients of a message, some at a time; `kind` is local or remote.

    A VERP sender differs for each recipient, so each recipient of such a message is a group of its own.
    """

    def __init__(self, kind: str, sender: bytes, choices: NexthopChoices) -> None:
        self._choices = choices
        self._local = kind == "local"
        self._alone = is_verp(sender)
        self._single: list[tuple[bytes, list[Recipient]]] = []
        self._groups: dict[Nexthop | bytes, list[Recipient]] = {}

    def add(self, recipients: list[Recipient]) -> None:
        """Add recipients."""
        if self._local:
            for recipient in recipients:
                route = self._choices.route_local(recipient[1])
                if route is None or self._alone:
                    self._single.append((route or recipient[1], [recipient]))
                else:
                    self._groups.setdefault(route, []).append(recipient)
            return
        for recipient in recipients:
            way = self._choices.choose(recipient[1])
            if self._alone:
                self._single.append((way.name, [recipient]))
            else:
                self._groups.setdefault(way, []).append(recipient)

    def groups(self) -> list[tuple[bytes, list[Recipient]]]:
        """Return (nexthop, recipients) for each group."""
        groups = [(way if isinstance(way, bytes) else way.name, group) for way, group in self._groups.items()]
        return self._single + groups


def group_recipients(
    kind: str, sender: bytes, recipients: list[Recipient], choices: NexthopChoices
) -> list[tuple[bytes, list[Recipient]]]:
    """Return (nexthop, recipients) for each group, as Grouping does for all recipients at once."""
    if len(recipients) == 1:
        return [(choices.name(kind, recipients[0][1]), recipients)]
    grouping = Grouping(kind, sender, choices)
    grouping.add(recipients)
    return grouping.groups()
