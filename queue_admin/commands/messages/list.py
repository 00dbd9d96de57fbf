"""queuectl list: one line per message, as text or JSON. Reads only."""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from itertools import chain, islice
from typing import Any

import click

from queue_admin.home.chosen import each_queue, home_of, share_names
from queue_admin.messages.choosing import find, read_names, select
from queue_admin.messages.detail import Detail, read_detail, read_done_marks
from queue_admin.messages.last_results import DeadNexthops, recipient_states
from queue_admin.messages.message_facts import message_facts, recipient_facts, stored_facts, stored_recipients
from queue_admin.messages.named_message import check_long_id
from queue_admin.messages.outside_sort import sort_outside
from queue_admin.messages.selector_options import limit_option, make_selectors, selector_options
from queue_admin.messages.selectors import Selectors, is_deleted
from queue_admin.messages.stored_mail import COUNTED_MAX, StoredMail, StoredMessage
from queue_admin.messages.survey import Snapshot, Stray, look, survey
from queue_admin.printable import span, visible, word
from queue_admin.progress import Progress, stdout_is_file
from queue_admin.system_accounts import be_owner
from queue_base.control import read_value
from queue_base.errors import NotFound
from queue_base.home import Home
from queue_base.queue.layout import Layout, open_layout
from queue_base.queue.marks_file import LeftMarks
from queue_wire.control.registry import VIRTUALDOMAINS
from queue_wire.ids import pack_queue_id
from queue_wire.logline import moment

SORTS = ("age", "size", "sender", "recipients", "next")


@click.command("list")
@click.argument("ids", nargs=-1, metavar="[IDS]...")
@selector_options()
@click.option("--held", is_flag=True, help="Only messages that are on hold.")
@click.option("--stored", is_flag=True, help="Only messages that are stored for on-demand domains.")
@click.option("--corrupt", is_flag=True, help="Only corrupt messages.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
@click.option("--sort", type=click.Choice(SORTS), help="In this order, the oldest, largest or most first.")
@limit_option("At most N messages.")
@click.option("-0", "nul", is_flag=True, help="Print only long ids, with a NUL after each.")
@click.pass_context
def command(context: click.Context, /, ids: tuple[str, ...], **options: Any) -> None:
    """List the messages in the queue, one per line.

    It needs no lock and changes nothing. IDS are long ids, `-` reads them from standard input. Options choose messages
    that match all of them. Exit 1 if ids or options were given, and no message matches. Messages that are deleted, and
    wait for their removal, are shown only with --state deleted. Messages are listed as they are found, a bucket after
    another; --sort reads them all first, and writes the keys of more than 50,000 to temporary files. Several queues are
    listed one after the other, each as --sort and --limit say.

    \b
    Messages that are stored for on-demand domains are listed with IDS or options, or
    with --stored alone; else a line on stderr says how many there are.

    \b
    Columns: id, state, age, bytes, <sender>, then, with commas between them: the first
    recipient that is left, and how many others are; how many recipients of each
    channel are done and left (`remote 2 done, 1 left`; `all 3 left` before
    classification); the next attempt. Then, if they apply: held, corrupt, unreadable, each with the reason, and
    the reason why its newest delivery was deferred (last).
    With --format json each line is one object, which has each recipient.

    \b
    Examples:
      queuectl list
      queuectl list --state queued
      queuectl list --held --format json
      queuectl list --sender-domain example.com --sort size --limit 10
      queuectl list -0 --subject 'cheap pills' | queuectl delete -
    """
    home = home_of(context)
    prepends = {} if options["recipient"] is None else read_value(home, VIRTUALDOMAINS)
    be_owner(home)
    if not home.several:
        _list(home, ids, options, prepends)
        return
    shares = share_names(home, read_names(tuple(dict.fromkeys(ids)))) if ids else {}
    each_queue(
        home, lambda one: _list(one, tuple(shares.get(one.name, ())), options, prepends, bool(ids)), heading=False
    )


def _list(
    home: Home, ids: tuple[str, ...], options: dict[str, Any], prepends: dict[bytes, bytes], by_id: bool = False
) -> None:
    """List one queue; with `by_id` only messages of `ids`. Raises Exit, with 1, if there is no such message."""
    if by_id and not ids:
        raise click.exceptions.Exit(1)
    layout = open_layout(home.queue)
    mail = StoredMail(home)
    if mail.domains and "-" in ids:
        ids = tuple(read_names(ids))  # They are looked for twice.
    now = time.time()
    marks = read_done_marks(layout)
    form, nul = options["form"], options["nul"]
    count = 0
    selectors = make_selectors(options, prepends)
    dead = DeadNexthops(home, now)
    only_stored = options["stored"] or selectors.state == "stored"
    messages = iter(()) if only_stored else _found(layout, mail, ids, options, selectors, now)
    for found in islice(messages, options["limit"]):
        if isinstance(found, Stray):
            line = stray_line(found, form)
        elif nul:
            line = pack_queue_id(home.name, found.long_id)
        else:
            line = message_line(layout, found, marks, form, now, dead, home.name)
        if line:
            count += 1
            print(line, end="\0" if nul else "\n")
    if not (ids or _filters(options)):
        if mail.domains and form == "text" and not nul:
            _say_stored(home, mail.count())
        mail.check()
        return
    left = None if options["limit"] is None else options["limit"] - count
    for message in islice(_stored(mail, ids, options, selectors, now), left):
        count += 1
        name = pack_queue_id(home.name, message.long_id)
        print(name if nul else stored_line(message, form, now, home.name), end="\0" if nul else "\n")
    mail.check()
    if not count and ids and ids != ("-",) and not _filters(options):
        raise NotFound(f"unable to find {', '.join(ids[:3])}: no such message")
    if not count:
        raise click.exceptions.Exit(1)


def _filters(options: dict[str, Any]) -> bool:
    return options["held"] or options["corrupt"] or options["stored"] or make_selectors(options, {}).any


def _say_stored(home: Home, count: int) -> None:
    """Say on stderr what a list of all messages does not have, because there may be very much of it."""
    number = f"{COUNTED_MAX} or more messages are" if count == COUNTED_MAX else f"{count} messages are"
    number = "1 message is" if count == 1 else number
    queue = f"queue {home.name}: " if home.name else ""
    sys.stdout.flush()
    print(f"{queue}{number} stored for on-demand domains; queuectl list --stored", file=sys.stderr)


def _stored(
    mail: StoredMail, ids: tuple[str, ...], options: dict[str, Any], selectors: Selectors, now: float
) -> Iterator[StoredMessage]:
    """Yield what is stored for on-demand domains and is to be listed, in order."""
    if options["corrupt"]:
        return
    if ids:
        found = (message for name in ids for message in mail.find(name))
        chosen = (each for message in found if (each := mail.choose(message, selectors, now)) is not None)
    else:
        chosen = (message for message in mail.messages(selectors, now))
    held = (message for message in chosen if message.held is not None or not options["held"])
    sort, limit = options["sort"], options["limit"]
    if sort is None:
        yield from held
        return
    numbered = ((_stored_key(sort, message), number, message) for number, message in enumerate(held))
    keys = nsmallest(limit, numbered) if limit is not None else sorted(numbered)
    for _, _, message in keys:
        yield message


def _stored_key(sort: str, message: StoredMessage) -> float | bytes:
    """Return the key of a stored message; it has no next attempt."""
    if sort == "sender":
        return message.first.sender.lower()
    keys = {"size": -message.first.size, "recipients": -len(message.recipients), "next": 0}
    return keys.get(sort, message.first.birth)


def _found(
    layout: Layout,
    mail: StoredMail,
    ids: tuple[str, ...],
    options: dict[str, Any],
    selectors: Selectors,
    now: float,
) -> Iterator[Snapshot | Stray]:
    """Yield what is to be listed, in order."""
    held, corrupt, sort = options["held"], options["corrupt"], options["sort"]
    plain = not (ids or sort or selectors.any)
    if plain:
        with Progress(None, "messages", "looked at", prints=True) as progress:
            for found in survey(layout):
                progress.step()
                if isinstance(found, Stray):
                    if not (held or corrupt or options["nul"]):
                        yield found
                elif (found.held or not held) and (found.corrupt or not corrupt) and not is_deleted(layout, found):
                    yield found
        return
    with Progress(None, "messages", "looked at") as progress:
        if ids:
            names = _checked(layout, mail, read_names(tuple(dict.fromkeys(ids))), progress)
            chosen = find(layout, names, selectors, now)
        else:
            chosen = select(layout, selectors, now, progress, every_state=True)
        chosen = (each for each in chosen if (each[0].held or not held) and (each[0].corrupt or not corrupt))
        if sort is None:
            for snapshot, _ in chosen:
                if not stdout_is_file():
                    progress.clear()
                yield snapshot
            return
        pairs = ((_sort_key(sort, snapshot, detail), snapshot.message) for snapshot, detail in chosen)
        limit = options["limit"]
        keys = islice(sort_outside(pairs), limit)
        # All are looked at before the first one is known.
        first = list(islice(keys, 1))
    with Progress(None, "messages", "listed", prints=True) as progress:
        for _, message in chain(first, keys):
            progress.step()
            again = look(layout, message)
            if again is not None:
                yield again


def _checked(layout: Layout, mail: StoredMail, names: Iterator[str], progress: Progress) -> Iterator[str]:
    """Yield the ids, each one checked. Raises Usage, NotFound."""
    for name in names:
        progress.step()
        yield check_long_id(layout, name, mail)


def _sort_key(sort: str, snapshot: Snapshot, detail: Detail) -> float | bytes:
    """Return the key of a message: the oldest, the largest, the most recipients left, the next attempt come first."""
    if sort == "sender":
        return (detail.sender or b"").lower()
    if sort == "size":
        return -(snapshot.size or 0)
    if sort == "recipients":
        return -len(detail.unsorted_left) - sum(channel.left for channel in detail.channels.values())
    if sort == "next":
        due = detail.next_attempt()
        return float("inf") if due is None else due
    return float("inf") if snapshot.birth is None else snapshot.birth


def stray_line(stray: Stray, form: str) -> str:
    """Return the line for a name that belongs to no message."""
    path = visible(stray.path.encode("utf-8", "surrogateescape"))
    return json.dumps({"stray": path, "trouble": stray.reason}) if form == "json" else f"- stray {path}: {stray.reason}"


def stored_line(message: StoredMessage, form: str, now: float, queue: str = "") -> str:
    """Return the line for a stored message. `queue` is the name of one of several."""
    facts = stored_facts(message, now)
    facts["id"] = pack_queue_id(queue, message.long_id)
    if form == "json":
        facts["recipients"] = stored_recipients(message)
        return json.dumps({"queue": queue, **facts} if queue else facts)
    first = message.first
    age = span(now - first.birth / 1e6)
    parts = _to(message.recipients)
    parts.append(f"for {message.domain.decode()}")
    if message.ordered:
        parts.append(f"ordered: {message.ordered}")
    if message.held is not None:
        parts.append(f"held: {facts['held']}")
    return _join_columns(str(facts["id"]), "stored", age, str(first.size), f"<{word(first.sender)}>", parts)


def _join_columns(name: str, state: str, age: str, size: str, sender: str, parts: list[str]) -> str:
    return ", ".join([" ".join((name, state, age, size, sender, *parts[:1])), *parts[1:]])


def _to(recipients: Iterable[bytes]) -> list[str]:
    """Return a part that names the first recipient, and says how many others there are; none without recipients."""
    left = list(recipients)
    more = f" and {len(left) - 1} more" if len(left) > 1 else ""
    return [f"to {word(left[0])}{more}"] if left else []


def _progress_of(name: str, done: int, left: int) -> str:
    """Return a part that says how many recipients of a channel are done, and how many are left."""
    counts = [f"{done} done"] * (done > 0) + [f"{left} left"] * (left > 0 or not done)
    return f"{name} {', '.join(counts)}"


def message_line(
    layout: Layout,
    snapshot: Snapshot,
    marks: LeftMarks | None,
    form: str,
    now: float,
    dead: DeadNexthops | None = None,
    queue: str = "",
) -> str:
    """Return the line for a message, empty if it is gone by now. `queue` is the name of one of several."""
    read = read_detail(layout, snapshot, marks)
    if read is None:
        return ""
    snapshot, detail = read
    facts = message_facts(layout, snapshot, detail, now, dead)
    facts["id"] = pack_queue_id(queue, snapshot.long_id)
    if form == "json":
        facts["recipients"] = [recipient_facts(each) for each in recipient_states(layout, snapshot, detail)]
        return json.dumps({"queue": queue, **facts} if queue else facts)
    return _text(snapshot, detail, facts, now)


def _text(snapshot: Snapshot, detail: Detail, facts: dict[str, object], now: float) -> str:
    age = "-" if snapshot.birth is None else span(now - snapshot.birth / 1e6)
    size = "-" if snapshot.size is None else str(snapshot.size)
    sender = "-" if detail.sender is None else f"<{word(detail.sender)}>"
    recipients = (address for channel in detail.channels.values() for done, address in channel.recipients if not done)
    parts = _to(chain(detail.unsorted_left, recipients))
    if detail.unsorted:
        left = len(detail.unsorted_left)
        parts.append(_progress_of("all", len(detail.unsorted) - left, left))
    parts += [_progress_of(name, channel.done, channel.left) for name, channel in detail.channels.items()]
    due = detail.next_attempt()
    if due is not None and not snapshot.held:
        parts.append("next now" if due <= now else f"next {moment(due)}")
    if facts["deleted"]:
        parts.append("deleted, being removed")
    parts += [f"{name}: {facts[name]}" for name in ("held", "corrupt") if facts[name] is not None]
    if facts["trouble"]:
        parts.append(f"unreadable: {facts['trouble']}")
    if facts["last"]:
        parts.append(f"last: {facts['last']}")
    return _join_columns(str(facts["id"]), snapshot.state, age, size, sender, parts)
