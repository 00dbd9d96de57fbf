"""Explains where mail for a nexthop would go, for `queuectl route`: the search that a delivery makes, without it.

    smtproutes: no line for it
    MX 10 mx1.example.com: 192.0.2.1, 2001:db8::1
    try 1: 192.0.2.1 (mx1.example.com) port 25
    try 2: 2001:db8::1 (mx1.example.com) port 25
    try 3: /run/dovecot/lmtp, LMTP
    tls: control/tlspolicy has example.com:may sts=enforce
    tls: MTA-STS of example.com: id 20260101, mode enforce, max_age 86400, mx *.example.com
    tls 1: required, with a certificate for mx1.example.com from a CA that is trusted, by MTA-STS of example.com, ...
    auth: as ann (control/smtpauth)
    program: /usr/local/bin/wrapper delivers it (control/remoteprogram)

The lines are printable ASCII. Lines of one kind begin with the same word; auth and program are there only if they
apply. Equally preferred targets change places from one search to the next.
"""

import contextlib

from queue_base.errors import PERMANENT as EXIT_PERMANENT
from queue_base.errors import TEMPORARY as EXIT_TEMPORARY
from queue_base.home import Home
from queue_remote.message.conversions import Conversions
from queue_remote.route.order import Target
from queue_remote.route.router import Route
from queue_remote.route.unroutable import Unroutable, shown
from queue_remote.setup import Setup, read_setup
from queue_remote.tls.mta_sts import StsCache, StsFound
from queue_remote.tls.planner import TlsPlanner, policy_domain
from queue_wire.control.registry import REMOTEPROGRAM
from queue_wire.control.tlspolicy import Use
from queue_wire.pipes.report import PERMANENT

_PATTERNS_SHOWN = 8


async def explain(home: Home, nexthop: bytes) -> tuple[int, bytes]:
    """Return the exit code (0: there is a route, 100: none, 111: none now) and the lines. Raises Temporary."""
    async with contextlib.aclosing(StsCache()) as sts:
        return await _explain(read_setup(home, sts, Conversions()), nexthop)


async def _explain(setup: Setup, nexthop: bytes) -> tuple[int, bytes]:
    try:
        route = await setup.router.find(nexthop, setup.tls_planner.secure)
    except Unroutable as error:
        failed = error.verdict[0] == PERMANENT
        text = error.verdict[1].decode("ascii", "replace").strip().replace("\n", " ")
        return (EXIT_PERMANENT if failed else EXIT_TEMPORARY), _lines(
            [*error.reasons, f"{'failure' if failed else 'deferral'}: {text}"]
        )
    tries = [
        f"try {number}: {_describe_target(target)}"
        for number, target in enumerate(route.targets, 1)
    ]
    tls = await _describe_tls(setup.tls_planner, nexthop, route)
    return 0, _lines([*route.reasons, *tries, *tls, *_describe_options(setup, nexthop, route)])


def _describe_target(target: Target) -> str:
    if target.is_socket:
        return f"{target.address}, LMTP"
    host = f" ({target.host.decode()})" if target.host else ""
    return f"{target.address}{host} port {target.port}{', LMTP' if target.lmtp else ''}"


def _describe_options(setup: Setup, nexthop: bytes, route: Route) -> list[str]:
    """Return a line for each user that AUTH uses, and one for a program that delivers instead of queue-remote."""
    lines = []
    try:
        found = [setup.logins.find(nexthop, route.relayed, target) for target in route.targets]
        users = dict.fromkeys(credentials.user for credentials in found if credentials is not None)
        lines += [f"auth: as {shown(user).decode()} (control/smtpauth)" for user in users]
    except Unroutable:
        lines.append(f"auth: control/smtpauth is not used: {setup.logins.fault}")
    words = () if b"@" in nexthop else setup.config.values[REMOTEPROGRAM].choose(b"", nexthop)
    if words:
        lines.append(f"program: {b' '.join(map(shown, words)).decode()} delivers it (control/remoteprogram)")
    return lines


async def _describe_tls(planner: TlsPlanner, nexthop: bytes, route: Route) -> list[str]:
    """Return the lines about TLS, those for the targets in their order. Does not raise."""
    if planner.lacking and not all(target.is_socket for target in route.targets):
        return ["tls: no control/tlspolicy: TLS where it is offered, with any certificate, else in clear"]
    lines: dict[str, None] = {}
    plans: list[str] = []
    for number, target in enumerate(route.targets, 1):
        if target.is_socket:
            plans.append(f"tls {number}: in clear: a Unix socket")
            continue
        key, policy = planner.line(nexthop, route, target)
        if key is None:
            lines["tls: no line of control/tlspolicy for it: may"] = None
        else:
            lines[f"tls: control/tlspolicy has {(key + b':' + policy.text).decode('utf-8', 'backslashreplace')}"] = None
        if policy.dane is not Use.OFF and not target.secure:
            host = target.host.decode("ascii", "replace") or target.address
            lines[f"tls: no DANE at {host}: DNSSEC does not vouch for its address"] = None
        domain = policy_domain(nexthop, route, target)
        try:
            if policy.sts is not Use.OFF and domain:
                lines[f"tls: MTA-STS of {domain.decode('ascii')}: {_describe_sts(await planner.sts(domain))}"] = None
            plans.append(f"tls {number}: {await planner.plan(nexthop, route, target)}")
        except Unroutable as error:
            plans.append(f"tls {number}: {error.verdict[1].decode('utf-8', 'replace').strip()}".replace("\n", " "))
    return [*lines, *plans]


def _describe_sts(found: StsFound) -> str:
    if found.kept is None:
        return found.trouble or "none"
    identity, policy, _, _ = found.kept
    patterns = [pattern.decode("ascii") for pattern in policy.patterns[:_PATTERNS_SHOWN]]
    more = " and more" if len(policy.patterns) > _PATTERNS_SHOWN else ""
    return (
        f"id {identity.decode('ascii')}, mode {policy.mode.value.decode()}, max_age {policy.max_age}, "
        f"mx {', '.join(patterns)}{more}{f'; {found.trouble}' if found.trouble else ''}"
    )


def _lines(lines: list[str]) -> bytes:
    return b"".join(line.encode("ascii", "backslashreplace") + b"\n" for line in lines)
