"""queuectl postman: the copies for the postmaster in queue/postman/, listed, printed and removed."""

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import click

from queue_admin.home.chosen import home_of
from queue_admin.messages.survey import open_regular
from queue_admin.printable import span
from queue_admin.question import ASKED_FROM, ask
from queue_admin.system_accounts import be_owner
from queue_base.durable import Commit
from queue_base.errors import Permanent, Temporary, Usage, reason
from queue_base.queue.layout import open_layout
from queue_base.queue.postman import DIRECTORY, unpack_copy_name
from queue_wire.logline import moment


class PostmanCopy(NamedTuple):
    """A copy: its name, the number of its message, the cause, its bytes, and when its message came, in seconds."""

    name: str
    message: int
    cause: str
    size: int
    since: float


def find_copies(directory: str) -> Iterator[PostmanCopy]:
    """Yield the copies, in order of their names. Raises Temporary."""
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
        for name in names:
            found = unpack_copy_name(name)
            if found is None:
                continue
            try:
                status = os.lstat(f"{directory}/{name}")
            except FileNotFoundError:
                continue
            yield PostmanCopy(name, *found, status.st_size, status.st_mtime)
    except FileNotFoundError:
        return
    except OSError as error:
        raise Temporary(f"unable to read {directory}: {reason(error)}") from error


@click.group("postman")
def command() -> None:
    """List, print or remove the copies that were kept for the postmaster.

    A copy is kept of mail whose header breaks RFC 5322 where `control/headerfaults` says `copy`. Its name is that of
    the message's number and the cause. There is room for 1,000 of them, with 256 MB; then no more are kept. On a
    terminal, a question comes before more than 100 are removed; --yes answers it.

    \b
    Examples:
      queuectl postman list
      queuectl postman show 2663293_no-date
      queuectl postman remove --all
    """


@command.command("list")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
@click.pass_context
def list_copies(context: click.Context, form: str) -> None:
    """List the copies, one a line: name, age and bytes. Exit 1 if there are none.

    \b
    Example:
      queuectl postman list
    """
    now = time.time()
    found = False
    for copy in find_copies(_directory(context)):
        found = True
        if form == "json":
            facts = {"copy": copy.name, "message": copy.message, "cause": copy.cause, "bytes": copy.size}
            print(json.dumps(facts | {"since": moment(copy.since)}))
        else:
            print(f"{copy.name} {span(now - copy.since)} {copy.size}")
    if not found:
        raise click.exceptions.Exit(1)


@command.command("show")
@click.argument("name", metavar="NAME")
@click.pass_context
def show(context: click.Context, name: str) -> None:
    """Print a copy, byte for byte.

    \b
    Example:
      queuectl postman show 2663293_no-date
    """
    path = f"{_directory(context)}/{_checked(name)}"
    try:
        source = open_regular(path)
    except FileNotFoundError as error:
        raise Permanent(f"unable to find {path}; queuectl postman list prints the names") from error
    except OSError as error:
        raise Temporary(f"unable to read {path}: {reason(error)}") from error
    sys.stdout.flush()
    with os.fdopen(source, "rb") as message:
        shutil.copyfileobj(message, sys.stdout.buffer, 1 << 20)


@command.command("remove")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Remove all of them.")
@click.option("--dry-run", is_flag=True, help="Print the names of the copies and change nothing.")
@click.option("--yes", is_flag=True, help="Ask no question.")
@click.pass_context
def remove(context: click.Context, names: tuple[str, ...], every: bool, dry_run: bool, yes: bool) -> None:
    """Remove copies. Their messages are not touched. Exit 1 if one of them, or every one, is not there.

    \b
    Examples:
      queuectl postman remove 2663293_no-date
      queuectl postman remove --all --dry-run
    """
    if every == bool(names):
        raise Usage("unable to remove copies: name them, or say --all")
    directory = _directory(context)
    wanted = [copy.name for copy in find_copies(directory)] if every else [_checked(name) for name in names]
    if dry_run:
        there = [name for name in wanted if os.path.lexists(f"{directory}/{name}")]
        for name in there:
            print(name)
        sys.stdout.flush()
        print(f"would have removed {_copies(len(there))}", file=sys.stderr)
    else:
        if not yes and sys.stderr.isatty() and len(wanted) > ASKED_FROM:
            ask(f"Remove {_copies(len(wanted))}?", "nothing is removed")
        commit = Commit()
        try:
            there = [name for name in wanted if commit.unlink(f"{directory}/{name}")]
            commit.sync()
        except OSError as error:
            raise Temporary(f"unable to remove copies in {directory}: {reason(error)}") from error
        print(f"removed {_copies(len(there))}")
    if not there or len(there) < len(wanted):
        raise click.exceptions.Exit(1)


def _directory(context: click.Context) -> str:
    home = home_of(context)
    be_owner(home)
    open_layout(home.queue)
    return f"{home.queue}/{DIRECTORY}"


def _checked(name: str) -> str:
    if unpack_copy_name(name) is None:
        raise Usage(f"not the name of a copy: {name!r}; queuectl postman list prints the names")
    return name


def _copies(count: int) -> str:
    return f"{count} copy" if count == 1 else f"{count} copies"
