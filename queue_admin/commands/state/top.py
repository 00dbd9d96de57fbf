"""queuectl top: what has the most messages in the queue, once, or as a live view of the suite. Reads only."""

import json
import sys
import time
from collections.abc import Iterator, Sequence

import click

from queue_admin.home.chosen import each_queue, home_of, with_queue
from queue_admin.messages.divided import count_shares, divide
from queue_admin.printable import align, visible
from queue_admin.progress import Progress
from queue_admin.system_accounts import be_owner
from queue_admin.views.queue_walk import QUEUES, QueueWalk
from queue_admin.views.ranked_messages import RANKINGS, rank
from queue_admin.views.ranking import RankedRow, Ranking
from queue_base.errors import Usage, complain
from queue_base.home import Home
from queue_base.queue.layout import open_layout


@click.command("top")
@click.argument("queues", nargs=-1, type=click.Choice(QUEUES), metavar="[QUEUE]...")
@click.option("--by", type=click.Choice(list(RANKINGS)), default="domain", help="What to count by; default domain.")
@click.option("-n", "--limit", type=click.IntRange(1), default=20, help="Show so many; default 20.")
@click.option("--watch", is_flag=True, help="A live view, until q or ^C.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
@click.pass_context
def command(context: click.Context, queues: tuple[str, ...], by: str, limit: int, watch: bool, form: str) -> None:
    """Show which domains, senders, users, classes or reasons have the most messages in the queue.

    The columns are messages, recipients that are left, bytes, and the key. A message with recipients in two domains
    counts for both. `uid` is the user who injected it, `priority` its class (control/priorities). `reason` is why its
    recipients were deferred last, without what differs each time, such as addresses. QUEUE is as for `queuectl shape`;
    default all of them.

    --watch shows rates, destinations and processes, new each 2 s, and the ranking of the last walk over the queue; of
    several queues the rates of each, and one ranking.

    \b
    Examples:
      queuectl top
      queuectl top --by sender --limit 5 deferred
      queuectl top --watch
    """
    if watch and form == "json":
        raise Usage("unable to watch as JSON: use --watch or --format json")
    if watch and not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise Usage("unable to watch: stdin and stdout are not a terminal")
    if watch:
        # Imported here, because psutil takes long to load, and before be_owner, because perhaps only root can read it.
        from queue_admin.views.live_view import show_live
    home = home_of(context)
    be_owner(home)
    if watch:
        if home.is_chosen:
            open_layout(home.queue)
        show_live(home, queues or QUEUES, by)
        return
    each_queue(home, lambda one: _show(one, queues or QUEUES, by, limit, form), heading=form == "text", both=True)


def _show(home: Home, queues: Sequence[str], by: str, limit: int, form: str) -> None:
    """Print the ranking of one queue. Raises Temporary."""
    layout = open_layout(home.queue)
    now, shares = time.time(), count_shares(layout)

    def count(share: int) -> tuple[Ranking, int]:
        """Return the ranking of a share of the messages, and how many of them could not be read."""
        walk, ranking = QueueWalk(layout, queues, now, share, shares), Ranking()
        with Progress(None, "messages") as progress:
            for _ in rank(walk, by, ranking):
                if not share:
                    progress.step(shares)  # The first share stands for all.
        return ranking, walk.unreadable

    (ranking, unreadable), *others = divide(count, shares)
    for other, number in others:
        ranking.merge(other)
        unreadable += number
    for line in _objects(home, by, ranking, limit) if form == "json" else text_rows(ranking, by, limit):
        print(line)
    if unreadable:
        complain("queuectl", f"warning: messages that could not be read: {unreadable}; queuectl list names them")


def _objects(home: Home, by: str, ranking: Ranking, limit: int) -> Iterator[str]:
    for row in ranking.rows(limit):
        facts = {"by": by, "key": visible(row.key), "messages": row.messages, "recipients": row.recipients}
        yield json.dumps(with_queue(home, {**facts, "bytes": row.size}))


def text_rows(ranking: Ranking, by: str, limit: int) -> list[str]:
    """Return the lines of the table: its head, all messages together, then the keys."""
    rows = [RankedRow(b"TOTAL", *ranking.total), *ranking.rows(limit)]
    lines = [("messages", "recipients", "bytes", by)]
    lines += [(str(row.messages), str(row.recipients), str(row.size), visible(row.key)) for row in rows]
    return list(align(lines, range(3)))
