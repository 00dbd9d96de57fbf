"""control/localroutes: local recipients whose mail an LMTP server takes in place of queue-local.

    domain:lmtp:/run/dovecot/lmtp    for the domain; .domain, the empty key, and values are those of smtproutes
    user@domain:lmtp:mailbox:24      for one recipient
    postmaster@domain:               queue-local, as if there were no line
    list-*@domain:                   all whose local part begins with `list-`; likewise with `+*`

Keys are compared with a recipient as people know it: without what virtualdomains puts before it. A recipient's own line
precedes that of a longer beginning, that of a shorter one, and those for its domain. Servers that speak SMTP are an
error, and so is a line without a colon: mail would be given to queue-local, which has no mailbox for it and bounces it.

Whether a recipient is local is not decided here, but by locals and virtualdomains alone. So local/B/I has the
recipients that it has with qmail, and mail that is queued already follows a change of the routes.
"""

from queue_wire.address import address_key
from queue_wire.control.hostmap import find_key, refuse_impossible, unpack_hosts
from queue_wire.control.lines import lines_without_colon, numbered_map
from queue_wire.control.smtproutes import LMTP, Relays, Routes, is_lmtp, unpack_relays
from queue_wire.format_error import FormatError, InLine, LineError

# What a pattern's `*` stands behind.
_DELIMITERS = (b"-", b"+")
# In place of a file that cannot be read: all local mail goes to queue-remote, which cannot read it either, and defers.
UNREADABLE: Routes = {b"": Relays(LMTP, ())}


def _unpack_servers(text: bytes) -> Relays | None:
    servers = unpack_relays(text)
    if servers is not None and not is_lmtp(servers):
        raise FormatError("not lmtp:/path/of/socket or lmtp:host:port")
    return servers


def unpack_local_routes(data: bytes) -> Routes:
    """Return the routes by key: a domain, a suffix, or an address; None is queue-local.

    Raises LineError.
    """
    for number in lines_without_colon(data):
        raise LineError(number, "it has no colon")
    lines = numbered_map(data)
    routes = dict(unpack_hosts({key: line for key, line in lines.items() if b"@" not in key}, _unpack_servers))
    for key, (number, value) in lines.items():
        if b"@" in key:
            with InLine(number):
                refuse_impossible(key.strip(b" \t"))
                routes[address_key(key.strip(b" \t"))] = _unpack_servers(value)
    return routes


def find_local_route(routes: Routes, address: bytes) -> Relays | None:
    """Return the servers for a local recipient, or None for queue-local.

    `address` is without what virtualdomains puts before it. One without an @ is queue-local's.
    """
    if not routes or b"@" not in address:
        return None
    key = address_key(address)
    if key in routes:
        return routes[key]
    local, _, domain = key.rpartition(b"@")
    for end in range(len(local), 0, -1):
        if local[end - 1 : end] in _DELIMITERS and (pattern := b"%s*@%s" % (local[:end], domain)) in routes:
            return routes[pattern]
    return find_domain_route(routes, domain)


def matches_nothing(key: bytes) -> bool:
    """Return whether a line is meant as a pattern, and is none that matches anything."""
    local, at, domain = key.rpartition(b"@")
    if not at:
        return b"*" in domain
    return b"*" in domain or b"*" in local[:-1] or (local.endswith(b"*") and local[-2:-1] not in _DELIMITERS)


def find_domain_route(routes: Routes, domain: bytes) -> Relays | None:
    """Return the servers for a domain's recipients without a line of their own, or None for queue-local."""
    key = find_key(routes, domain) if routes else None
    return None if key is None else routes[key]


def is_route_name(nexthop: bytes) -> bool:
    """Return whether the nexthop of local mail is the name of a route, and not the address of a recipient."""
    return nexthop.startswith(LMTP) and b"@" not in nexthop
