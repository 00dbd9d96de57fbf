"""Which local recipients an LMTP server has, not queue-local: control/localroutes as it is now."""

from queue_base.control import read_parsed, read_prepends
from queue_base.home import Home
from queue_wire.address import strip_prepend
from queue_wire.control.localroutes import find_local_route, unpack_local_routes
from queue_wire.control.smtproutes import Relays


def read_local_servers(home: Home, target: bytes) -> Relays | None:
    """Return the LMTP servers for a local recipient, rewritten by virtualdomains; None if queue-local delivers to it.

    Raises Temporary, naming the file.
    """
    routes = read_parsed(home, "localroutes", unpack_local_routes) or {}
    return find_local_route(routes, strip_prepend(target, read_prepends(home)))
