"""queuectl users: makes users/cdb, and shows which user an address belongs to."""

import json
import os

import click

from queue_admin.home.chosen import home_of
from queue_admin.printable import visible
from queue_admin.users.mailbox_description import MailboxDescription, describe_mailbox
from queue_admin.users.users_cdb import build_users
from queue_base.control import read_local_servers
from queue_base.control_files import read_rules
from queue_base.errors import PERMANENT, complain
from queue_base.home import Home
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
    built = build_users(home_of(context))
    print(f"made {built.path}: {built.assignments} assignments")
    for key in built.to_root:
        complain("queuectl", f"warning: {visible(key)} has uid 0; nothing is delivered as root, its mail is deferred")


@command.command("find")
@click.argument("addresses", metavar="ADDRESS...", nargs=-1, required=True)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
@click.pass_context
def find(context: click.Context, addresses: tuple[str, ...], form: str) -> None:
    """Show which user an address belongs to, and why, and which .qmail file controls its mail.

    Exit 0: it has a mailbox. 100: it has none, or is not local, or control/localroutes names an LMTP server for it,
    which alone knows. 111: its mail would be deferred now.

    With --format json each line is an object with the keys address, channel, target (the address after control/locals
    and virtualdomains), code (0, 100 or 111), account, uid, gid, home, source (users/cdb, passwd or alias), dash,
    extension, file (the .qmail file that decides), and steps (the lines of the text); null is what it does not have.

    \b
    Examples:
      queuectl users find joe
      queuectl users find joe-list@example.org info@virtual.example
    """
    home = home_of(context)
    rules = read_rules(home)
    context.exit(max([_find(home, rules, os.fsencode(address), form) for address in addresses]))


def _find(home: Home, rules: Rules, address: bytes, form: str) -> int:
    told: list[bytes] = []
    channel, target = rewrite(address, rules, told)
    found_servers = read_local_servers(home, target) if channel is LOCAL else None
    if found_servers is not None:
        name = visible(found_servers[0].name)
        line = f"failure: an LMTP server takes its mail (localroutes: {name}), so no user here has it"
        found = MailboxDescription([line], PERMANENT)
    elif channel is LOCAL:
        found = describe_mailbox(home, target)
    else:
        line = "failure: it is remote, so no user here has it; queuectl route shows where its mail goes"
        found = MailboxDescription([line], PERMANENT)
    steps = [*map(visible, told), *found.lines]
    if form == "json":
        facts: dict[str, object] = {"address": visible(address), "channel": "local" if channel is LOCAL else "remote"}
        facts |= {"target": visible(target), "code": found.code, **_mailbox_facts(found), "steps": steps}
        print(json.dumps(facts))
    else:
        print("\n  ".join([visible(address), *steps]))
    return found.code


def _mailbox_facts(found: MailboxDescription) -> dict[str, object]:
    file = None if found.file is None else visible(os.fsencode(found.file))
    if found.mailbox is None:
        return dict.fromkeys(("account", "uid", "gid", "home", "source", "dash", "extension")) | {"file": file}
    account = found.mailbox.account
    return {
        "account": visible(os.fsencode(account.name)),
        "uid": account.uid,
        "gid": account.gid,
        "home": visible(os.fsencode(account.home)),
        "source": found.mailbox.source,
        "dash": visible(found.mailbox.dash),
        "extension": visible(found.mailbox.extension),
        "file": file,
    }
