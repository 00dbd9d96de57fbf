"""control/ondemand and ondemandusers: their lines, and what is said of those that cannot be used."""

import pytest

from queue_wire.control.control_file import check
from queue_wire.control.ondemand import (
    OnDemandLine,
    is_domain_name,
    on_demand_routes,
    unpack_on_demand_users,
    unpack_ondemand,
)
from queue_wire.control.registry import BY_NAME, CLUSTERSIZE
from queue_wire.control.smtproutes import unpack_routes
from queue_wire.format_error import LineError


def test_a_domain_and_its_options() -> None:
    found = unpack_ondemand(
        b"# customers\nExample.NET:etrn\nexample.org.: etrn expire 2d probe 90s size 1G\nexample.com:ETRN probe never\n"
    )

    assert found == {
        b"example.net": OnDemandLine(30 * 86400, 1800, 0),
        b"example.org": OnDemandLine(2 * 86400, 90, 1 << 30),
        b"example.com": OnDemandLine(probe=0),
    }


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"example.net", "not DOMAIN:etrn or DOMAIN:atrn"),
        (b"example.net:", "no method"),
        (b"example.net:turn", "no method, one of etrn, atrn"),
        (b":etrn", "not the name of a domain"),
        (b".example.net:etrn", "not the name of a domain"),
        (b"../x:etrn", "not the name of a domain"),
        (b"a..b:etrn", "not the name of a domain"),
        (b"[192.0.2.1]:etrn", "not the name of a domain"),
        (b"a" * 64 + b".net:etrn", "not the name of a domain"),
        (b"b.example:etrn\nB.example:etrn", "line 2: a second line"),
        (b"example.net:etrn expire", "no value behind expire"),
        (b"example.net:etrn expire 1x", "not a time"),
        (b"example.net:etrn probe 0", "not a time"),
        (b"example.net:etrn size 0", "would store nothing"),
        (b"example.net:etrn size many", "not a size"),
        (b"example.net:etrn expire 1d expire 2d", "a second expire"),
        (b"example.net:etrn relay", "no value behind relay"),
        (b"example.net:etrn relay host:0", "not a host or host:port"),
        (b"example.net:etrn relay 2001:db8::1", "not a host or host:port"),
        (b"example.net:etrn relay a relay b", "a second relay"),
        (b"example.net:atrn relay a", "atrn has no option relay"),
        (b"example.net:etrn color red", "no option"),
        (b"example.net:atrn probe 30m", "atrn has no option probe"),
        (b"example.net:atrn probe never", "atrn has no option probe"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused_with_its_number_and_the_reason(line: bytes, why: str) -> None:
    with pytest.raises(LineError, match=why):
        unpack_ondemand(line)
    with pytest.raises(LineError, match=why):
        check(BY_NAME["ondemand"], line)


def test_a_domain_whose_host_asks_with_atrn_is_never_probed() -> None:
    found = unpack_ondemand(b"a.example:atrn\nb.example:ATRN size 1M expire 2d\n")
    assert found[b"a.example"] == OnDemandLine(probe=0, turns=True)
    assert found[b"b.example"] == OnDemandLine(2 * 86400, 0, 1 << 20, True)


@pytest.mark.parametrize("relay", ["Mail.Example:2525", "[2001:DB8::1]:2525", "192.0.2.1", "one,two:26", "lmtp:/run/l"])
def test_a_relay_is_written_as_in_smtproutes(relay: str) -> None:
    found = unpack_ondemand(f"a.example:etrn probe 1h relay {relay} size 1G\nb.example:etrn\n".encode())
    [(_, as_there)] = unpack_routes(f"a.example:{relay}".encode()).items()
    assert found[b"a.example"] == OnDemandLine(probe=3600, size=1 << 30, relays=as_there)
    assert on_demand_routes(found) == {b"a.example": as_there}


@pytest.mark.parametrize(("text", "size"), [(b"4096", 4096), (b"256K\n", 262144), (b"1m", 1 << 20)])
def test_the_size_of_clusters(text: bytes, size: int) -> None:
    check(CLUSTERSIZE, text)
    assert CLUSTERSIZE.unpack(text) == size


@pytest.mark.parametrize("text", [b"0", b"4095", b"1048577", b"1G", b"-1", b"many", b""])
def test_a_size_of_clusters_that_cannot_be_used_is_refused(text: bytes) -> None:
    with pytest.raises(LineError, match="line 1: not a size"):
        check(CLUSTERSIZE, text)


def test_the_domains_of_users_add_up() -> None:
    found = unpack_on_demand_users(b"# c\njoe:B.example,a.example\nann:c.example\njoe:d.example, e.example.\n")
    assert found == {b"joe": (b"b.example", b"a.example", b"d.example", b"e.example"), b"ann": (b"c.example",)}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"joe", "line 2: not USER:DOMAIN"),
        (b"joe:", "line 2: not USER:DOMAIN"),
        (b"joe: ,", "line 2: not USER:DOMAIN"),
        (b":a.example", "line 2: not a user"),
        (b"j oe:a.example", "line 2: not a user"),
        (b"joe:a..b", "line 2: not the name of a domain"),
        (b"joe:" + b",".join([b"d%d.a" % number for number in range(1001)]), "line 2: user .joe. has more than 1000"),
        (b"joe:@a.example", "line 2: not the name of a domain"),
        (b"joe:Z.example", "line 2: .z.example. belongs to user .ann. already"),
        (b"ann:z.example", "line 2: .z.example. belongs to user .ann. already"),
    ],
)
def test_a_line_of_users_that_cannot_be_used_is_refused(line: bytes, why: str) -> None:
    with pytest.raises(LineError, match=why):
        unpack_on_demand_users(b"ann:z.example\n" + line)
    with pytest.raises(LineError, match=why):
        check(BY_NAME["ondemandusers"], b"ann:z.example\n" + line)


def test_a_u_label_is_its_a_label() -> None:
    assert list(unpack_ondemand("b\u00fccher.example:etrn".encode())) == [b"xn--bcher-kva.example"]


@pytest.mark.parametrize("name", [b"", b".", b"..", b".a", b"a.", b"a/b", b"A.b", b"a\n", b"a" * 250 + b".abc"])
def test_no_other_name_becomes_that_of_a_directory(name: bytes) -> None:
    assert not is_domain_name(name)
