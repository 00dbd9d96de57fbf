"""queuectl adopt: takes a qmail home over in place, or gives a home back to qmail."""

import os

import click

from queue_admin.home.adoption import adopt, adopt_run, undo
from queue_admin.home.chosen import each_queue, home_of
from queue_admin.progress import Progress
from queue_admin.system_accounts import ensure_accounts, find_qmail_accounts, myself
from queue_base.accounts import Owner, queue_owner
from queue_base.errors import Permanent, Usage
from queue_base.home import Home
from queue_base.shell_completion import complete_directory


@click.command("adopt")
@click.argument("home", required=False, shell_complete=complete_directory)
@click.option("--undo", "back", is_flag=True, help="Give the home back to qmail, with what is in the queue now.")
@click.option("--as-me", is_flag=True, help="As root: keep the queue as your own, make no accounts.")
@click.option("--todo", type=click.Choice(["flat", "hashed"]), help="With --undo: what a hashed todo/ becomes.")
@click.option("--force", is_flag=True, help="With --undo: drop marks and copies of messages, leave lmtp: routes.")
@click.pass_context
def command(context: click.Context, home: str | None, back: bool, as_me: bool, todo: str | None, force: bool) -> None:
    """Take over a qmail home, or give it back.

    HOME is by default that of --home, else QUEUE_HOME, else /var/queue.

    Stop qmail-send (with --undo: queue-send) first. Owners and modes are changed and missing directories are made;
    no message is changed, but that --undo removes recipients that are done from
    envelopes that queue-send has not finished. After an interruption, run it again, in either direction.

    Of several queues it takes over all, one after the other, or the one that --queue names: a disk of another host,
    where the accounts have other numbers. qmail has one queue, so --undo needs --queue.

    \b
    Examples:
      queuectl adopt /var/qmail
      queuectl adopt /var/qmail --undo
      queuectl adopt /srv/queue --undo --todo flat
    """
    where = home_of(context, home)
    if not back and (todo or force):
        raise Usage("--todo and --force go with --undo")
    if back:
        if as_me or os.geteuid() != 0:
            raise Permanent("unable to undo: only root can give files to qmail's accounts")
        if not where.is_chosen:
            names = ", ".join(where.queues)
            raise Usage(f"unable to undo: qmail has one queue, {where.path} has {names}; --queue NAME names one")
        accounts = find_qmail_accounts()
        with Progress(None, "files", "looked at") as progress:
            done = undo(where, accounts, todo=todo, force=force, progress=progress)
        print("\n".join(done))
        return
    me = myself()
    for one in where.each():
        if me.uid != 0 and os.path.isdir(one.queue) and queue_owner(one).uid != me.uid:
            raise Permanent(f"unable to adopt {where.path}: {one.queue} is not yours, and only root can change that")
    if as_me or me.uid != 0:
        owner = me
    else:
        owner, made = ensure_accounts()
        print("".join(f"made {name}\n" for name in made), end="")
    if not where.is_chosen:
        print("".join(f"{line}\n" for line in adopt_run(where, owner)), end="")
    each_queue(where, lambda one: _adopt(one, owner))


def _adopt(home: Home, owner: Owner) -> None:
    with Progress(None, "files", "looked at") as progress:
        done = adopt(home, owner, progress)
    print("\n".join(done))
