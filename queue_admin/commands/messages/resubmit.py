"""queuectl resubmit: have queue-todo try messages now that it could not classify."""

import sys

import click

from queue_admin.home.chosen import each_queue, home_of, share_names
from queue_admin.messages.admin_client import connect
from queue_admin.messages.named_message import check_long_id
from queue_admin.printable import visible
from queue_admin.system_accounts import be_owner
from queue_base.errors import Temporary, Usage
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_wire.admin.socket import GONE, IDS_MAX, RESUBMIT, Request


@click.command("resubmit")
@click.argument("ids", nargs=-1, metavar="[IDS]...")
@click.option("--all", "all_messages", is_flag=True, help="All messages that wait in todo/.")
@click.pass_context
def command(context: click.Context, ids: tuple[str, ...], all_messages: bool) -> None:
    """Have messages classified now whose classification has failed.

    queue-todo tries them again by itself, after 30 seconds and then after twice as long each time, half an hour at
    most; `queuectl show` has the reason. IDS are long ids, as `queuectl list` prints them.

    While queue-send does not run there is nothing to do: it begins with all messages in todo/. Exit 1 if no message
    was found, except with --all.

    \b
    Examples:
      queuectl resubmit --all
      queuectl resubmit 457-h5x3k2j1z9
    """
    home = home_of(context)
    be_owner(home)
    if bool(ids) == all_messages:
        raise Usage("give long ids, or --all")
    if not home.several:
        _resubmit(home, ids)
        return
    shares = share_names(home, ids)

    def resubmit(one: Home) -> None:
        """Resubmit the messages of one queue."""
        if ids and one.name not in shares:
            raise click.exceptions.Exit(1)
        _resubmit(one, tuple(shares.get(one.name, ())))

    each_queue(home, resubmit)


def _resubmit(home: Home, ids: tuple[str, ...]) -> None:
    """Have messages of one queue tried, all if no ids are given. Raises Exit, NotFound, Temporary, Usage."""
    layout = open_layout(home.queue)
    for name in ids:
        check_long_id(layout, name)
    client = connect(home)
    if client is None:
        raise Temporary("unable to reach queue-send: it does not run; when it starts, all messages are tried")
    names = [name.encode() for name in dict.fromkeys(ids)]
    found = gone = 0
    try:
        for at in range(0, max(1, len(names)), IDS_MAX):
            response = client.ask(Request(RESUBMIT, b"", names[at : at + IDS_MAX]))
            found += response.touched
            for note in response.notes:
                gone += note.letter == GONE
                print(visible(note.text), file=sys.stderr if note.letter == GONE else sys.stdout)
    finally:
        client.close()
    print(f"resubmitted {found} {'message' if found == 1 else 'messages'}")
    if names and gone == len(names):
        raise click.exceptions.Exit(1)
