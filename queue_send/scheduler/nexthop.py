"""Groups the recipients of a message by nexthop, with smtproutes applied. Pure.

The name of a nexthop is used by limits, rates and the `dest` lines of the log. For remote mail it is the domain in
lower case, or the relays that smtproutes names for it (`host`, `host:port`, several with `,` and `+` as there). A
domain with a line in destinationlimits or destinationrate is a nexthop of its own even if a relay takes its mail. For
local mail it is the recipient.
"""

from queue_send.scheduler.model import Recipient
from queue_wire.address import is_verp, split_address
from queue_wire.control.destinationlimits import LimitLines, Nexthop, choose_nexthop
from queue_wire.control.smtproutes import Routes


class Grouping:
    """Groups the recipients of a message, some at a time; `kind` is local or remote.

    A VERP sender differs for each recipient, so each recipient of such a message is a group of its own.
    """

    def __init__(self, kind: str, sender: bytes, routes: Routes, lines: LimitLines) -> None:
        self._routes = routes
        self._lines = lines
        self._local = kind == "local"
        self._alone = is_verp(sender)
        self._single: list[tuple[bytes, list[Recipient]]] = []
        self._groups: dict[Nexthop, list[Recipient]] = {}

    def add(self, recipients: list[Recipient]) -> None:
        """Adds recipients."""
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
        """Returns (nexthop, recipients) for each group."""
        return self._single or [(way.name, group) for way, group in self._groups.items()]


def group_recipients(
    kind: str, sender: bytes, recipients: list[Recipient], routes: Routes, lines: LimitLines
) -> list[tuple[bytes, list[Recipient]]]:
    """Returns (nexthop, recipients) for each group, as Grouping does for all recipients at once."""
    grouping = Grouping(kind, sender, routes, lines)
    grouping.add(recipients)
    return grouping.groups()
