"""queuectl maildrop: what users have left in maildrop/, listed, removed, or held back."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from queue_admin.home.chosen import each_queue, home_of, with_queue
from queue_admin.messages.maildrop_files import dropped_files, hold_dropped, release_dropped, remove_dropped
from queue_admin.printable import span
from queue_admin.progress import Progress
from queue_admin.question import ASKED_FROM, ask
from queue_admin.system_accounts import be_owner
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.logline import moment


class Act(NamedTuple):
    """What is done to a user's files: the word for what is done, whether it is for files in maildrop/ (False), on hold
    (True), or both, and the function that does it."""

    done: str
    places: tuple[bool, ...]
    change: Callable[[str, int, Callable[[], None]], int]


ACTS = {
    "remove": Act("removed", (False, True), remove_dropped),
    "hold": Act("held", (False,), hold_dropped),
    "release": Act("released", (True,), release_dropped),
}


def act_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that remove, hold and release have."""
    for option in (
        click.option("--yes", is_flag=True, help="Ask no question."),
        click.option("--dry-run", is_flag=True, help="Print the names of the files and change nothing."),
        click.option("--uid", type=click.IntRange(min=0), required=True, help="Files of this user."),
    ):
        function = option(function)
    return function


@click.group("maildrop")
def command() -> None:
    """List, remove or hold what users have left in maildrop/.

    Users who may not write to the queue leave their mail there, and queue-pickup copies it into the queue within
    moments. What it takes is held by `queuectl hold --uid N --standing`. On a terminal, a question comes before more
    than 100 files are changed; --yes answers it.

    \b
    Examples:
      queuectl maildrop list
      queuectl maildrop hold --uid 1007
      queuectl maildrop remove --uid 1007
    """


@command.command("list")
@click.option("--uid", type=click.IntRange(min=0), help="Only files of this user.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
@click.pass_context
def list_files(context: click.Context, uid: int | None, form: str) -> None:
    """List the files, one a line; without --uid, the number of files of each user.

    It changes nothing. Exit 1 if there are none of the user.

    \b
    Example:
      queuectl maildrop list --uid 1007
    """
    home = _home(context)
    each_queue(home, lambda one: _list(one, uid, form), heading=form == "text")


def _list(home: Home, uid: int | None, form: str) -> None:
    """List the files of one queue. Raises Exit if there are none of the user."""
    open_layout(home.queue)
    if uid is None:
        counts = Counter[tuple[int, bool]]()
        with Progress(None, "files", "looked at") as progress:
            for each in dropped_files(home.queue, None):
                counts[each.uid, each.held] += 1
                progress.step()
        for (owner, held), count in sorted(counts.items()):
            row = {"uid": owner, "held": held, "files": count}
            text = f"uid {owner}: {count}{' held' if held else ''}"
            print(json.dumps(with_queue(home, row)) if form == "json" else text)
        return
    now = time.time()
    with Progress(None, "files", "listed", prints=True) as progress:
        for file in dropped_files(home.queue, uid):
            progress.step()
            if form == "json":
                facts = {"file": file.name, "uid": file.uid, "bytes": file.size, "since": moment(file.since)}
                print(json.dumps(with_queue(home, facts | {"held": file.held})))
            else:
                print(f"{file.name} uid {file.uid} {span(now - file.since)} {file.size}{' held' if file.held else ''}")
    if not progress.done:
        raise click.exceptions.Exit(1)


@command.command("remove")
@act_options
@click.pass_context
def remove(context: click.Context, /, **options: Any) -> None:
    """Remove a user's files, also those on hold. The user is not told.

    Exit 1 if there are none.

    \b
    Examples:
      queuectl maildrop remove --uid 1007 --dry-run
      queuectl maildrop remove --uid 1007
    """
    _act(_home(context), "remove", **options)


@command.command("hold")
@act_options
@click.pass_context
def hold(context: click.Context, /, **options: Any) -> None:
    """Hold a user's files back: queue-pickup does not take them, and the user cannot reach them.

    They lie in queue/hold/maildrop/ until `maildrop release` or `maildrop remove`. Exit 1 if there are none.

    \b
    Example:
      queuectl maildrop hold --uid 1007
    """
    _act(_home(context), "hold", **options)


@command.command("release")
@act_options
@click.pass_context
def release(context: click.Context, /, **options: Any) -> None:
    """Give a user's files on hold back to queue-pickup. Exit 1 if there are none.

    \b
    Example:
      queuectl maildrop release --uid 1007
    """
    _act(_home(context), "release", **options)


def _home(context: click.Context) -> Home:
    home = home_of(context)
    be_owner(home)
    return home


def _act(home: Home, verb: str, uid: int, dry_run: bool, yes: bool) -> None:
    """Do one of the acts in all queues, or print what it would change. Raises Permanent if the answer is no."""
    each_queue(home, lambda one: _act_in(one, verb, uid, dry_run, yes))


def _act_in(home: Home, verb: str, uid: int, dry_run: bool, yes: bool) -> None:
    open_layout(home.queue)
    done, places, change = ACTS[verb]
    if dry_run:
        count = 0
        for file in dropped_files(home.queue, uid):
            if file.held in places:
                print(file.name)
                count += 1
        sys.stdout.flush()
        print(f"would have {done} {_files(count)}", file=sys.stderr)
    else:
        if not yes and sys.stderr.isatty():
            with Progress(None, "files", "looked at") as progress:
                for file in dropped_files(home.queue, uid):
                    progress.step(file.held in places)
            if progress.done > ASKED_FROM:
                ask(f"{verb.capitalize()} {_files(progress.done)} of uid {uid}?", f"nothing is {done}")
        with Progress(None, "files", done) as progress:
            count = change(home.queue, uid, progress.step)
        print(f"{done} {_files(count)}")
    if not count:
        raise click.exceptions.Exit(1)


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"
