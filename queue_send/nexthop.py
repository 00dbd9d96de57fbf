"""Which recipients of a message go together: those with the same nexthop, smtproutes applied. Pure.

The nexthop's name is what limits, rates and the log's `dest` lines know it by: the domain in lower case, or
the route where smtproutes has one: `host` or `host:port` of its relay, or of each of them with `,` and `+` as there.
A domain that has a line in destinationlimits or destinationrate goes by itself all the same, under its own name.
For local mail it is the recipient.
"""

from queue_send.attempt import Recipient
from queue_wire.address import is_verp, split_address
from queue_wire.control.destinationlimits import LimitLines, Nexthop, choose_nexthop
from queue_wire.control.smtproutes import Routes


class Grouping:
    """Groups the recipients of a message, some at a time; `kind` is local or remote.

    A VERP sender is another one for each recipient, so each of those goes alone.
    """

    def __init__(self, kind: str, sender: bytes, routes: Routes, lines: LimitLines) -> None:
        self._routes = routes
        self._lines = lines
        self._local = kind == "local"
        self._alone = is_verp(sender)
        self._single: list[tuple[bytes, list[Recipient]]] = []
        self._groups: dict[Nexthop, list[Recipient]] = {}

    def add(self, recipients: list[Recipient]) -> None:
        """Take some recipients."""
        if self._local:
            self._single += [(recipient[1], [recipient]) for recipient in recipients]
            return
        for recipient in recipients:
            way = choose_nexthop(self._routes, self._lines, split_address(recipient[1])[1].lower())
            if self._alone:
                self._single.append((way.name, [recipient]))
            else:
                self._groups.setdefault(way, []).append(recipient)

    def groups(self) -> list[tuple[bytes, list[Recipient]]]:
        """Return (nexthop, recipients) for each group."""
        return self._single or [(way.name, group) for way, group in self._groups.items()]


def group_recipients(
    kind: str, sender: bytes, recipients: list[Recipient], routes: Routes, lines: LimitLines
) -> list[tuple[bytes, list[Recipient]]]:
    """Return (nexthop, recipients) for each group of few recipients, as Grouping does."""
    grouping = Grouping(kind, sender, routes, lines)
    grouping.add(recipients)
    return grouping.groups()
