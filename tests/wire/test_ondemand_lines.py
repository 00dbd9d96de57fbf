"""control/ondemand: its lines, and what is said of those that cannot be used."""

import pytest

from queue_wire.control.ondemand import OnDemandLine, is_domain_name, unpack_ondemand
from queue_wire.control.registry import BY_NAME, check
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
        (b"example.net", "no colon|not DOMAIN:etrn"),
        (b"example.net:", "no method"),
        (b"example.net:turn", "no method"),
        (b"example.net:atrn", "atrn is not available"),
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
        (b"example.net:etrn relay host:25", "smtproutes"),
        (b"example.net:etrn color red", "no option"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused_with_its_number_and_the_reason(line: bytes, why: str) -> None:
    with pytest.raises(LineError, match=why):
        unpack_ondemand(line)
    with pytest.raises(LineError, match=why):
        check(BY_NAME["ondemand"], line)


def test_a_u_label_is_its_a_label() -> None:
    assert list(unpack_ondemand("b\u00fccher.example:etrn".encode())) == [b"xn--bcher-kva.example"]


@pytest.mark.parametrize("name", [b"", b".", b"..", b".a", b"a.", b"a/b", b"A.b", b"a\n", b"a" * 250 + b".abc"])
def test_no_other_name_becomes_that_of_a_directory(name: bytes) -> None:
    assert not is_domain_name(name)
