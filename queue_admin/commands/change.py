"""queuectl hold, release, requeue, delete, bounce, flush: change messages, whether queue-send runs or not."""

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
from queue_base.home import find_home
from queue_base.layout import open_layout
from queue_base.marks import clean_reason
from queue_wire.address import split_address
from queue_wire.admin.socket import HOLD, IDS_MOST, NEWS, PROBE, TROUBLE, Request

Chosen = tuple[str, set[bytes]]
T = TypeVar("T")

_HELP = """{first}

IDS are long ids, as `queuectl list` prints them; without any, selectors choose, and all that are given
must fit. Works while queue-send runs and while it does not. Repeating it does no harm; messages that are gone
are named, and are no error.

{more}

\b
Examples:
{examples}
"""
_COMMANDS = {
    "hold": (
        "held",
        "Freeze messages: no delivery starts until they are released.",
        "What is in flight ends as it would. A message on hold does not expire.",
        ["hold --sender news@example.com --reason 'complaints, ask Jo'", "hold 457-h5x3k2j1z9"],
    ),
    "release": (
        "released",
        "Let held messages go on, and have corrupt ones read again.",
        "They are tried at once.",
        ["release --all", "release 457-h5x3k2j1z9"],
    ),
    "requeue": (
        "requeued",
        "Make messages new: born now, tried at once, with a whole lifetime before them.",
        "They get new long ids, which are printed.",
        ["requeue --domain example.net", "requeue 457-h5x3k2j1z9"],
    ),
    "delete": (
        "deleted",
        "End messages without a bounce, whatever is left of them.",
        "What is in flight ends as it would. Nobody is told: to tell the sender, use bounce.",
        ["delete 457-h5x3k2j1z9", "delete --sender spammer@example.com --dry-run"],
    ),
    "bounce": (
        "bounced",
        "Give messages back to their senders now: every recipient that is left fails.",
        "What is in flight ends as it would.",
        ["bounce --recipient gone@example.net", "bounce --older-than 2d --domain example.net"],
    ),
    "flush": (
        "flushed",
        "Try messages now, all their recipients. A dead destination of theirs is probed.",
        "Messages on hold stay there.",
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
    chosen = find(layout, check_long_ids(layout, ids)) if ids else select(layout, selectors, time.time())
    if options["dry_run"]:
        count = 0
        for name, _ in chosen:
            print(name)
            count += 1
        print(f"would have {_COMMANDS[verb][0]} {_messages(count)}")
        return
    queue = connect_or_lock(home, layout)
    reason = clean_reason((options.get("reason") or "by the administrator").encode("utf-8", "surrogateescape"))
    touched, trouble = 0, False
    for batch in _batches(chosen):
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


def _domains(batch: list[Chosen], domain: str | None) -> list[bytes]:
    """Return the domains to be probed for these messages."""
    if domain is not None:
        return [domain.encode().lower()]
    found = {split_address(address)[1] for _, left in batch for address in left}
    return sorted(name for name in found if name and b"\0" not in name)


def _command(verb: str) -> click.Command:
    _, first, more, examples = _COMMANDS[verb]

    @click.argument("ids", nargs=-1, metavar="[IDS]...")
    @click.option("--sender", metavar="ADDRESS", help="Messages from this sender; '' for bounces.")
    @click.option("--recipient", metavar="ADDRESS", help="Messages that this recipient is still to get.")
    @click.option("--domain", help="Messages with a recipient left in this domain.")
    @click.option("--older-than", metavar="TIME", help="Messages at least so old, as in 90s, 15m, 12h, 2d, 1w.")
    @click.option("--all", "all_messages", is_flag=True, help="All messages.")
    @click.option("--dry-run", is_flag=True, help="Print the long ids that are chosen and change nothing.")
    @click.pass_context
    def command(context: click.Context, /, ids: tuple[str, ...], **options: Any) -> None:
        _run(context, verb, ids, options)

    lines = "\n".join(f"  queuectl {example}" for example in examples)
    wrap: Callable[..., click.Command] = click.command(verb, help=_HELP.format(first=first, more=more, examples=lines))
    if verb == "hold":
        return wrap(click.option("--reason", metavar="TEXT", help="Why, for whoever looks at it later.")(command))
    return wrap(command)


commands = [_command(verb) for verb in _COMMANDS]
