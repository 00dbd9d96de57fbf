"""queuectl route ADDRESS: where mail for an address would go, and why. Reads only; queries DNS.

The same code decides as for real mail: queue-todo's rules for local and remote, queue-local's for the mailbox, and
`queue-remote --route`, which is run for remote addresses. Exit 0 if every address has a route, else 100 if one has
none, 111 if that cannot be determined now.
"""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterator

import click

from queue_admin.home.chosen import home_of
from queue_admin.printable import visible
from queue_admin.users.mailbox_description import describe_mailbox
from queue_base.control import read_control, read_limit_lines, read_local_servers, read_value
from queue_base.control_files import read_rules
from queue_base.daemon.processes import command as program
from queue_base.errors import PERMANENT, TEMPORARY, Temporary, reason
from queue_base.home import Home
from queue_smtp.path import pack_forward_path
from queue_wire.address import address_key, domain_of, split_address
from queue_wire.control.destinationlimits import (
    NO_LINES,
    LimitLine,
    LimitLines,
    Nexthop,
    choose_nexthop,
    find_limits,
)
from queue_wire.control.lines import lines_without_colon
from queue_wire.control.ondemand import OnDemandLine
from queue_wire.control.registry import NO_COLON, ONDEMAND, SMTPROUTES
from queue_wire.control.rewrite import LOCAL, rewrite
from queue_wire.control.smtproutes import Relays
from queue_wire.format_error import FormatError

# Seconds for queue-remote: DNS may take 20 for each of many queries.
PATIENCE = 300.0
SKIPPED_MAX = 20  # Lines without effect that are named, for each file.


@click.command("route")
@click.argument("addresses", metavar="ADDRESS...", nargs=-1, required=True)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Default text.")
@click.pass_context
def command(context: click.Context, addresses: tuple[str, ...], form: str) -> None:
    """Show where mail for an address would go, and why.

    It reads the control files and queries DNS, but connects to no mail server. Hosts of equal preference are listed in
    random order, as for deliveries. ADDRESS is an envelope recipient, after queue-inject has completed it.

    Exit 0: every address has a route. 100: one has none, its mail would bounce. 111: one cannot be determined now, its
    mail would be deferred. With --format json each line is an object with the keys address, channel, target (the
    address after control/locals and virtualdomains), code (0, 100 or 111) and steps (the lines of the text).

    \b
    Examples:
      queuectl route joe@example.org
      queuectl route sales@example.net 'joe@[192.0.2.1]'
    """
    home = home_of(context)
    rules = read_rules(home)
    for line in _describe_skipped(home):
        print(line, file=sys.stdout if form == "text" else sys.stderr)
    codes = []
    for address in map(os.fsencode, addresses):
        steps: list[bytes] = []
        channel, target = rewrite(address, rules, steps)
        if form == "text":
            print(visible(address))
        told: list[str] = []
        lines = _route(home, channel, target, steps)
        while True:
            try:
                told.append(next(lines))
            except StopIteration as end:
                codes.append(end.value)
                break
            if form == "text":
                print(f"  {told[-1]}")
        if form == "json":
            facts = {"address": visible(address), "channel": "local" if channel is LOCAL else "remote"}
            print(json.dumps(facts | {"target": visible(target), "code": codes[-1], "steps": told}))
    context.exit(max(codes))


def _route(home: Home, channel: bool, target: bytes, steps: list[bytes]) -> Generator[str, None, int]:
    """Yield the lines about the route of a rewritten address; return 0, 100 or 111."""
    domain = split_address(target)[1]
    yield from map(visible, steps)
    if channel is not LOCAL and not any(step.startswith(b"virtualdomains: ") for step in steps):
        yield visible(b"neither locals nor virtualdomains have %s" % domain)
    servers = read_local_servers(home, target) if channel is LOCAL else None
    if servers is not None:
        shown = servers[1]
        yield f"local: an LMTP server takes the mail of {visible(shown)}"
        code = yield from _ask_remote(home, shown)
    elif channel is LOCAL:
        yield f"local: queue-local delivers it as {visible(target)}"
        mailbox = describe_mailbox(home, target)
        yield from mailbox.lines
        code = mailbox.code
    elif trouble := _smtp_trouble(target):
        yield f"failure: SMTP cannot carry this address: {trouble}"
        code = PERMANENT
    else:
        name = domain_of(target)
        yield f"remote: the nexthop is {visible(name)}"
        line = (read_value(home, ONDEMAND)).get(name)
        if line is not None:
            yield f"ondemand: {visible(name)}:{_describe_on_demand(line)}"
        code = 0 if line is not None and line.turns else (yield from _ask_remote(home, name))
    yield from _describe_limits(home, channel, target)
    return code


def _describe_on_demand(line: OnDemandLine) -> str:
    if line.turns:
        return "atrn; its mail is stored, and its host fetches it"
    return "etrn; its mail is stored if the first attempt is deferred"


def _smtp_trouble(target: bytes) -> str:
    """Return why SMTP cannot carry an address; empty if it can, or if the host decides (SMTPUTF8)."""
    try:
        pack_forward_path(target)
    except FormatError as error:
        return str(error)
    return ""


def _describe_skipped(home: Home) -> Iterator[str]:
    """Yield what is wrong with the lines of virtualdomains and smtproutes that are skipped."""
    for name in ("virtualdomains", "smtproutes"):
        try:
            numbers = lines_without_colon(read_control(home, name) or b"")
        except Temporary:
            continue  # Whoever needs the file says so.
        for number in numbers[:SKIPPED_MAX]:
            yield f"control/{name} line {number}: {NO_COLON}"
        if len(numbers) > SKIPPED_MAX:
            yield f"control/{name}: {len(numbers) - SKIPPED_MAX} more lines have no colon"


def _describe_limits(home: Home, channel: bool, target: bytes) -> Iterator[str]:
    """Yield the lines that limit mail for an address; nothing if the files have no lines."""
    try:
        lines = read_limit_lines(home)
        if lines == NO_LINES:
            return
        if channel is LOCAL:
            servers = read_local_servers(home, target)
            found = _limits_of_local(lines, target) if servers is None else _limits_of_servers(lines, servers[0])
        else:
            routes = read_value(home, SMTPROUTES)
            found = _limits_of_remote(lines, choose_nexthop(routes, lines, domain_of(target)))
    except Temporary as error:
        yield f"limits: not known: {error}"
        return
    yield from found or ["limits: no line of destinationlimits or destinationrate is for it"]


def _limits_of_local(lines: LimitLines, target: bytes) -> list[str]:
    line = lines.recipients.get(address_key(target))
    return [] if line is None else [_describe_line(line)]


def _limits_of_servers(lines: LimitLines, servers: Relays) -> list[str]:
    line = lines.relays.get(servers.name)
    return [] if line is None else [_describe_line(line)]


def _limits_of_remote(lines: LimitLines, nexthop: Nexthop) -> list[str]:
    line = find_limits(lines, nexthop)
    found = [] if line is None else [_describe_line(line)]
    over = None if nexthop.relay is None else lines.relays.get(nexthop.relay)
    if over is not None and over is not line:
        found.append(f"{_describe_line(over)}, over all that goes by this relay")
    return found


def _describe_line(line: LimitLine) -> str:
    return f"limits: {line.places}: {visible(line.name)} {line.text}"


def _ask_remote(home: Home, nexthop: bytes) -> Generator[str, None, int]:
    """Yield what queue-remote says about a nexthop; return its exit code."""
    words = [os.fsencode(word) for word in program("queue-remote", home, "--route")]
    sys.stdout.flush()
    try:
        done = subprocess.run([*words, nexthop], stdout=subprocess.PIPE, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise Temporary(f"unable to ask queue-remote: no answer in {PATIENCE:.0f} s; try again") from error
    except OSError as error:
        raise Temporary(f"unable to run queue-remote: {reason(error)}") from error
    yield from map(visible, done.stdout.splitlines())
    if done.returncode not in (0, PERMANENT, TEMPORARY):
        raise Temporary(f"unable to ask queue-remote: it ended with {done.returncode}")
    if done.returncode and not done.stdout:
        # queue-remote has printed the reason on stderr; it is not about the address.
        raise Temporary("unable to ask queue-remote; see above")
    return done.returncode
