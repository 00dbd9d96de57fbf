"""control/dnslists: which lists are asked, about which name, and which answers count."""

import pytest

from queue_wire.control.strangers.dnslists import (
    LISTS_MAX,
    DnsList,
    is_hit,
    is_refusal,
    list_question,
    listing_text,
    unpack_dns_lists,
)
from queue_wire.format_error import LineError

LINES = b"""# ours
Zen.Example. 127.0.0.2..11,127.0.1.4  See https://zen.example/%IP%
plain.example
text.example For reasons
"""


def test_a_line_has_a_zone_and_may_have_answers_and_a_text() -> None:
    zen, plain, text = unpack_dns_lists(LINES)
    assert (zen.zone, zen.text) == (b"zen.example", b"See https://zen.example/%IP%")
    assert plain == DnsList(b"plain.example")
    assert text == DnsList(b"text.example", text=b"For reasons")


@pytest.mark.parametrize(
    ("answer", "by_zen", "by_plain"),
    [
        ("127.0.0.2", True, True),
        ("127.0.0.11", True, True),
        ("127.0.0.12", False, True),
        ("127.0.1.4", True, True),
        ("127.0.1.5", False, True),
        ("127.255.255.254", False, False),
        ("192.0.2.1", False, False),
        ("2001:db8::1", False, False),
    ],
)
def test_an_answer_counts_if_it_is_one_of_those_of_the_line(answer: str, by_zen: bool, by_plain: bool) -> None:
    zen, plain, _ = unpack_dns_lists(LINES)
    assert (is_hit(zen, answer), is_hit(plain, answer)) == (by_zen, by_plain)
    assert is_refusal(answer) is (answer == "127.255.255.254")


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("192.0.2.99", b"99.2.0.192.bl.example"),
        ("::ffff:192.0.2.99", b"99.2.0.192.bl.example"),
        ("2001:db8:1::2", b"2." + b"0." * 19 + b"1.0.0.0.8.b.d.0.1.0.0.2.bl.example"),
        ("", None),
    ],
)
def test_an_address_is_asked_for_reversed(address: str, name: bytes | None) -> None:
    assert list_question(DnsList(b"bl.example"), address) == name


def test_the_text_names_the_list_its_answer_and_the_address() -> None:
    zen, plain, _ = unpack_dns_lists(LINES)
    text = b"Your address 192.0.2.1 is listed by plain.example (127.0.0.9)"
    assert listing_text(plain, "192.0.2.1", "127.0.0.9") == text
    assert listing_text(zen, "192.0.2.1", "127.0.0.2").endswith(b" (127.0.0.2); See https://zen.example/192.0.2.1")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"localhost", "not the name of a zone"),
        (b"a..example", "not the name of a zone"),
        (b"a" * 60 + b".b" * 80, "not the name of a zone"),
        (b"bl.example 127.0.0.2-11", "not an answer such as"),
        (b"bl.example 127.0.0.256", "not an answer such as"),
        (b"bl.example 127.0.0.9..2", "not an answer such as"),
        (b"bl.example 10.0.0.1", "not an answer such as"),
        (b"bl.example " + b"x" * 201, "not a text of at most"),
        (b"bl.example caf\xc3\xa9", "not a text of at most"),
        (b"FIRST.example", "a second line for"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(line: bytes, why: str) -> None:
    with pytest.raises(LineError, match=f"line 2: {why}"):
        unpack_dns_lists(b"first.example\n" + line)


def test_there_are_not_too_many_lists() -> None:
    with pytest.raises(LineError, match=f"line {LISTS_MAX + 1}: more than {LISTS_MAX} lists"):
        unpack_dns_lists(b"".join(b"a%d.example\n" % number for number in range(LISTS_MAX + 1)))
