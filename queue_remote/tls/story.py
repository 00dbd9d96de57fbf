"""A nexthop's TLS policy for `queuectl route`: which line counts, what DNS and HTTPS say now, what comes of it.

tls: control/tlspolicy has example.net:may sts=enforce
tls: MTA-STS of example.net: id 20260101, mode enforce, max_age 86400, mx *.example.net
tls 1: required, with a certificate for mx.example.net from a CA that is trusted, by MTA-STS of example.net, ...
"""

from queue_remote.route.lookup import Unroutable
from queue_remote.route.route import Route
from queue_remote.tls.policy import TlsPolicies, policy_domain
from queue_remote.tls.sts import Found
from queue_remote.tls.tlspolicy import Use

_PATTERNS_SHOWN = 8


async def tell_tls(policies: TlsPolicies, nexthop: bytes, route: Route) -> list[str]:
    """Return the lines, those for the route's targets in their order. Does not raise."""
    if policies.lacking:
        return ["tls: no control/tlspolicy: TLS where it is offered, with any certificate, else in clear"]
    lines: dict[str, None] = {}
    plans: list[str] = []
    for number, target in enumerate(route.targets, 1):
        key, policy = policies.line(nexthop, route, target)
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
                lines[f"tls: MTA-STS of {domain.decode('ascii')}: {_sts(await policies.sts(domain))}"] = None
            plans.append(f"tls {number}: {await policies.plan(nexthop, route, target)}")
        except Unroutable as error:
            plans.append(f"tls {number}: {error.verdict[1].decode('utf-8', 'replace').strip()}".replace("\n", " "))
    return [*lines, *plans]


def _sts(found: Found) -> str:
    if found.kept is None:
        return found.trouble or "none"
    identity, policy, _, _ = found.kept
    patterns = [pattern.decode("ascii") for pattern in policy.patterns[:_PATTERNS_SHOWN]]
    more = " and more" if len(policy.patterns) > _PATTERNS_SHOWN else ""
    return (
        f"id {identity.decode('ascii')}, mode {policy.mode.value.decode()}, max_age {policy.max_age}, "
        f"mx {', '.join(patterns)}{more}{f'; {found.trouble}' if found.trouble else ''}"
    )
