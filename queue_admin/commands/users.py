"""queuectl users: makes users/cdb, and shows which user an address belongs to."""

import os

import click

from queue_admin.mailbox_description import describe_mailbox
from queue_admin.printable import visible
from queue_admin.users_cdb import build_users
from queue_base.control import read_rules
from queue_base.errors import PERMANENT, complain
from queue_base.home import Home, find_home
from queue_wire.control.rewrite import LOCAL, Rules, rewrite


@click.group("users")
def command() -> None:
    """Manage which user has which local addresses.

    \b
    Examples:
      queuectl users build
      queuectl users find joe-list@example.org
    """


@command.command("build")
@click.pass_context
def build(context: click.Context) -> None:
    """Make users/cdb from users/assign.

    Deliveries that start from now on use it. If a line of users/assign is wrong, the error names it, and the existing
    users/cdb stays.
    """
    built = build_users(find_home(context.obj))
    print(f"made {built.path}: {built.assignments} assignments")
    for key in built.to_root:
        complain("queuectl", f"warning: {visible(key)} has uid 0; nothing is delivered as root, its mail is deferred")


@command.command("find")
@click.argument("addresses", metavar="ADDRESS...", nargs=-1, required=True)
@click.pass_context
def find(context: click.Context, addresses: tuple[str, ...]) -> None:
    """Show which user an address belongs to, and why, and which .qmail file controls its mail.

    Exit 0: it has a mailbox. 100: it has none, or is not local. 111: its mail would be deferred now.

    \b
    Examples:
      queuectl users find joe
      queuectl users find joe-list@example.org info@virtual.example
    """
    home = find_home(context.obj)
    rules = read_rules(home)
    context.exit(max([_find(home, rules, os.fsencode(address)) for address in addresses]))


def _find(home: Home, rules: Rules, address: bytes) -> int:
    steps: list[bytes] = []
    channel, target = rewrite(address, rules, steps)
    print(visible(address))
    for step in steps:
        print(f"  {visible(step)}")
    if channel is not LOCAL:
        print("  failure: it is remote, so no user here has it; queuectl route shows where its mail goes")
        return PERMANENT
    lines, code = describe_mailbox(home, target)
    for line in lines:
        print(f"  {line}")
    return code
