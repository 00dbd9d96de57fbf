"""queuectl destinations: the destinations in queue-send's memory, with what limits or delays their mail. Reads only."""

import json
from collections.abc import Iterator

import click

from queue_admin.home.chosen import each_queue, home_of, with_queue
from queue_admin.messages.admin_client import NoAnswer, SchedulerQueries
from queue_admin.messages.detail import CHANNELS
from queue_admin.messages.last_results import reason_line
from queue_admin.printable import align, visible, word
from queue_admin.system_accounts import be_owner
from queue_base.errors import NotFound, Temporary
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.admin.facts import ALIVE, DEAD, RELAY, ChannelFact, DestinationFact
from queue_wire.logline import moment

HEAD = (
    "channel", "nexthop", "state", "queued", "on-disk", "in-flight", "window", "cohorts", "suspended", "rate", "next",
    "limits", "reason",
)  # fmt: skip
LEFT = 3  # Columns of words, aligned to the left, as the last one is; the others are numbers.


@click.command("destinations")
@click.argument("names", nargs=-1, metavar="[NEXTHOP]...")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
@click.pass_context
def command(context: click.Context, names: tuple[str, ...], form: str) -> None:
    """Show the destinations that queue-send has mail for now, and what limits or delays it.

    One line per nexthop, the one with the most waiting mail first. A nexthop is a domain, or the relay that
    smtproutes has for it; for local mail it is the recipient. `queued` are its messages in memory, `on-disk` those
    that wait there until it has room. `in-flight` are its jobs in flight, at most `window`. `cohorts` are windows
    in which the host could not be reached. `suspended` are recipients deferred without an attempt since the nexthop
    is dead. `next` is the time of the next probe (`now`: the next message is the probe), or of the next message
    that the rate allows. `limits` is the line of control/destinationlimits or destinationrate that applies. If a
    domain behind a relay has such a line, the line with state `relay` has the totals of the relay, and its
    `in-flight`, `window` and `rate` apply to all domains behind it. `reason` is why a dead nexthop could not be
    reached last. Messages that wait for their next attempt are counted only in the totals of the channel. Exit 1 if
    nexthops are named, and queue-send has none of them.

    \b
    Examples:
      queuectl destinations
      queuectl destinations example.net relay.example.org:2525
    """
    home = home_of(context)
    be_owner(home)
    each_queue(home, lambda one: _show(one, names, form), heading=form == "text")


def _show(home: Home, names: tuple[str, ...], form: str) -> None:
    """Print the destinations of one queue-send. Raises Temporary; NotFound if it has none of those that are named."""
    open_layout(home.queue)
    try:
        with SchedulerQueries(home) as queries:
            totals, read = queries.totals()
            found = [
                (channel, each) for channel in CHANNELS for each in queries.destinations(channel, names)
            ]
    except NoAnswer as error:
        raise Temporary(f"unable to show destinations: {str(error).removeprefix('not known: ')}") from error
    if names and not found:
        raise NotFound(f"unable to find {', '.join(map(ascii, names))}: no destination has that name")
    found.sort(key=lambda pair: (-pair[1].queued - pair[1].on_disk, -pair[1].in_flight, pair[0], pair[1].nexthop))
    for line in _objects(home, totals, read, found) if form == "json" else _text(totals, read, found):
        print(line)


def _objects(
    home: Home, totals: list[ChannelFact], read: bool, found: list[tuple[str, DestinationFact]]
) -> Iterator[str]:
    """Yield a JSON object for each channel and destination; times are in ISO form, null for none, or for now."""
    for total in totals:
        sums: dict[str, object] = {"channel": total.channel.decode("ascii"), "active": total.active}
        sums |= {"active_limit": total.active_limit, "waiting": total.waiting, "in_flight": total.running}
        yield json.dumps(with_queue(home, sums | {"concurrency": total.concurrency, "backlog_read": read}))
    for channel, each in found:
        facts: dict[str, object] = {"channel": channel, **each._asdict()}
        facts |= {"state": each.state.decode("ascii"), "nexthop": visible(each.nexthop)}
        facts |= {"probe": _iso(each.probe), "next": _iso(each.next), "cohorts": each.cohorts / 100}
        facts |= {"limits": each.limits.decode("ascii") or None, "relay": visible(each.relay) or None}
        facts |= {"reason": visible(each.reason) or None}
        yield json.dumps(with_queue(home, facts))


def _iso(seconds: int) -> str | None:
    return moment(seconds) if seconds else None


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
    yield from align([HEAD, *(_row(channel, each) for channel, each in found)], range(LEFT, len(HEAD) - 1))


def _row(channel: str, each: DestinationFact) -> tuple[str, ...]:
    # While a probe is in flight, there is no next one.
    when = each.next if each.state in (ALIVE, RELAY) else each.probe if each.state == DEAD else 0
    due = moment(when) if when else "now" if each.state == DEAD else "-"
    return (
        channel,
        word(each.nexthop) or "-",
        each.state.decode("ascii"),
        str(each.queued),
        str(each.on_disk),
        str(each.in_flight),
        str(each.window),
        f"{each.cohorts / 100:g}",
        str(each.suspended),
        f"{each.messages}/{each.seconds}" if each.messages else "-",
        due,
        each.limits.decode("ascii", "replace") or "-",
        reason_line(each.reason) or "-",
    )
