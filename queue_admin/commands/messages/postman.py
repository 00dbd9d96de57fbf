"""queuectl postman: the copies for the postmaster in queue/postman/, listed, printed and removed."""

import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import click

from queue_admin.home.chosen import each_queue, home_of, with_queue
from queue_admin.messages.survey import open_regular
from queue_admin.printable import span
from queue_admin.question import ASKED_FROM, ask
from queue_admin.system_accounts import be_owner
from queue_base.durable import Commit
from queue_base.errors import NotFound, Temporary, Usage, reason
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_base.queue.postman import DIRECTORY, unpack_copy_name
from queue_wire.ids import pack_queue_id, split_queue_id
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
    terminal, a question comes before more than 100 are removed; --yes answers it. Of several queues, a name has that of
    its queue before it, `first/2663293_no-date`.

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
    home = home_of(context)
    be_owner(home)
    each_queue(home, lambda one: _list(one, form), heading=False)


def _list(home: Home, form: str) -> None:
    """List the copies of one queue. Raises Exit if there are none, Temporary."""
    now = time.time()
    found = False
    for copy in find_copies(_directory(home)):
        found = True
        name = pack_queue_id(home.name, copy.name)
        if form == "json":
            facts = {"copy": name, "message": copy.message, "cause": copy.cause, "bytes": copy.size}
            print(json.dumps(with_queue(home, facts | {"since": moment(copy.since)})))
        else:
            print(f"{name} {span(now - copy.since)} {copy.size}")
    if not found:
        raise click.exceptions.Exit(1)


@command.command("show")
@click.argument("name", metavar="NAME")
@click.pass_context
def show(context: click.Context, name: str) -> None:
    """Print a copy, byte for byte. Exit 1 if it is not there.

    \b
    Example:
      queuectl postman show 2663293_no-date
    """
    home = home_of(context)
    be_owner(home)
    (queue,) = _by_queue(home, [name])
    one = home.choose(queue) if home.several else home
    path = f"{_directory(one)}/{split_queue_id(name)[1]}"
    try:
        source = open_regular(path)
    except FileNotFoundError as error:
        raise NotFound(f"unable to find {path}: no such copy; queuectl postman list prints the names") from error
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
    home = home_of(context)
    be_owner(home)
    shares = _by_queue(home, names)

    def act(one: Home) -> None:
        """Remove copies of one queue. Raises Exit, Temporary."""
        if every or one.name in shares:
            _remove(one, None if every else shares[one.name], dry_run, yes)

    if every:
        each_queue(home, act)
        return
    each_queue(home, act, heading=False, both=True)


def _remove(home: Home, names: list[str] | None, dry_run: bool, yes: bool) -> None:
    """Remove copies of one queue, all if `names` is None. Raises Exit if one of them is not there, Temporary."""
    directory = _directory(home)
    wanted = [copy.name for copy in find_copies(directory)] if names is None else names
    if dry_run:
        there = [name for name in wanted if os.path.lexists(f"{directory}/{name}")]
        for name in there:
            print(pack_queue_id(home.name, name))
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
    for name in wanted:
        if name not in there:
            print(f"{pack_queue_id(home.name, name)}: no such copy", file=sys.stderr)
    if not there or len(there) < len(wanted):
        raise click.exceptions.Exit(1)


def _directory(home: Home) -> str:
    open_layout(home.queue)
    return f"{home.queue}/{DIRECTORY}"


def _by_queue(home: Home, names: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of copies by their queues; a name without a queue is looked for in all. Raises Usage."""
    found: dict[str, list[str]] = {}
    for name in names:
        queue, rest = split_queue_id(name)
        if unpack_copy_name(rest) is None or (queue and (queue not in home.queues or home.name not in ("", queue))):
            raise Usage(f"not the name of a copy: {name!r}; queuectl postman list prints the names")
        homes = home.each()
        having = [queue] if queue and home.several else [
            one.name for one in homes if len(homes) == 1 or os.path.lexists(f"{one.queue}/{DIRECTORY}/{rest}")
        ]  # fmt: skip
        if len(having) > 1:
            both = " and ".join(pack_queue_id(each, rest) for each in having)
            raise Usage(f"unable to use {name}: there are {both}; name one of them")
        found.setdefault(having[0] if having else homes[0].name, []).append(rest)
    return found


def _copies(count: int) -> str:
    return f"{count} copy" if count == 1 else f"{count} copies"
