"""The format of maildrop files: unpacking returns what was packed, and everything else is rejected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.files.maildrop import (
    ENVELOPE_MAX,
    HEADER_LENGTH,
    RECIPIENTS_MAX,
    is_finished,
    is_temporary,
    pack_envelope,
    pack_header,
    unpack_envelope,
    unpack_header,
)
from queue_wire.format_error import AddressTooLong, FormatError
from support.plugins.strategies import addresses, classes, garbage, recipients


@given(st.integers(0, 10**20 - 1))
def test_a_length_packed_comes_back(length: int) -> None:
    packed = pack_header(length)
    assert len(packed) == HEADER_LENGTH and unpack_header(packed) == length
    for wrong in (packed[:-1], packed + b"x", packed[1:], packed.replace(b"1 ", b"2 ", 1), packed[:-1] + b"\0", b""):
        with pytest.raises(FormatError):
            unpack_header(wrong)


@given(addresses, recipients, classes, st.sampled_from([b"", b"0123456789abcdef"]))
def test_an_envelope_packed_comes_back(sender: bytes, to: list[bytes], priority: str, submitter: bytes) -> None:
    packed = pack_envelope(sender, to, priority, submitter)
    assert unpack_envelope(packed) == (sender, to, priority, submitter)
    for wrong in (packed[:-1], packed + b"x", packed + b"\0"):
        with pytest.raises(FormatError):
            unpack_envelope(wrong)


@given(garbage)
def test_garbage_is_refused_or_is_what_packing_makes(data: bytes) -> None:
    try:
        assert pack_header(unpack_header(data)) == data
    except FormatError:
        pass
    try:
        assert pack_envelope(*unpack_envelope(data)) == data
    except FormatError:
        pass


def test_an_address_that_no_envelope_may_hold_is_refused() -> None:
    with pytest.raises(AddressTooLong):
        pack_envelope(b"a@b", [b"x" * 1003])
    with pytest.raises(FormatError):
        pack_envelope(b"a\0b", [])


def test_an_envelope_has_its_limits_and_what_is_within_them_comes_back() -> None:
    most = [b"x"] * RECIPIENTS_MAX
    assert unpack_envelope(pack_envelope(b"a@b", most)) == (b"a@b", most, "", b"")
    for too_many in ([*most, b"x"], [b"x" * 1000] * (ENVELOPE_MAX // 1000)):
        with pytest.raises(FormatError, match="send it several times"):
            pack_envelope(b"a@b", too_many)
    with pytest.raises(FormatError, match="more than"):
        unpack_envelope(b"Fa@b\0" + b"Tx\0" * (RECIPIENTS_MAX + 1) + b"\0")


def test_names_are_temporary_or_finished_or_neither() -> None:
    digits = "0123456789abcdef" * 2
    assert is_temporary("tmp." + digits) and is_finished("mail." + digits)
    assert not is_finished("tmp." + digits) and not is_temporary("mail." + digits)
    for name in ("", digits, "mail.", "mail." + digits[1:], "mail." + digits.upper(), "mail." + digits + "/", "tmp.x"):
        assert not is_finished(name) and not is_temporary(name)
