"""queuectl repair: mends a queue that was copied, restored or damaged, and changes its split."""

import json
import os
import time

import click

from queue_admin.checks.finding_text import show_finding
from queue_admin.checks.inspection import inspect
from queue_admin.checks.queue_repair import repair
from queue_admin.checks.structure import find_layout, owner_of_ours, unable
from queue_admin.home.chosen import each_queue, home_of, with_queue
from queue_admin.printable import visible
from queue_admin.progress import Progress
from queue_admin.system_accounts import be_owner
from queue_base.daemon.processes import raise_file_limit
from queue_base.home import Home
from queue_base.shell_completion import complete_directory


@click.command("repair")
@click.argument("home", required=False, shell_complete=complete_directory)
@click.option("--split", type=click.IntRange(1, 100_000), help="Change the number of directories to this prime.")
@click.option("--take-over", is_flag=True, help="Let a copy run instead of the queue that it was copied from.")
@click.option("--dry-run", is_flag=True, help="Say what is wrong and what would be done; change nothing.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
@click.pass_context
def command(
    context: click.Context, home: str | None, split: int | None, take_over: bool, dry_run: bool, form: str
) -> None:
    """Mend a queue that was restored from a backup, copied, or damaged.

    HOME is by default that of --home, else QUEUE_HOME, else /var/queue.

    Stop the suite first (svc -d, sv down, systemctl stop); mail that is injected meanwhile is refused for now. Messages
    get the numbers that their files have now, files their directories, owners and modes; what is missing is made. What
    could be delivered is never removed: a message that cannot be read is parked, and what belongs to no message is
    moved to queue/corrupt/unplaced/, with the reason, for a person. It may be killed at any point: run it again.

    Of several queues it mends all, one after the other, or the one that --queue names. One that cannot be mended,
    because its queue-send runs or its disk is not there, is named, and the others are mended.

    With --format json each line is an object: repaired, what was done; with --dry-run the object of queuectl check.

    \b
    Examples:
      queuectl repair --dry-run
      queuectl repair
      queuectl repair --split 97
      queuectl repair /backup/queue --take-over
    """
    where = home_of(context, home)
    if dry_run:
        each_queue(where, lambda one: _say(one, split, form), heading=form == "text")
        return
    raise_file_limit()
    each_queue(where, lambda one: _mend(one, split, take_over, form), heading=form == "text", apart=True)


def _mend(home: Home, split: int | None, take_over: bool, form: str) -> None:
    """Mend one queue, and say what was done. Root becomes its owner. Raises Failure."""
    with Progress(None, "files", "looked at") as progress:
        done = repair(home, split, take_over, progress.step)
    for each in done:
        what = visible(os.fsencode(each))
        print(json.dumps(with_queue(home, {"repaired": what})) if form == "json" else f"repaired: {what}")
    if form == "json":
        return
    print(f"{home.queue} is in order" if not done else "done; queuectl check looks at the result")


def _say(home: Home, split: int | None, form: str) -> None:
    owner = owner_of_ours(home)
    be_owner(home)
    found = 0
    try:
        layout = find_layout(home.queue)
        with Progress(None, "messages", "looked at") as progress:
            for finding in inspect(layout, (owner.uid, owner.gid), time.time(), step=progress.step, home=home):
                found += 1
                progress.clear()
                print(show_finding(layout, finding, form, home.name))
    except BrokenPipeError:
        raise  # Whoever reads the findings has seen enough.
    except OSError as error:
        raise unable(error, home.queue) from error
    if form == "json":
        return
    print(f"findings: {found}")
    if split not in (None, layout.split):
        print(f"the split would be {split}; it is {layout.split}")
