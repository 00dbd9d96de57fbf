"""queuectl shape: the queue by domain and age, as Postfix's qshape prints it. Reads only."""

import json
import sys
import time
from collections.abc import Iterator

import click

from queue_admin.home.chosen import each_queue, home_of, with_queue
from queue_admin.messages.divided import count_shares, divide
from queue_admin.messages.selectors import Selectors
from queue_admin.messages.stored_mail import StoredMail
from queue_admin.printable import visible
from queue_admin.progress import Progress
from queue_admin.system_accounts import be_owner
from queue_admin.views.age_table import WIDTH, AgeTable, shape_domain
from queue_admin.views.queue_walk import ACTIVE, INCOMING, QUEUES, QueueWalk, WalkedMessage
from queue_base.errors import complain
from queue_base.home import Home
from queue_base.queue.layout import open_layout

STORED = "stored"  # What is stored for on-demand domains, which is in none of QUEUES.
TOP_ON_TERMINAL = 20
INTERIM = 2.0  # Seconds between two interim tables on a terminal.
_CLEAR = "\x1b[H\x1b[2J"


@click.command("shape")
@click.argument("queues", nargs=-1, type=click.Choice((*QUEUES, STORED)), metavar="[QUEUE]...")
@click.option("-s", "senders", is_flag=True, help="Count messages by sender domain, not recipients by their domain.")
@click.option("-p", "parents", is_flag=True, help="Count for parent domains, too; they are shown with a leading dot.")
@click.option("-m", "least", type=click.IntRange(1), default=5, help="Subdomains that a shown parent has; default 5.")
@click.option("-b", "buckets", type=click.IntRange(1, 100), default=10, help="Columns; default 10.")
@click.option(
    "-t", "first", type=click.FloatRange(0, 1e9, min_open=True), default=5, help="Minutes of the first one; default 5."
)
@click.option("-l", "linear", is_flag=True, help="Each column is as long as the first, not twice as the one before.")
@click.option("-w", "width", type=click.IntRange(1, 10_000), default=WIDTH, help="Width of the text, at least 80.")
@click.option("-n", "--limit", "top", type=click.IntRange(1), help="At most N lines; default on a terminal 20.")
@click.option("-N", "batch", type=click.IntRange(0), help="On a terminal show an interim table after so many messages.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
@click.pass_context
def command(
    context: click.Context,
    queues: tuple[str, ...],
    senders: bool,
    parents: bool,
    least: int,
    buckets: int,
    first: float,
    linear: bool,
    width: int,
    top: int | None,
    batch: int | None,
    form: str,
) -> None:
    """Show the recipients in the queue by domain and age, as Postfix's qshape does, with its options.

    A column has the recipients of messages of that age in minutes: under 5, 5 to 10, 10 to 20, and so on; T is their
    sum. Recipients that are done do not count. It needs no lock and changes nothing.

    \b
    QUEUE is one or more of these; default incoming and active:
      incoming   not classified yet; perhaps in delivery
      active     in delivery, or due and waiting for it
      deferred   waiting for the next attempt
      hold       on hold
      corrupt    parked, because it cannot be read
      stored     stored for on-demand domains

    On a terminal an interim table is shown each 2 s, or after each -N messages (0: none). With --format json each line
    is an object with the keys domain, T, and the end of each column.

    \b
    Examples:
      queuectl shape
      queuectl shape deferred
      queuectl shape -s -b 12 -t 10 -n 15 incoming active deferred
    """
    home = home_of(context)
    be_owner(home)

    def show(home: Home) -> None:
        layout = open_layout(home.queue)
        now = time.time()
        table = AgeTable(buckets, first, linear, parents, least)
        on_terminal = form == "text" and sys.stdout.isatty()
        most = TOP_ON_TERMINAL if on_terminal and top is None else top
        columns = max(width, WIDTH)
        shares = 1 if on_terminal else count_shares(layout)
        interim = _Interim(batch) if on_terminal else None

        def count(share: int) -> tuple[AgeTable, int]:
            """Return the counts of a share of the messages, and how many of them could not be read."""
            walk = QueueWalk(layout, queues or (INCOMING, ACTIVE), now, share, shares)
            with Progress(None, "messages") as progress:
                for message in walk:
                    column = table.column(int(now) - message.birth)
                    for address in _sender(message) if senders else message.recipients:
                        table.add(shape_domain(address), column)
                    if share:
                        continue  # The first share stands for all.
                    if interim is None:
                        progress.step(shares)
                    elif interim.is_due():
                        print(_CLEAR + "\n".join(table.text(columns, most)), flush=True)
            return table, walk.unreadable

        (_, unreadable), *others = divide(count, shares)
        for other, number in others:
            table.merge(other)
            unreadable += number
        mail = StoredMail(home) if STORED in queues else None
        for stored in () if mail is None else mail.messages(Selectors(), now):
            column = table.column(int(now) - stored.first.birth // 1_000_000)
            for address in (stored.first.sender,) if senders else stored.recipients:
                table.add(shape_domain(address), column)
        if interim is not None and interim.shown:
            sys.stdout.write(_CLEAR)
        for line in _objects(home, table, top) if form == "json" else table.text(columns, most):
            print(line)
        if unreadable:
            complain("queuectl", f"warning: messages that could not be read: {unreadable}; queuectl list names them")
        if mail is not None:
            mail.check()

    each_queue(home, show, heading=form == "text", both=True)


def _sender(message: WalkedMessage) -> Iterator[bytes]:
    """Yield the sender of a message, if it has any recipient left."""
    for _ in message.recipients:
        sender = message.sender()
        if sender is not None:
            yield sender
        return


def _objects(home: Home, table: AgeTable, top: int | None) -> Iterator[str]:
    for row in table.rows(top):
        facts: dict[str, object] = {"domain": visible(row.domain), "T": row.total}
        yield json.dumps(with_queue(home, facts | dict(zip(table.titles, row.counts, strict=True))))


class _Interim:
    """When an interim table is shown: after `batch` messages, or after INTERIM seconds."""

    def __init__(self, batch: int | None) -> None:
        self._batch = batch
        self._count = 0
        self._next = time.monotonic() + INTERIM
        self.shown = False

    def is_due(self) -> bool:
        """Count a message; return whether an interim table is to be shown now."""
        self._count += 1
        if self._batch is not None:
            due = self._batch > 0 and self._count % self._batch == 0
        else:
            due = time.monotonic() >= self._next
        if due:
            self.shown = True
            self._next = time.monotonic() + INTERIM
        return due
