"""Domains with U-labels, as A-labels."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queue_wire.address import ascii_domain
from queue_wire.format_error import FormatError


@pytest.mark.parametrize(
    ("domain", "labels"),
    [
        ("bücher.example", b"xn--bcher-kva.example"),
        ("Bücher.Example", b"xn--bcher-kva.example"),
        ("例え.テスト", b"xn--r8jz45g.xn--zckzah"),
        ("例え。テスト", b"xn--r8jz45g.xn--zckzah"),
        ("straße.example", b"xn--strae-oqa.example"),
        ("Plain_Name.example", b"Plain_Name.example"),
    ],
)
def test_a_domain_is_written_in_a_labels(domain: str, labels: bytes) -> None:
    assert ascii_domain(domain.encode()) == labels


@pytest.mark.parametrize("domain", [b"\xe9.example", "a\u2028b.example".encode(), "é".encode() * 600, "é..x".encode()])
def test_what_cannot_be_written_so_is_refused(domain: bytes) -> None:
    with pytest.raises(FormatError):
        ascii_domain(domain)


@given(st.one_of(st.binary(max_size=80), st.text(max_size=80).map(lambda text: text.encode("utf-8", "surrogatepass"))))
@example("\u06b1\u06b1.example".encode())
def test_any_bytes_are_ascii_labels_or_a_format_error(domain: bytes) -> None:
    try:
        found = ascii_domain(domain)
    except FormatError:
        return
    assert found.isascii()
    assert ascii_domain(found) == found
