"""queuectl hold, release, requeue, delete, bounce, flush: change messages, whether queue-send runs or not.

All six select messages in the same way, and send them in batches as one kind of order.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

import click

from queue_admin.messages.admin_client import connect_or_lock
from queue_admin.messages.selectors import Selectors, check_long_ids, find, select, unpack_span
from queue_admin.system_accounts import be_owner
from queue_base.control import read_map
from queue_base.errors import Temporary, Usage
from queue_base.hold_marks import clean_reason
from queue_base.home import find_home
from queue_base.layout import open_layout
from queue_wire.address import split_address
from queue_wire.admin.socket import HOLD, IDS_MOST, NEWS, PROBE, TROUBLE, Request

Selected = tuple[str, set[bytes]]  # A long id and the pending recipients.
T = TypeVar("T")

_HELP = """{first}

IDS are long ids, as `queuectl list` prints them. Without IDS, the messages that match all given selectors
are changed. Works whether queue-send runs or not. Repeating a command does no harm; messages that are gone
are named, and are not an error.

{more}

\b
Examples:
{examples}
"""
_COMMANDS = {
    "hold": (
        "held",
        "Freeze messages: no delivery starts until they are released.",
        "Deliveries in flight are finished. A message on hold does not expire.",
        ["hold --sender news@example.com --reason 'complaints, ask Jo'", "hold 457-h5x3k2j1z9"],
    ),
    "release": (
        "released",
        "Release held messages, and have corrupt ones read again.",
        "They are due at once.",
        ["release --all", "release 457-h5x3k2j1z9"],
    ),
    "requeue": (
        "requeued",
        "Give messages a new birth: they are due at once and have their whole lifetime again.",
        "They get new long ids, which are printed.",
        ["requeue --domain example.net", "requeue 457-h5x3k2j1z9"],
    ),
    "delete": (
        "deleted",
        "Remove messages without a bounce, with all their pending recipients.",
        "Deliveries in flight are finished. The sender is not told; to tell the sender, use bounce.",
        ["delete 457-h5x3k2j1z9", "delete --sender spammer@example.com --dry-run"],
    ),
    "bounce": (
        "bounced",
        "Return messages to their senders now: every pending recipient fails.",
        "Deliveries in flight are finished.",
        ["bounce --recipient gone@example.net", "bounce --older-than 2d --domain example.net"],
    ),
    "flush": (
        "flushed",
        "Attempt messages now, for all pending recipients. Their dead destinations are probed.",
        "Messages on hold stay on hold.",
        ["flush --domain example.net", "flush 457-h5x3k2j1z9"],
    ),
}


def _run(context: click.Context, verb: str, ids: tuple[str, ...], options: dict[str, Any]) -> None:
    home = find_home(context.obj)
    # Before be_owner: perhaps only root can read the control file.
    prepends = read_map(home, "virtualdomains") or {}
    be_owner(home)
    layout = open_layout(home.queue)
    older = options["older_than"]
    selectors = Selectors(
        _lower(options["sender"]),
        _lower(options["recipient"]),
        _lower(options["domain"]),
        None if older is None else unpack_span(older),
        prepends,
    )
    if (bool(ids) + selectors.any + options["all_messages"]) != 1:
        raise Usage("give long ids, or selectors, or --all")
    selected = find(layout, check_long_ids(layout, ids)) if ids else select(layout, selectors, time.time())
    if options["dry_run"]:
        count = 0
        for name, _ in selected:
            print(name)
            count += 1
        print(f"would have {_COMMANDS[verb][0]} {_messages(count)}")
        return
    queue = connect_or_lock(home, layout)
    reason = clean_reason((options.get("reason") or "by the administrator").encode("utf-8", "surrogateescape"))
    touched, trouble = 0, False
    for batch in _batches(selected):
        if verb == "flush":
            for domains in _batches(_domains(batch, options["domain"])):
                queue.ask(Request(PROBE, b"", domains))
        names = [name.encode() for name, _ in batch]
        command = verb.encode()
        response = queue.ask(Request(command, reason if command == HOLD else b"", names))
        touched += response.touched
        for note in response.notes:
            trouble = trouble or note.letter == TROUBLE
            text = note.text.decode("utf-8", "backslashreplace")
            print(text, file=sys.stdout if note.letter == NEWS else sys.stderr)
    print(f"{_COMMANDS[verb][0]} {_messages(touched)}")
    if trouble:
        raise Temporary("unable to change some of the messages: see above; try again")


def _lower(option: str | None) -> bytes | None:
    return None if option is None else option.encode().lower()


def _messages(count: int) -> str:
    return f"{count} message" if count == 1 else f"{count} messages"


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while batch := list(islice(rest, IDS_MOST)):
        yield batch


def _domains(batch: list[Selected], domain: str | None) -> list[bytes]:
    """Return the domains to probe for these messages."""
    if domain is not None:
        return [domain.encode().lower()]
    found = {split_address(address)[1] for _, left in batch for address in left}
    return sorted(name for name in found if name and b"\0" not in name)


def _command(verb: str) -> click.Command:
    _, first, more, examples = _COMMANDS[verb]

    @click.argument("ids", nargs=-1, metavar="[IDS]...")
    @click.option("--sender", metavar="ADDRESS", help="Messages from this sender; '' for bounces.")
    @click.option("--recipient", metavar="ADDRESS", help="Messages with this pending recipient.")
    @click.option("--domain", help="Messages with a pending recipient in this domain.")
    @click.option("--older-than", metavar="TIME", help="Messages of at least this age, such as 90s, 15m, 12h, 2d, 1w.")
    @click.option("--all", "all_messages", is_flag=True, help="All messages.")
    @click.option("--dry-run", is_flag=True, help="Print the long ids of the selected messages and change nothing.")
    @click.pass_context
    def command(context: click.Context, /, ids: tuple[str, ...], **options: Any) -> None:
        _run(context, verb, ids, options)

    lines = "\n".join(f"  queuectl {example}" for example in examples)
    wrap: Callable[..., click.Command] = click.command(verb, help=_HELP.format(first=first, more=more, examples=lines))
    if verb == "hold":
        return wrap(click.option("--reason", metavar="TEXT", help="The reason, which list and show print.")(command))
    return wrap(command)


commands = [_command(verb) for verb in _COMMANDS]
