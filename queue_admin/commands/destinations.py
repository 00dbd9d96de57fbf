"""queuectl destinations: the destinations in queue-send's memory, with what limits or delays their mail. Reads only."""

import json
from collections.abc import Iterator

import click

from queue_admin.messages.admin_client import NoAnswer, SchedulerQueries
from queue_admin.messages.detail import CHANNELS
from queue_admin.printable import visible, word
from queue_admin.system_accounts import be_owner
from queue_base.errors import Temporary
from queue_base.home import find_home
from queue_base.layout import open_layout
from queue_wire.admin.facts import ALIVE, DEAD, RELAY, ChannelFact, DestinationFact
from queue_wire.logline import moment

HEAD = (
    "channel", "nexthop", "state", "queued", "aside", "flying", "window", "failures", "deferred", "rate", "next",
    "limits",
)  # fmt: skip
LEFT = 3  # Columns of words, aligned to the left; the others are numbers.


@click.command("destinations")
@click.argument("names", nargs=-1, metavar="[NEXTHOP]...")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
@click.pass_context
def command(context: click.Context, names: tuple[str, ...], form: str) -> None:
    """Show the destinations that queue-send has mail for now, and what limits or delays it.

    One line per nexthop, the one with the most waiting mail first. A nexthop is a domain, or the relay that smtproutes
    has for it; for local mail it is the recipient. `queued` are its messages in memory, `aside` those put aside on
    disk until it has room. `flying` are jobs in flight, at most `window`. `failures` are windows in which the host
    could not be reached. `deferred` are recipients deferred without an attempt since the nexthop is dead. `next` is the
    time of the next probe, or of the next message that the rate allows. `limits` is the line of
    control/destinationlimits or destinationrate that applies. If a domain behind a relay has such a line, the line with
    state `relay` has the totals of the relay, and its `flying`, `window` and `rate` apply to all domains behind it.
    Messages that wait for their next attempt are not counted.

    \b
    Examples:
      queuectl destinations
      queuectl destinations example.net relay.example.org:2525
    """
    home = find_home(context.obj)
    be_owner(home)
    open_layout(home.queue)
    try:
        with SchedulerQueries(home) as queries:
            totals, read = queries.totals()
            found = [
                (channel, each) for channel in CHANNELS for each in queries.destinations(channel, names)
            ]
    except NoAnswer as error:
        raise Temporary(f"unable to show destinations: {str(error).removeprefix('not known: ')}") from error
    found.sort(key=lambda pair: (-pair[1].queued - pair[1].aside, -pair[1].flying, pair[0], pair[1].nexthop))
    for line in _objects(found) if form == "json" else _text(totals, read, found):
        print(line)


def _objects(found: list[tuple[str, DestinationFact]]) -> Iterator[str]:
    """Yield a JSON object for each destination; times are in seconds since the epoch, null for none."""
    for channel, each in found:
        facts: dict[str, object] = {"channel": channel, **each._asdict()}
        facts |= {"state": each.state.decode("ascii"), "nexthop": visible(each.nexthop)}
        facts |= {"probe": each.probe or None, "next": each.next or None, "cohorts": each.cohorts / 100}
        facts |= {"limits": each.limits.decode("ascii") or None, "relay": visible(each.relay) or None}
        yield json.dumps(facts)


def _text(totals: list[ChannelFact], read: bool, found: list[tuple[str, DestinationFact]]) -> Iterator[str]:
    for each in totals:
        yield (
            f"{each.channel.decode('ascii')}: {each.active}/{each.active_limit} messages active,"
            f" {each.waiting} waiting, {each.running}/{each.concurrency} deliveries in flight"
        )
    if not read:
        yield "backlog: still being read"
    if not found:
        return
    rows = [HEAD, *(_row(channel, each) for channel, each in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    for row in rows:
        cells = [
            cell.ljust(width) if column < LEFT else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _row(channel: str, each: DestinationFact) -> tuple[str, ...]:
    when = each.probe if each.state == DEAD else each.next if each.state in (ALIVE, RELAY) else 0
    return (
        channel,
        word(each.nexthop) or "-",
        each.state.decode("ascii"),
        str(each.queued),
        str(each.aside),
        str(each.flying),
        str(each.window),
        f"{each.cohorts / 100:g}",
        str(each.turned_away),
        f"{each.messages}/{each.seconds}" if each.messages else "-",
        moment(when) if when else "-",
        each.limits.decode("ascii", "replace") or "-",
    )
