"""queuectl show ID: one message as it is on disk, and what queue-send does with it. Reads only."""

import json
import os
import shutil
import sys

import click

from queue_admin.home.chosen import find_queue, home_of, with_queue
from queue_admin.messages.description import (
    describe,
    describe_as_facts,
    describe_stored,
    describe_stored_as_facts,
)
from queue_admin.messages.named_message import find_message, find_stored
from queue_admin.messages.stored_mail import StoredMail, StoredMessage
from queue_admin.messages.survey import Snapshot, open_regular
from queue_admin.system_accounts import be_owner
from queue_base.errors import NotFound, Temporary, reason
from queue_base.home import Home
from queue_base.queue.layout import Layout, open_layout


@click.command("show")
@click.argument("name", metavar="ID")
@click.option("--raw", is_flag=True, help="Print only the message, byte for byte.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
@click.pass_context
def command(context: click.Context, name: str, raw: bool, form: str) -> None:
    """Show everything about one message.

    That is its state, files and envelope, what queue-send does with it now or why it waits, each recipient with its
    last result, the failures so far, and its header. Of one that is stored for on-demand domains: for which, since
    when, and what each of them waits for.
    ID is a long id as `queuectl list` prints it, or a bare inode number. A long id never names a later message with
    the same inode number. Of several queues, ID may begin with the name of one. Exit 1 if there is no such message.

    \b
    Examples:
      queuectl show 457-h5x3k2j1z9
      queuectl show --raw 457 >message
      queuectl show --format json 457-h5x3k2j1z9
    """
    home = home_of(context)
    be_owner(home)
    home, name = find_queue(home, name)
    layout = open_layout(home.queue)
    mail = StoredMail(home)
    stored = find_stored(mail, name)
    try:
        snapshot = find_message(layout, name)
    except NotFound:
        if not stored:
            mail.check()
            raise
        _show_stored(home, stored, raw, form)
    else:
        _show_queued(home, layout, snapshot, stored, raw, form)
    mail.check()


def _show_queued(
    home: Home, layout: Layout, snapshot: Snapshot, stored: list[StoredMessage], raw: bool, form: str
) -> None:
    """Show a message of the queue, which may be stored for other recipients."""
    if raw:
        _copy(layout.mess(snapshot.message))
        return
    if form == "json":
        facts = describe_as_facts(home, layout, snapshot)
        if stored:
            facts["stored"] = [each.domain.decode() for each in stored]
        print(json.dumps(with_queue(home, facts)))
        return
    for line in describe(home, layout, snapshot, stored):
        print(line)


def _show_stored(home: Home, stored: list[StoredMessage], raw: bool, form: str) -> None:
    """Show a message that is only stored."""
    if raw:
        _copy(f"{home.queue}/{stored[0].path}")
    elif form == "json":
        print(json.dumps(with_queue(home, describe_stored_as_facts(home, stored))))
    else:
        for line in describe_stored(home, stored):
            print(line)


def _copy(path: str) -> None:
    sys.stdout.flush()
    try:
        source = open_regular(path)
    except OSError as error:
        raise Temporary(f"unable to read {path}: {reason(error)}") from error
    with os.fdopen(source, "rb") as message:
        shutil.copyfileobj(message, sys.stdout.buffer, 1 << 20)
