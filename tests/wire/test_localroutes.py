"""control/localroutes: which local recipients' mail goes to an LMTP server."""

import pytest

from queue_wire.control.localroutes import find_local_route, is_route_name, unpack_local_routes
from queue_wire.control.smtproutes import Relay
from queue_wire.format_error import LineError

FILE = b"""# Dovecot holds all mailboxes but one.
example.org:lmtp:/run/dovecot/lmtp
Postmaster@Example.org:
.example.net:lmtp:mailbox.example:2424
boss@example.com:lmtp:[::1]
"""


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (b"joe@example.org", b"lmtp:/run/dovecot/lmtp"),
        (b"JOE@EXAMPLE.ORG", b"lmtp:/run/dovecot/lmtp"),
        (b"postmaster@example.org", None),
        (b"joe@a.example.net", b"lmtp:mailbox.example:2424"),
        (b"joe@example.net", None),
        (b"boss@example.com", b"lmtp:[::1]"),
        (b"joe@example.com", None),
        (b"example.org", None),
    ],
)
def test_the_most_specific_line_decides(address: bytes, name: bytes | None) -> None:
    found = find_local_route(unpack_local_routes(FILE), address)
    assert (found.name if found else None) == name


def test_the_empty_key_is_for_all_other_recipients() -> None:
    routes = unpack_local_routes(b":lmtp:/l\nexample.org:\n")
    found = find_local_route(routes, b"a@b")
    assert found is not None
    assert found.groups == ((Relay(b"/l", 0, True),),)
    assert find_local_route(routes, b"a@example.org") is None


@pytest.mark.parametrize(
    "line", [b"example.org:mx.example", b"example.org", b"example.org:lmtp:/a,mx:25", b"a@b:lmtp:"]
)
def test_a_line_that_does_not_name_an_lmtp_server_is_refused(line: bytes) -> None:
    with pytest.raises(LineError, match="line 2"):
        unpack_local_routes(b"# local\n" + line + b"\n")


def test_the_name_of_a_route_is_no_address() -> None:
    assert is_route_name(b"lmtp:/run/dovecot/lmtp")
    assert not is_route_name(b"lmtp:/run/x@example.org")
