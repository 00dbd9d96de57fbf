"""control/localroutes: which local recipients' mail goes to an LMTP server."""

import time

import pytest

from queue_wire.control.localroutes import find_local_route, is_route_name, matches_nothing, unpack_local_routes
from queue_wire.control.smtproutes import Relay
from queue_wire.format_error import LineError

FILE = b"""# Dovecot holds all mailboxes but one.
example.org:lmtp:/run/dovecot/lmtp
Postmaster@Example.org:
.example.net:lmtp:mailbox.example:2424
boss@example.com:lmtp:[::1]
list-*@Example.org:
list-owner-*@example.org:lmtp:/owners
list-x@example.org:lmtp:/x
joe+*@example.com:lmtp:/joe
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
        (b"list@example.org", b"lmtp:/run/dovecot/lmtp"),
        (b"LIST-subscribe@example.org", None),
        (b"list-@example.org", None),
        (b"list-a-b@example.org", None),
        (b"list-owner-a@example.org", b"lmtp:/owners"),
        (b"list-owner@example.org", None),
        (b"list-x@example.org", b"lmtp:/x"),
        (b"list-x-y@example.org", None),
        (b"list-x@example.com", None),
        (b"joe+news@example.com", b"lmtp:/joe"),
        (b"joe-news@example.com", None),
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


def test_a_star_that_is_no_pattern_matches_nothing() -> None:
    for key in (b"*@h", b"list*@h", b"*-owner@h", b"a-*-b@h", b"joe@*.h", b"*.h", b"*"):
        assert matches_nothing(key), key
    for key in (b"list-*@h", b"joe+*@h", b"joe@h", b"h", b".h", b""):
        assert not matches_nothing(key), key


def test_an_address_of_nothing_but_dashes_is_looked_up_in_no_time() -> None:
    routes = unpack_local_routes(FILE)
    begun = time.process_time()
    for _ in range(10):
        assert find_local_route(routes, b"-" * 990 + b"@example.org") is not None
    assert time.process_time() - begun < 0.1
