"""queuectl check: everything that is wrong in a queue, one line each. Reads only."""

import time

import click

from queue_admin.checks.finding_text import show_finding
from queue_admin.checks.inspection import inspect
from queue_admin.checks.structure import find_layout, owner_of_ours, unable
from queue_admin.home.chosen import each_queue, home_of
from queue_admin.progress import Progress
from queue_admin.system_accounts import be_owner
from queue_base.home import Home
from queue_base.shell_completion import complete_directory

NOTHING, FOUND = 0, 1


@click.command("check")
@click.argument("home", required=False, shell_complete=complete_directory)
@click.option("--network", is_flag=True, help="Accept a network file system.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
@click.pass_context
def command(context: click.Context, home: str | None, network: bool, form: str) -> None:
    """Look for everything that is wrong in a queue, and say what it means and what repair does about it.

    HOME is by default that of --home, else QUEUE_HOME, else /var/queue. It needs no lock, changes nothing, and may run
    while the suite runs: what seems wrong is looked at again before it is reported.

    Exit 0 if nothing is wrong, 1 if something was found, 100 or 111 if the queue cannot be looked at.

    With --format json each line is an object: finding (the kind), path (below queue/), message (its long id, or null),
    what, means, repair.

    \b
    Examples:
      queuectl check
      queuectl check /backup/queue
      queuectl check --format json
    """
    where = home_of(context, home)
    if where.several:
        be_owner(where)
    each_queue(where, lambda one: _check(one, network, form), heading=form == "text", both=True)


def _check(where: Home, network: bool, form: str) -> None:
    """Print what is wrong in one queue. Raises Exit with the code."""
    owner = owner_of_ours(where)
    be_owner(where)
    code = NOTHING
    try:
        layout = find_layout(where.queue)
        with Progress(None, "messages", "looked at") as progress:
            for finding in inspect(layout, (owner.uid, owner.gid), time.time(), step=progress.step, home=where):
                if finding.code == "file-system" and network:
                    continue
                code = FOUND
                progress.clear()
                print(show_finding(layout, finding, form, where.name))
    except BrokenPipeError:
        raise  # Whoever reads the findings has seen enough.
    except OSError as error:
        raise unable(error, where.queue) from error
    if code:
        raise click.exceptions.Exit(code)
