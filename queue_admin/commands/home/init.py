"""queuectl init: makes a home, or what is missing in one, and a service directory."""

import os
import socket

import click

from queue_admin.checks.file_system import CONTROL, check_file_system, find_unfit
from queue_admin.home.chosen import home_of
from queue_admin.home.create import check_split, create_home, other_names
from queue_admin.home.daemon_accounts import check_code, choose_accounts
from queue_admin.home.hostname import check_domain, check_host_name
from queue_admin.home.own_service import force_option, kind_option
from queue_admin.home.service import INTAKE, SYSTEMD, find_service, write_service
from queue_admin.home.tree import unable_to
from queue_admin.system_accounts import (
    choose_owner,
    ensure_alias_account,
    myself,
    smtpd_owner,
)
from queue_base.accounts import SMTPD_ACCOUNT, make_greylist_directory
from queue_base.errors import complain
from queue_base.home import Home
from queue_base.shell_completion import complete_directory


@click.command("init")
@click.argument("home", required=False, shell_complete=complete_directory)
@click.option("--me", help="This host's full name, for control/me; default the system's.")
@click.option("--local", multiple=True, metavar="DOMAIN", help="A domain to deliver here, besides this host's name.")
@click.option("--split", type=click.IntRange(1, 100_000), help="Directories per kind of file, a prime; default 23.")
@click.option("--network", is_flag=True, help="Accept a network file system: control/queuefilesystem then names it.")
@click.option("--as-me", is_flag=True, help="As root: own everything yourself, make no accounts.")
@click.option(
    "--service", metavar="DIR", shell_complete=complete_directory,
    help="Also write a service directory, or systemd's units, here.",
)  # fmt: skip
@click.option(
    "--smtpd-service", metavar="DIR", shell_complete=complete_directory,
    help="Also write a service directory, or units, for queue-smtpd here.",
)  # fmt: skip
@kind_option
@click.option(
    "--log", metavar="DIR", shell_complete=complete_directory,
    help="Where the service logs; default /var/log/NAME of HOME, or HOME/log.",
)  # fmt: skip
@click.option(
    "--smtpd-log", metavar="DIR", shell_complete=complete_directory,
    help="Where that service logs; default /var/log/NAME-smtpd, or HOME/log-smtpd.",
)  # fmt: skip
@force_option
@click.pass_context
def command(
    context: click.Context,
    home: str | None,
    me: str | None,
    local: tuple[str, ...],
    split: int | None,
    network: bool,
    as_me: bool,
    service: str | None,
    smtpd_service: str | None,
    kind: str,
    log: str | None,
    smtpd_log: str | None,
    force: bool,
) -> None:
    """Make a home, or what is missing in one.

    HOME is by default that of --home, else QUEUE_HOME, else /var/queue.

    Run by root, it also makes the accounts `queue`, `queuer`, `queuea` and `queued` if they are missing. Run again, it
    makes what is missing and changes nothing else: it warns of a file that says otherwise than the options. At last it
    checks that these accounts can read the installation.

    A network file system is refused, since locks and inode numbers may fail on it.

    Where control/queues names several queues, all are made, or the one that --queue names. Each has a service, DIR-NAME
    or units with its name, and so has the queue-intake in front, DIR-intake; the names of their logs are as these.

    With --log, several homes can have services on one machine. Others than the logger's account and group `adm` (where
    there is none, its own) cannot read the log.

    \b
    Examples:
      queuectl init /var/queue --me mail.example.org --local example.org
      queuectl init /var/queue --service /etc/sv/queue --kind runit
      queuectl init /var/queue --service /etc/systemd/system --kind systemd
      queuectl init /var/queue --smtpd-service /etc/queue-smtpd --kind runit
      queuectl init ~/queue --as-me --me test.example.org
    """
    where = home_of(context, home)
    name = check_host_name(me) if me else _default_name(where)
    domains = tuple(check_domain(domain) for domain in local)
    # Before accounts are made: the options may conflict with what exists.
    check_split(where, split)
    remarks = other_names(where, name, domains)
    accepted = next(filter(None, map(find_unfit, where.each())), "") if network else ""
    if not network or os.path.lexists(f"{where.control}/{CONTROL}"):
        for one in where.each():
            check_file_system(one)
    existed = os.path.isdir(where.owned)
    owner, accounts = choose_owner(where, as_me)
    alias, account = ensure_alias_account(where, owner)
    report(accounts + account, "made")
    made = create_home(
        where, owner, myself(), me=name, local=domains, split=split, alias=alias, file_system=accepted
    )
    report(made, "made")
    for remark in remarks:
        complain("queuectl", f"warning: {remark}; queuectl config set changes it")
    if existed and f"account {SMTPD_ACCOUNT}" in accounts:
        complain("queuectl", f"warning: if the suite runs, restart it: it knows account {SMTPD_ACCOUNT} from then on")
    if smtpd_service:
        with unable_to("make", where.greylist):
            if make_greylist_directory(where, smtpd_owner(owner)):
                report([where.greylist], "made")
    # With several queues each has a service, and so has the queue-intake in front.
    parts = [*([INTAKE] if where.several else []), *(one.name for one in where.each())]
    wanted = [(service, find_service(where, owner, log, part=part)) for part in parts if service]
    wanted += [(smtpd_service, find_service(where, owner, smtpd_log, smtpd=True))] if smtpd_service else []
    for directory, each in wanted:
        path = os.path.abspath(directory)
        if each.part and kind != SYSTEMD:
            path += f"-{each.part}"
        report(write_service(each, path, kind, myself(), force), "wrote")
    accounts_used = choose_accounts(where)
    if accounts_used.queue is not None:
        check_code(accounts_used)


def report(items: list[str], verb: str) -> None:
    """Print one line for each item."""
    for item in items:
        print(f"{verb} {item!a}" if not item.isprintable() else f"{verb} {item}")


def _default_name(home: Home) -> str | None:
    """Return the system's name for control/me, or None if that exists. Raises Usage if the name is not usable."""
    if os.path.lexists(f"{home.control}/me"):
        return None
    return check_host_name(socket.getfqdn())
