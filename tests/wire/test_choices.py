"""control/outgoingip and control/helohost: the sender's line comes first, then the nexthop's, then the bare one."""

import pytest

from queue_wire.control.choices import unpack_helohost, unpack_name
from queue_wire.format_error import FormatError

LINES = [
    b"mail.example",
    b"second.example",
    b"@news.example:news-out.example",
    b"@.lists.example:lists-out.example",
    b"big.example:to-big.example",
    b".big.example:below-big.example",
]


@pytest.mark.parametrize(
    ("sender", "nexthop", "name"),
    [
        (b"a@b.example", b"c.example", b"mail.example"),
        (b"a@NEWS.example", b"big.example", b"news-out.example"),
        (b"a@x.lists.example", b"c.example", b"lists-out.example"),
        (b"a@b.example", b"Big.example", b"to-big.example"),
        (b"a@b.example", b"x.big.example", b"below-big.example"),
        (b"", b"c.example", b"mail.example"),
        (b"", b"big.example", b"to-big.example"),
    ],
)
def test_the_most_particular_line_counts(sender: bytes, nexthop: bytes, name: bytes) -> None:
    assert unpack_helohost(b"\n".join(LINES)).choose(sender, nexthop) == name


def test_without_a_bare_line_the_default_stays_and_an_empty_key_is_one() -> None:
    assert unpack_helohost(b"b:c").choose(b"a@b", b"x") == b""
    assert unpack_helohost(b":c\n").choose(b"a@b", b"x") == b"c"


@pytest.mark.parametrize("text", [b"", b"two words", b"a\x7fb", b"\xc3\xa9", b"a:b"])
def test_what_is_no_name_is_refused(text: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_name(text)


def test_an_address_in_brackets_is_a_name() -> None:
    assert unpack_name(b" [IPv6:2001:db8::1]") == b"[IPv6:2001:db8::1]"
