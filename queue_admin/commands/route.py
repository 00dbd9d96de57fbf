"""queuectl route ADDRESS: where mail for an address would go, and why. Reads only; queries DNS.

The same code decides as for real mail: queue-todo's rules for local and remote, queue-local's for the mailbox, and
`queue-remote --route`, which is run for remote addresses. Exit 0 if every address has a route, else 100 if one has
none, 111 if that cannot be determined now.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

import click

from queue_admin.mailbox_description import describe_mailbox
from queue_admin.printable import visible
from queue_base.control import read_parsed, read_rules
from queue_base.daemon.processes import command as program
from queue_base.errors import PERMANENT, TEMPORARY, Temporary, reason
from queue_base.home import Home, find_home
from queue_smtp.path import pack_path
from queue_wire.address import split_address
from queue_wire.control.destinationlimits import (
    LIMITS,
    RATES,
    LimitLine,
    LimitLines,
    Nexthop,
    choose_nexthop,
    find_limits,
    join_lines,
    unpack_limits,
    unpack_rates,
)
from queue_wire.control.rewrite import LOCAL, Rules, rewrite
from queue_wire.control.smtproutes import unpack_routes
from queue_wire.format_error import FormatError

# Seconds for queue-remote: DNS may take 20 for each of many queries.
PATIENCE = 300.0


@click.command("route")
@click.argument("addresses", metavar="ADDRESS...", nargs=-1, required=True)
@click.pass_context
def command(context: click.Context, addresses: tuple[str, ...]) -> None:
    """Show where mail for an address would go, and why.

    It reads the control files and queries DNS, but connects to no mail server. Hosts of equal preference are listed in
    random order, as for deliveries. ADDRESS is an envelope recipient, after queue-inject has completed it.

    Exit 0: every address has a route. 100: one has none, its mail would bounce. 111: one cannot be determined now, its
    mail would be deferred.

    \b
    Examples:
      queuectl route joe@example.org
      queuectl route sales@example.net '[192.0.2.1]'
    """
    home = find_home(context.obj)
    rules = read_rules(home)
    codes = []
    for address in addresses:
        print(visible(os.fsencode(address)))
        channel, target, code = _route(home, rules, os.fsencode(address))
        for line in _describe_limits(home, channel, target):
            print(f"  {line}")
        codes.append(code)
    context.exit(max(codes))


def _route(home: Home, rules: Rules, address: bytes) -> tuple[bool, bytes, int]:
    """Print the route of one address; return its channel, the rewritten address, and 0, 100 or 111."""
    steps: list[bytes] = []
    channel, target = rewrite(address, rules, steps)
    domain = split_address(target)[1]
    if channel is not LOCAL and not any(step.startswith(b"virtualdomains: ") for step in steps):
        steps.append(b"neither locals nor virtualdomains have %s" % domain)
    for step in steps:
        print(f"  {visible(step)}")
    if channel is LOCAL:
        print(f"  local: queue-local delivers it as {visible(target)}")
        lines, code = describe_mailbox(home, target)
        for line in lines:
            print(f"  {line}")
        return channel, target, code
    if target.isascii():
        try:
            pack_path(target)
        except FormatError as error:
            print(f"  failure: SMTP cannot carry this address: {error}")
            return channel, target, PERMANENT
    print(f"  remote: the nexthop is {visible(domain.lower())}")
    return channel, target, _ask_remote(home, domain.lower())


def _describe_limits(home: Home, channel: bool, target: bytes) -> Iterator[str]:
    """Yield the lines that limit mail for an address; nothing if the files have no lines."""
    try:
        limits = read_parsed(home, LIMITS, unpack_limits) or []
        rates = read_parsed(home, RATES, unpack_rates) or []
        if not limits and not rates:
            return
        lines = join_lines(limits, rates)
        if channel is LOCAL:
            found = _limits_of_local(lines, target)
        else:
            routes = read_parsed(home, "smtproutes", unpack_routes) or {}
            found = _limits_of_remote(lines, choose_nexthop(routes, lines, split_address(target)[1].lower()))
    except Temporary as error:
        yield f"limits: not known: {error}"
        return
    yield from found or ["limits: no line of destinationlimits or destinationrate is for it"]


def _limits_of_local(lines: LimitLines, target: bytes) -> list[str]:
    line = lines.recipients.get(target.lower())
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


def _ask_remote(home: Home, nexthop: bytes) -> int:
    words = [os.fsencode(word) for word in program("queue-remote", home, "--route")]
    sys.stdout.flush()
    try:
        done = subprocess.run([*words, nexthop], stdout=subprocess.PIPE, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise Temporary(f"unable to ask queue-remote: no answer in {PATIENCE:.0f} s; try again") from error
    except OSError as error:
        raise Temporary(f"unable to run queue-remote: {reason(error)}") from error
    for line in done.stdout.splitlines():
        print(f"  {visible(line)}")
    if done.returncode not in (0, PERMANENT, TEMPORARY):
        raise Temporary(f"unable to ask queue-remote: it ended with {done.returncode}")
    if done.returncode and not done.stdout:
        # queue-remote has printed the reason on stderr; it is not about the address.
        raise Temporary("unable to ask queue-remote; see above")
    return done.returncode
