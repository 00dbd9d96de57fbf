"""queuectl mailq: the queue as Postfix's mailq prints it, for the scripts that read that. Reads only.

The form is that of Postfix's postqueue -p with enable_long_queue_ids = yes: showq_compat.c.
"""

import sys
import time
from collections.abc import Iterator

import click

from queue_admin.home.chosen import home_of
from queue_admin.messages.detail import Detail, mark_reason, read_detail, read_done_marks
from queue_admin.messages.last_results import DeadNexthops, RecipientState, reason_line, recipient_states
from queue_admin.messages.selectors import is_deleted
from queue_admin.messages.survey import Snapshot, Stray, survey
from queue_admin.printable import visible, word
from queue_admin.progress import Progress
from queue_admin.system_accounts import be_owner
from queue_base.errors import Failure, complain
from queue_base.home import Home
from queue_base.queue.layout import Layout, open_layout
from queue_wire.ids import pack_queue_id

HEADINGS = "----Queue ID----- --Size-- ---Arrival Time---- --Sender/Recipient------"
EMPTY = "Mail queue is empty"
# What Postfix prints for bounces.
NULL_SENDER = "MAILER-DAEMON"
NO_REASON = "reason unavailable"
_REASON_COLUMN = 76  # A shorter reason ends in this column.
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@click.command("mailq")
@click.pass_context
def command(context: click.Context) -> None:
    """List the queue in the form of Postfix's mailq, for scripts that read it.

    Each message has its id, size, time of arrival (local time) and sender, then its recipients that are left, each
    below the reason why it is still here. A * after the id means that it is due or being tried, a ! that it is on hold
    or corrupt. The last line has the totals.

    \b
    Examples:
      queuectl mailq
      queuectl mailq | tail -n 1
    """
    home = home_of(context)
    be_owner(home)
    count = size = 0
    code = 0
    for one in home.each():
        try:
            more, bytes_more = _list(one, count)
        except Failure as failure:
            if not home.several:
                raise
            complain("queuectl", f"queue {one.name}: {failure}")
            code = failure.exit_code
            continue
        count += more
        size += bytes_more
    print(f"\n-- {size // 1024} Kbytes in {count} Request{'' if count == 1 else 's'}." if count else EMPTY)
    if code:
        raise click.exceptions.Exit(code)


def _list(home: Home, before: int) -> tuple[int, int]:
    """Print the messages of a queue, behind so many others; return how many there are, and their bytes."""
    layout = open_layout(home.queue)
    now = time.time()
    marks = read_done_marks(layout)
    count = size = 0
    dead = DeadNexthops(home, now)
    with Progress(None, "messages", "looked at", prints=True) as progress:
        for found in survey(layout):
            progress.step()
            if isinstance(found, Stray) or found.state not in ("queued", "classified"):
                continue
            read = read_detail(layout, found, marks)
            if read is None or read[0].state not in ("queued", "classified"):
                continue
            found, detail = read
            if is_deleted(layout, found):
                continue  # It is gone as soon as nothing of it is in flight.
            print("" if count or before else HEADINGS)
            for line in message_lines(layout, found, detail, dead, home.name):
                print(line)
            if not count:
                sys.stdout.flush()
            count += 1
            size += found.size or 0
    return count, size


def message_lines(
    layout: Layout, snapshot: Snapshot, detail: Detail, dead: DeadNexthops, queue: str
) -> Iterator[str]:
    """Yield the lines of one message; `queue` is the name of one of several."""
    due = detail.next_attempt()
    if snapshot.held or snapshot.corrupt:
        letter = "!"
    else:
        letter = "*" if snapshot.state == "queued" or (due is not None and due <= dead.now) else ""
    sender = "-" if detail.sender is None else word(detail.sender) or NULL_SENDER
    when = _arrival((snapshot.birth or 0) / 1e6)
    yield f"{pack_queue_id(queue, snapshot.long_id) + letter:<17} {snapshot.size or 0:>8} {when} {sender}"
    mark = next((kind for kind, has in (("hold", snapshot.held), ("corrupt", snapshot.corrupt)) if has), None)
    whole = visible(mark_reason(layout, mark, snapshot.message)) if mark else ""
    before = ""
    for each in recipient_states(layout, snapshot, detail):
        if each.done:
            continue
        why = whole or _why(each, dead if due is not None and due > dead.now else None)
        if why != before:
            yield f"({why or NO_REASON})".rjust(_REASON_COLUMN + 2)
            before = why
        yield f"{'':17} {'':8} {'':19} {word(each.address)}"


def _why(recipient: RecipientState, dead: DeadNexthops | None) -> str:
    if recipient.last is not None:
        return reason_line(recipient.last.text)
    return dead.why(recipient) if dead is not None else ""


def _arrival(seconds: float) -> str:
    """Return a local time as asctime does: `Sun Nov  1 22:12:04`. Scripts read it, so no locale counts."""
    try:
        when = time.localtime(seconds)
    except (OverflowError, ValueError, OSError):
        when = time.localtime(0)
    day, month = _DAYS[when.tm_wday], _MONTHS[when.tm_mon - 1]
    return f"{day} {month} {when.tm_mday:2d} {when.tm_hour:02d}:{when.tm_min:02d}:{when.tm_sec:02d}"
