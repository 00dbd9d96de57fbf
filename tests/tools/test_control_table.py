"""docs/configure.md's table of the control files, and the readers of the programs, agree with the registry."""

import re
from contextlib import suppress
from pathlib import Path

import pytest

from queue_base.control import read_value
from queue_base.errors import Temporary
from queue_base.home import Home
from queue_base.queue.inflow import FREE_MIN
from queue_wire.control.control_file import NUMBER, ControlFile, check, contents
from queue_wire.control.registry import BY_NAME, FILES, QUEUEMINFREE
from queue_wire.format_error import FormatError
from support.control_table import PAGE, renew_table


def test_the_table_has_a_row_for_each_control_file_as_the_registry_has_it() -> None:
    text = PAGE.read_text()
    assert renew_table(text) == text, "run tests/support/control_table.py"


@pytest.mark.parametrize("file", [file for file in FILES if file.shape == NUMBER], ids=lambda file: file.name)
def test_a_number_is_taken_at_both_ends_of_its_range_and_refused_beyond_with_the_range(
    home: Home, file: ControlFile[int]
) -> None:
    default, least, most = file.bounds
    assert read_value(home, file) == default
    path = Path(home.control, file.name)
    for value in (least, default, most):
        path.write_text(f"{value}\n")
        assert read_value(home, file) == value
    for value in (least - 1, most + 1):
        path.write_text(f"{value}\n")
        with pytest.raises(Temporary, match=rf"{path} line 1: not a number from {least} to {most}: '{value}'"):
            read_value(home, file)


def test_a_size_over_its_range_is_refused_with_the_range(home: Home) -> None:
    assert read_value(home, QUEUEMINFREE) == FREE_MIN == 16 << 20
    Path(home.control, "queueminfree").write_text("2000000T\n")
    with pytest.raises(Temporary, match=r"queueminfree line 1: not a size from 0 to \d+: '2000000T'"):
        read_value(home, QUEUEMINFREE)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_parser_of_each_file_exists_and_makes_a_value_of_no_file(file: ControlFile[object]) -> None:
    file.value(None)
    with suppress(FormatError):
        file.unpack(b"")


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("queuelifetime", b"0\n", "line 1: not a number from 60 to 315360000: '0'"),
        ("concurrencyremote", b"99999999\n", "line 1: not a number from 0 to 32000: '99999999'"),
        ("activelimit", b"0\n", "line 1: not a number from 1 to 1000000: '0'"),
        ("retryjitter", b"200\n", "line 1: not a number from 0 to 100: '200'"),
        ("locals", b"\n", "line 1: it is empty, so no domain would be local; a line `# none` says that this is meant"),
        ("virtualdomains", b"# ours\n\nexample.org\n", "line 3: it has no colon, and has no effect"),
        ("smtproutes", b":relay.example\nrelay secret\n", "line 2: it has no colon, and has no effect"),
        ("retryschedule", b"now and then\n", "line 1: not quadratic, exponential MIN MAX, or times"),
        ("delaywarning", b"4h\nsoon\n", "line 2: not a time: 'soon'"),
        ("locallimits", b"disk 5\n", "line 1: not one of memory, cpu"),
        ("destinationrate", b"a.example:fast\n", "line 1: not a rate"),
        ("longlines", b"fold\n", "line 1: not send, encode or fail"),
        ("bouncefrom", b"a\0b\n", "line 1: it holds a NUL byte"),
        ("relayclients", b"192.0.2.1\n192.0.2.1/24\n", "line 2: not an address or network: '192.0.2.1/24'"),
        ("proxyclients", b"*\n", "line 1: not an address or network: '*'"),
        ("xclients", b"proxy.example\n", "line 1: not an address or network: 'proxy.example'"),
        ("relayrecipients", b"ann@a.example\nann\n", "line 2: neither user@domain nor @domain: 'ann'"),
        ("checkrcpt", b"yes\n", "line 1: not a number from 0 to 1: 'yes'"),
        ("milters", b"inet:127.0.0.1:8891 mx\ninet:8891\n", "line 2: neither inet:HOST:PORT nor unix:/PATH"),
        ("milters", b"unix:/run/x command=0\n", "line 1: neither a role, default=accept, default=tempfail"),
        ("headerfaults", b"bounce\n", "line 1: not accept, copy, hold or refuse: 'bounce'"),
        ("smtpdlimits", b"pause 3\nmessages x\n", "line 2: not a number from 0 to 1000000: 'x'"),
        ("dnslists", b"bl.example 10.0.0.1\n", "line 1: not an answer such as 127.0.0.2 or 127.0.0.2..11: '10.0.0.1'"),
        ("greylist", b"# ours\ndelay soon\n", "line 2: not a time: 'soon'"),
        ("me", b"\n", "line 1: it is empty"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_its_line(name: str, data: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=re.escape(why)):
        check(BY_NAME[name], data)


@pytest.mark.parametrize("bytes_unseen", [b"\xc2\xa0", b"\xa0", b"\x01", b"\xe2\x80\xa8"])
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("locals", b"example.org%s"),
        ("percenthack", b"%sexample.org"),
        ("rcpthosts", b".example.org%s"),
        ("badmailfrom", b"joe@example.org%s"),
        ("relayrecipients", b"@example%s.org"),
        ("virtualdomains", b"example.org%s:joe"),
        ("smtproutes", b"example.org%s:relay.example"),
        ("localroutes", b"example.org%s:lmtp:/s"),
        ("localroutes", b"joe@example.org%s:lmtp:/s"),
        ("submitters", b"joe:joe@example.org%s"),
        ("priorityrules", b"sender:@example.org%s:bulk"),
        ("destinationlimits", b"example.org%s concurrency=1"),
        ("destinationrate", b"example.org%s:1/1"),
        ("ondemand", b"example.org%s:etrn"),
        ("smtpdcert", b"example.org%s:c\n:c"),
    ],
)
def test_a_key_that_can_match_nothing_because_of_a_byte_that_nobody_sees_is_named_with_its_line(
    name: str, line: bytes, bytes_unseen: bytes
) -> None:
    whole = b"# \xc2\xa0 is allowed here\n" + line.replace(b"%s", bytes_unseen) + b"\n"
    with pytest.raises(FormatError, match="line 2: "):
        check(BY_NAME[name], whole)
    check(BY_NAME[name], line.replace(b"%s", b"") + b"\n")


@pytest.mark.parametrize("name", ["locals", "virtualdomains", "smtproutes", "concurrencylocal", "me", "longlines"])
def test_a_byte_order_mark_at_the_beginning_of_a_file_is_no_part_of_its_first_line(name: str) -> None:
    data = {"concurrencylocal": b"5\n", "longlines": b"fail\n", "me": b"example.org\n"}.get(
        name, b"example.org:relay.example\n"
    )
    file = BY_NAME[name]
    check(file, b"\xef\xbb\xbf" + data)
    assert contents(file, b"\xef\xbb\xbf" + data) == contents(file, data)


@pytest.mark.parametrize(("name", "data"), [("concurrencylocal", b"0\n"), ("locals", b"# none\n")])
def test_what_qmail_takes_and_is_meant_is_taken(name: str, data: bytes) -> None:
    check(BY_NAME[name], data)
