"""control/milters and control/headerfaults: what their lines mean, and which are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.control.listeners import Role
from queue_wire.control.milters import (
    ACCEPT,
    COPY,
    HOLD,
    MILTERS_MAX,
    REFUSE,
    FilterSetup,
    MilterLine,
    unpack_milters,
)
from queue_wire.control.registry import HEADERFAULTS
from queue_wire.format_error import FormatError, LineError
from support.processes.refusals import value_or_refusal


def test_lines_are_places_with_options() -> None:
    found = unpack_milters(
        b"# ours\ninet:127.0.0.1:8891\nunix:/run/x mx default=accept connect=1 command=2 content=540\n"
        b"inet:[2001:db8::1]:9 submission submissions default=tempfail\nlocal:/y authserv=MX.a\ninet:localhost:65535\n"
    )
    assert found == [
        MilterLine("inet:127.0.0.1:8891", "127.0.0.1", 8891, ""),
        MilterLine("unix:/run/x", "", 0, "/run/x", (Role.MX,), True, 1, 2, 540),
        MilterLine("inet:[2001:db8::1]:9", "2001:db8::1", 9, "", (Role.SUBMISSION, Role.SUBMISSIONS)),
        MilterLine("local:/y", "", 0, "/y", authserv=b"mx.a"),
        MilterLine("inet:localhost:65535", "localhost", 65535, ""),
    ]
    setup = FilterSetup(tuple(found))
    assert [line.name for line in setup.of(Role.MX).milters] == [found[at].name for at in (0, 1, 3, 4)]
    assert setup.any and not FilterSetup().any and not FilterSetup(tuple(found[2:3])).of(Role.MX).any


@pytest.mark.parametrize(
    "line",
    [
        b"8891", b"inet:8891", b"inet:host:0", b"inet:host:65536", b"unix:run/x", b"unix:/" + b"x" * 107,
        b"unix:/x relay", b"unix:/x default=discard", b"unix:/x connect=0", b"unix:/x connect=541",
        b"\x0b", b"\x0c", b"unix:/x content=1.5", b"unix:/x mx=1", b"unix:/x authserv=", b"unix:/x authserv=a;b",
    ],
)  # fmt: skip
def test_a_line_that_is_none_is_refused_with_its_number(line: bytes) -> None:
    with pytest.raises(LineError, match="line 2"):
        unpack_milters(b"unix:/a\n" + line + b"\n")


def test_there_are_not_too_many() -> None:
    with pytest.raises(LineError):
        unpack_milters(b"unix:/a\n" * (MILTERS_MAX + 1))


@given(st.binary(max_size=60))
def test_garbage_is_refused_or_read(data: bytes) -> None:
    value_or_refusal(unpack_milters, data)


def test_the_fate_of_broken_headers_is_one_word() -> None:
    fates = [ACCEPT, COPY, HOLD, REFUSE]
    assert [HEADERFAULTS.unpack(word + b"\n") for word in fates] == fates
    assert HEADERFAULTS.unpack(b"") == ACCEPT
    with pytest.raises(FormatError):
        HEADERFAULTS.unpack(b"drop\n")
