"""queuectl copy: a consistent copy of a home on another disk, also while the suite runs."""

import os

import click

from queue_admin.checks.home_copy import copy_home
from queue_admin.checks.structure import owner_of_ours
from queue_admin.home.chosen import home_of
from queue_admin.printable import visible
from queue_admin.progress import Progress
from queue_base.errors import Permanent, Temporary, Usage, complain, reason
from queue_base.home import find_home
from queue_base.shell_completion import complete_directory

INCOMPLETE = 1


@click.command("copy")
@click.argument("target", metavar="HOME2", shell_complete=complete_directory)
@click.pass_context
def command(context: click.Context, target: str) -> None:
    """Copy the home to the new directory HOME2, with every message that is in the queue.

    The suite may run meanwhile. The copy has each message as it was at one moment, with the recipients that were not
    done then. So a copy that runs delivers again what the original has delivered since: it does not start before
    `queuectl repair HOME2 --take-over`. Its inode numbers are right; list, show, stat and check work on it at once.

    control/, alias/ and users/ are copied with owners, modes and times. Not copied: what is being injected, what was
    set aside in queue/corrupt/maildrop and queue/corrupt/unplaced, and mailboxes, which are not in the home.

    Of several queues all are copied, as HOME2/queues/NAME, which HOME2/control/queues lists. With --queue the copy has
    that one alone.

    Exit 0: the copy is complete; messages that were delivered meanwhile are not missed. 1: HOME2 is made, but what the
    warnings name is not in it. 100, 111: there is no copy.

    \b
    Examples:
      queuectl copy /backup/queue-2026-11-22
      queuectl --home /srv/queue copy /mnt/new/queue
    """
    home, other = home_of(context), find_home(target)
    if f"{os.path.realpath(other.path)}/".startswith(f"{os.path.realpath(home.path)}/"):
        raise Usage(f"unable to copy {home.path} into itself")
    for one in home.each():
        owner = owner_of_ours(one)
        if os.geteuid() not in (0, owner.uid):
            raise Permanent(f"unable to copy {home.path}: {one.queue} belongs to uid {owner.uid}, and you are not root")
    os.umask(0o077)
    try:
        with Progress(None, "messages", "copied") as progress:
            done = copy_home(home, other, progress.step)
    except OSError as error:
        what = error.filename2 or error.filename or other.path
        begun = f"; remove {other.path}.new and try again" if os.path.lexists(f"{other.path}.new") else ""
        raise Temporary(f"unable to copy {what}: {reason(error)}{begun}") from error
    for each in done.left:
        complain("queuectl", f"warning: not copied: {visible(os.fsencode(each))}")
    print(f"copied {done.messages} messages and {done.maildrop} files of maildrop to {other.path}")
    if done.ended:
        print(f"{done.ended} messages ended meanwhile")
    print(f"it does not start before: queuectl repair {other.path} --take-over")
    if done.left:
        complain("queuectl", f"warning: {other.path} is not complete: {len(done.left)} not copied, see above")
        context.exit(INCOMPLETE)
