"""queuectl route ADDRESS: where mail for it would go, and why. Reads only, and asks DNS.

What is local is decided by the code that queue-todo uses, whose that is by queue-local's, where remote mail goes by
queue-remote itself, which is run for it; so what is told is what would happen. Exit 0 where there is a way for every
address, else 100 where one has none, 111 where that cannot be said of one now.
"""

import os
import subprocess
import sys

import click

from queue_admin.mailbox_story import tell_mailbox
from queue_admin.text import visible
from queue_base.errors import PERMANENT, TEMPORARY, Temporary, reason
from queue_base.home import Home, find_home
from queue_base.programs import command as program
from queue_base.rules import read_rules
from queue_wire.address import split_address
from queue_wire.errors import FormatError
from queue_wire.rewrite import LOCAL, Rules, rewrite
from queue_wire.smtp_path import pack_path

# Seconds for queue-remote: DNS may need 20 for each of many questions.
PATIENCE = 300.0


@click.command("route")
@click.argument("addresses", metavar="ADDRESS...", nargs=-1, required=True)
@click.pass_context
def command(context: click.Context, addresses: tuple[str, ...]) -> None:
    """Say where mail for an address would go, and why.

    It goes by the control files as they are now, and asks DNS, but connects to no mail server. Equals change places
    from one time to the next, as they do from one delivery to the next. ADDRESS is an envelope recipient: what
    queue-inject makes of headers comes before that.

    Exit 0: there is a way for each. 100: one has none, its mail would bounce. 111: one cannot be told now, its mail
    would be deferred.

    \b
    Examples:
      queuectl route joe@example.org
      queuectl route sales@example.net '[192.0.2.1]'
    """
    home = find_home(context.obj)
    rules = read_rules(home)
    codes = [_route(home, rules, os.fsencode(address)) for address in addresses]
    context.exit(max(codes))


def _route(home: Home, rules: Rules, address: bytes) -> int:
    """Print what is to be said of one address; return 0, 100 or 111."""
    print(visible(address))
    steps: list[bytes] = []
    channel, target = rewrite(address, rules, steps)
    domain = split_address(target)[1]
    if channel is not LOCAL and not any(step.startswith(b"virtualdomains: ") for step in steps):
        steps.append(b"neither locals nor virtualdomains have %s" % domain)
    for step in steps:
        print(f"  {visible(step)}")
    if channel is LOCAL:
        print(f"  local: queue-local delivers it as {visible(target)}")
        lines, code = tell_mailbox(home, target)
        for line in lines:
            print(f"  {line}")
        return code
    if target.isascii():
        try:
            pack_path(target)
        except FormatError as error:
            print(f"  failure: SMTP cannot carry this address: {error}")
            return PERMANENT
    print(f"  remote: the nexthop is {visible(domain.lower())}")
    return _ask_remote(home, domain.lower())


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
        # It has said why on stderr: nothing that it could say of an address.
        raise Temporary("unable to ask queue-remote; see above")
    return done.returncode
