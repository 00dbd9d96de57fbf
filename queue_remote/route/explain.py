"""Where mail for a nexthop would go, told step by step: the very search that a delivery makes, without the delivery.

    smtproutes: no line for it
    MX 10 mx1.example.com: 192.0.2.1, 2001:db8::1
    try 1: 192.0.2.1 (mx1.example.com) port 25
    try 2: 2001:db8::1 (mx1.example.com) port 25
    tls: no control/tlspolicy: TLS where it is offered, with any certificate, else in clear
    auth: as ann (control/smtpauth)
    program: /usr/local/bin/wrapper delivers it (control/remoteprogram)

The lines are printable ASCII. Those of one kind begin with the same word, and the last two are there where they apply;
`try` is in the order of this one search, and equals change places from one to the next.
"""

from queue_base.errors import PERMANENT as EXIT_PERMANENT
from queue_base.errors import TEMPORARY as EXIT_TEMPORARY
from queue_base.home import Home
from queue_remote.message.converting import Conversions
from queue_remote.route.lookup import Unroutable
from queue_remote.route.route import Route
from queue_remote.route.text import shown
from queue_remote.settings import Settings
from queue_remote.setup import read_setup
from queue_remote.tls.story import tell_tls
from queue_remote.tls.sts import StsCache
from queue_wire.report import PERMANENT


async def explain(home: Home, nexthop: bytes) -> tuple[int, bytes]:
    """Return the exit code (0 there is a way, 100 there is none, 111 not now) and the lines. Raises Temporary."""
    setup = read_setup(home, StsCache(), Conversions())
    try:
        route = await setup.router.find(nexthop, setup.policies.secure)
    except Unroutable as error:
        lost = error.verdict[0] == PERMANENT
        text = error.verdict[1].decode("ascii", "replace").strip().replace("\n", " ")
        return (EXIT_PERMANENT if lost else EXIT_TEMPORARY), _lines(
            [*error.reasons, f"{'failure' if lost else 'deferral'}: {text}"]
        )
    tries = [
        f"try {number}: {target.address}{f' ({target.host.decode()})' if target.host else ''} port {target.port}"
        for number, target in enumerate(route.targets, 1)
    ]
    tls = await tell_tls(setup.policies, nexthop, route)
    return 0, _lines([*route.reasons, *tries, *tls, *_means(setup.settings, nexthop, route)])


def _means(settings: Settings, nexthop: bytes, route: Route) -> list[str]:
    """Return a line for each user that AUTH names to somebody, and one for a program that delivers in our place."""
    lines = []
    try:
        found = [settings.logins.find(nexthop, route.relayed, target) for target in route.targets]
        users = dict.fromkeys(credentials.user for credentials in found if credentials is not None)
        lines += [f"auth: as {shown(user).decode()} (control/smtpauth)" for user in users]
    except Unroutable:
        lines.append(f"auth: control/smtpauth is not used: {settings.logins.fault}")
    words = settings.programs.choose(b"", nexthop)
    if words:
        lines.append(f"program: {b' '.join(map(shown, words)).decode()} delivers it (control/remoteprogram)")
    return lines


def _lines(lines: list[str]) -> bytes:
    return b"".join(line.encode("ascii", "backslashreplace") + b"\n" for line in lines)
