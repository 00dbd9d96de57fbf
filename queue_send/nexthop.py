"""Which recipients of a message go together: those with the same nexthop, smtproutes applied. Pure.

The nexthop's name is what limits, rates and the log's `dest` lines know it by: the domain in lower case, or
the route where smtproutes has one: `host` or `host:port` of its relay, or of each of them with `,` and `+` as there.
A domain that has a line in destinationlimits or destinationrate goes by itself all the same, under its own name.
For local mail it is the recipient.
"""

from queue_send.attempt import Recipient
from queue_wire.address import is_verp, split_address
from queue_wire.destinationlimits import Lines, Way, choose_way
from queue_wire.smtproutes import Routes


def group_recipients(
    kind: str, sender: bytes, recipients: list[Recipient], routes: Routes, lines: Lines
) -> list[tuple[bytes, list[Recipient]]]:
    """Return (nexthop, recipients) for each group; `kind` is local or remote.

    A VERP sender is another one for each recipient, so each of those goes alone.
    """
    if kind == "local":
        return [(recipient[1], [recipient]) for recipient in recipients]
    ways = [choose_way(routes, lines, split_address(address)[1].lower()) for _, address in recipients]
    if is_verp(sender):
        return [(way.name, [recipient]) for way, recipient in zip(ways, recipients, strict=True)]
    groups: dict[Way, list[Recipient]] = {}
    for way, recipient in zip(ways, recipients, strict=True):
        groups.setdefault(way, []).append(recipient)
    return [(way.name, group) for way, group in groups.items()]
