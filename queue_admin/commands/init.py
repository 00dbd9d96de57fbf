"""queuectl init: makes a home, or what is missing in one, and a service directory."""

import os
import shutil
import socket

import click

from queue_admin.home.create import check_options, create_home
from queue_admin.home.hostname import check_domain, check_host_name
from queue_admin.home.service import write_service
from queue_admin.system_accounts import account_uid, choose_owner, ensure_alias_account, myself
from queue_base.accounts import QUEUE_ACCOUNT, Owner
from queue_base.daemon.processes import program_path
from queue_base.errors import Permanent
from queue_base.home import Home, find_home


@click.command("init")
@click.argument("home", required=False)
@click.option("--me", help="This host's full name, for control/me; default the system's.")
@click.option("--local", multiple=True, metavar="DOMAIN", help="A domain to deliver here, besides this host's name.")
@click.option("--split", type=click.IntRange(1, 100_000), help="Directories per kind of file, a prime; default 23.")
@click.option("--as-me", is_flag=True, help="As root: own everything yourself, make no accounts.")
@click.option("--service", metavar="DIR", help="Also write a service directory for daemontools or runit.")
@click.option("--force", is_flag=True, help="Replace scripts in the service directory that differ.")
@click.pass_context
def command(
    context: click.Context,
    home: str | None,
    me: str | None,
    local: tuple[str, ...],
    split: int | None,
    as_me: bool,
    service: str | None,
    force: bool,
) -> None:
    """Make a home, or what is missing in one.

    HOME is by default that of --home, else QUEUE_HOME, else /var/queue.

    Run by root, it also makes the accounts `queue`, `queuer` and `queuea` if they are missing. Run again, it makes
    what is missing and changes nothing else.

    \b
    Examples:
      queuectl init /var/queue --me mail.example.org --local example.org
      queuectl init /var/queue --service /etc/sv/queue
      queuectl init ~/queue --as-me --me test.example.org
    """
    where = find_home(home or context.obj)
    name = check_host_name(me) if me else _default_name(where)
    domains = tuple(check_domain(domain) for domain in local)
    # Before accounts are made: the options may conflict with what exists.
    check_options(where, name, domains, split)
    owner, accounts = choose_owner(where, as_me)
    alias, account = ensure_alias_account(where, owner)
    report(accounts + account, "made")
    report(create_home(where, owner, myself(), me=name, local=domains, split=split, alias=alias), "made")
    if service:
        logger = _log_account(where, owner)
        report(write_service(where, os.path.abspath(service), _start_program(), myself(), logger, force), "wrote")


def report(items: list[str], verb: str) -> None:
    """Print one line for each item."""
    for item in items:
        print(f"{verb} {item!a}" if not item.isprintable() else f"{verb} {item}")


def _default_name(home: Home) -> str | None:
    """Return the system's name for control/me, or None if that exists. Raises Usage if the name is not usable."""
    if os.path.lexists(f"{home.control}/me"):
        return None
    return check_host_name(socket.getfqdn())


def _start_program() -> str:
    """Return the path of queue-start, next to queuectl or on PATH. Raises Permanent."""
    beside = program_path("queue-start")
    found = beside if os.access(beside, os.X_OK) else shutil.which("queue-start")
    if found is None:
        raise Permanent(f"unable to find queue-start: it is neither at {beside} nor on PATH; install the whole suite")
    return os.path.abspath(found)


def _log_account(home: Home, owner: Owner) -> tuple[str | None, Owner]:
    """Return the account for the logger (None: the one that starts it) and its ids. Raises Permanent."""
    me = myself()
    if owner.uid == me.uid:
        return None, me
    if owner.uid == account_uid(QUEUE_ACCOUNT):
        return QUEUE_ACCOUNT, owner
    raise Permanent(f"unable to write a service: {home.queue} belongs to uid {owner.uid}; let that user make it")
