"""Message ids, long ids, buckets and primes; recipient files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.files.recipients import (
    DONE_MARK,
    pack_recipients,
    unpack_pending,
    unpack_recipients,
)
from queue_wire.format_error import FormatError
from queue_wire.ids import (
    ID_MAX,
    bucket,
    is_prime,
    nearest_primes,
    pack_long_id,
    unpack_id,
    unpack_long_id,
)
from support.plugins import strategies


@given(strategies.garbage)
def test_garbage_is_an_id_only_if_it_is_packed_alike(data: bytes) -> None:
    try:
        assert b"%d" % unpack_id(data) == data
    except FormatError as error:
        assert "not a message id" in str(error)


def test_a_bucket_is_the_remainder() -> None:
    assert [bucket(457, 23), bucket(23, 23), bucket(22, 23)] == [20, 0, 22]


def test_a_long_id_is_the_inode_number_and_the_birth_in_base_36() -> None:
    assert pack_long_id(457, 35) == "457-z"
    assert pack_long_id(457, 36) == "457-10"
    assert pack_long_id(457, 0) == pack_long_id(457, -1) == "457-0"
    assert pack_long_id(457, 36**9 + 35) == "457-100000000z"
    assert unpack_long_id("457") == (457, None)


@given(st.text(max_size=20))
def test_no_text_makes_a_long_id_raise_anything_else(text: str) -> None:
    try:
        message, _ = unpack_long_id(text)
    except FormatError:
        return
    assert 0 < message <= ID_MAX


def test_the_primes_below_100_are_the_primes() -> None:
    sieve = [number for number in range(2, 100) if all(number % divisor for divisor in range(2, number))]

    assert [number for number in range(-3, 100) if is_prime(number)] == sieve


@pytest.mark.parametrize(
    ("number", "primes"),
    [(24, (23, 29)), (23, (19, 29)), (9, (7, 11)), (4, (3, 5)), (2, (2, 3)), (0, (2, 2)), (-5, (2, 2))],
)
def test_the_nearest_primes_are_those_below_and_above(number: int, primes: tuple[int, int]) -> None:
    assert nearest_primes(number) == primes


def test_a_recipient_file_is_the_bytes_that_qmail_documents() -> None:
    data = b"Tb@example.net\0Dc@example.net\0T\0"

    assert pack_recipients([b"b@example.net", b""]) == b"Tb@example.net\0T\0"
    assert unpack_recipients(data) == [(0, False, b"b@example.net"), (15, True, b"c@example.net"), (30, False, b"")]
    assert unpack_pending(data) == [(0, b"b@example.net"), (30, b"")]
    assert unpack_recipients(b"") == []


@given(strategies.recipients, st.data())
def test_a_mark_at_a_records_offset_makes_one_recipient_done(recipients: list[bytes], data: st.DataObject) -> None:
    packed = bytearray(pack_recipients(recipients))
    found = unpack_recipients(bytes(packed))
    assert [(done, address) for _, done, address in found] == [(False, address) for address in recipients]
    marked = data.draw(st.sets(st.sampled_from(range(len(recipients))))) if recipients else set()
    for index in marked:
        packed[found[index][0] : found[index][0] + 1] = DONE_MARK

    pending = unpack_pending(bytes(packed))

    assert [address for _, address in pending] == [a for index, a in enumerate(recipients) if index not in marked]


@pytest.mark.parametrize("data", [b"T", b"Ta", b"\0", b"Xa\0", b"Ta\0\0", b"Ta\0b\0", b"ta\0"])
def test_a_recipient_file_that_is_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_recipients(data)


@given(strategies.garbage)
def test_garbage_in_a_recipient_file_raises_nothing_but_a_format_error(data: bytes) -> None:
    try:
        found = unpack_recipients(data)
    except FormatError:
        return
    assert b"".join((b"D" if done else b"T") + address + b"\0" for _, done, address in found) == data
