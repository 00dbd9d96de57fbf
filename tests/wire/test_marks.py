"""The records of queue/marks: what is written is read, and nothing else is ever taken for a record."""

from hypothesis import given
from hypothesis import strategies as st

from queue_wire.files.marks import (
    EMPTY,
    FILE_SIZE,
    HEADER,
    RECIPIENTS_MAX,
    SLOT_SIZE,
    SLOTS,
    DoneMarks,
    EnvelopeIdentity,
    identify,
    make_seed,
    offset_of,
    pack_marks,
    unpack_file,
    unpack_marks,
)
from queue_wire.ids import ID_MAX

words = st.integers(0, 2**32 - 1)
envelopes = st.builds(EnvelopeIdentity, st.integers(1, ID_MAX), st.integers(-(2**63), 2**63 - 1), words, words)
records = st.builds(DoneMarks, envelopes, st.integers(0, 2**RECIPIENTS_MAX - 1), st.booleans())
SEED = make_seed(b"7c2f5f0e-0000-4000-8000-000000000000\n")


@given(records, words)
def test_a_record_is_read_as_it_was_written_and_fills_a_slot(marks: DoneMarks, seed: int) -> None:
    packed = pack_marks(marks, seed)

    assert len(packed) == SLOT_SIZE
    assert unpack_marks(packed, seed) == marks


def test_a_record_has_the_bytes_that_its_page_shows() -> None:
    envelope = identify(457, 1_600_000_000_000_000, b"u1\0p2\0Fa@b\0Tc@d\0Te@f\0")

    packed = pack_marks(DoneMarks(envelope, 0b101), SEED)

    assert packed[:4] + packed[4:12][::-1] + packed[12:20][::-1] == (
        b"QSM1" + (457).to_bytes(8, "big") + (1_600_000_000_000_000).to_bytes(8, "big")
    )
    assert packed[20:28] == bytes.fromhex("15000000 74eb05de")
    assert packed[28:60] == b"\5" + bytes(31)
    assert packed[60:] == bytes.fromhex("5a82f7d8")
    assert pack_marks(DoneMarks(envelope, 0b101, logged=True), SEED)[28:60] == b"\5" + bytes(30) + b"\1"


@given(st.binary(max_size=80), words)
def test_any_other_bytes_are_no_record(data: bytes, seed: int) -> None:
    assert unpack_marks(data, seed) is None


@given(records, records, st.integers(1, SLOT_SIZE - 1))
def test_a_record_that_is_written_in_part_over_another_one_is_no_record(
    old: DoneMarks, new: DoneMarks, length: int
) -> None:
    before, after = pack_marks(old, SEED), pack_marks(new, SEED)

    torn = after[:length] + before[length:]

    assert torn in (before, after) or unpack_marks(torn, SEED) is None
    assert after[:length] + EMPTY[length:] == after or unpack_marks(after[:length] + EMPTY[length:], SEED) is None


@given(records, st.integers(0, SLOT_SIZE * 8 - 1))
def test_a_record_with_one_bit_changed_is_no_record(marks: DoneMarks, bit: int) -> None:
    data = bytearray(pack_marks(marks, SEED))
    data[bit // 8] ^= 1 << bit % 8

    assert unpack_marks(bytes(data), SEED) is None


@given(records)
def test_a_record_of_an_earlier_boot_is_no_record(marks: DoneMarks) -> None:
    assert unpack_marks(pack_marks(marks, SEED), make_seed(b"another boot")) is None


def test_an_empty_slot_and_the_header_are_no_records() -> None:
    assert unpack_marks(EMPTY, SEED) is None
    assert unpack_marks(HEADER, SEED) is None


def test_envelopes_that_differ_in_a_recipient_or_the_injector_have_different_identities() -> None:
    data = b"u1\0p2\0Fa@b\0Tc@d\0"

    assert identify(1, 2, data) == identify(1, 2, bytes(data))
    assert len({identify(1, 2, each) for each in (data, data.replace(b"c@d", b"c@e"), data.replace(b"p2", b"p3"))}) == 3


@given(st.dictionaries(st.integers(0, SLOTS - 1), records, max_size=4), st.binary(max_size=40))
def test_a_file_has_the_records_of_its_slots_and_nothing_of_garbage_between_them(
    placed: dict[int, DoneMarks], garbage: bytes
) -> None:
    data = bytearray(HEADER.ljust(FILE_SIZE, b"\0"))
    free = next(slot for slot in range(SLOTS) if slot not in placed)
    data[offset_of(free) : offset_of(free) + len(garbage)] = garbage
    for slot, marks in placed.items():
        data[offset_of(slot) : offset_of(slot) + SLOT_SIZE] = pack_marks(marks, SEED)

    assert unpack_file(bytes(data), SEED) == placed


@given(records, st.integers(0, 3 * SLOT_SIZE))
def test_a_file_that_is_cut_has_the_records_that_are_whole(marks: DoneMarks, length: int) -> None:
    data = HEADER + pack_marks(marks, SEED) + pack_marks(marks, SEED)

    assert len(unpack_file(data[:length], SEED)) == max(0, length // SLOT_SIZE - 1)


@given(st.binary(max_size=200))
def test_a_file_with_another_header_has_no_records(data: bytes) -> None:
    assert unpack_file(data, SEED) == {}
    assert unpack_file(data[:SLOT_SIZE].ljust(SLOT_SIZE, b"\0") + pack_marks(DONE, SEED), SEED) == {}


DONE = DoneMarks(EnvelopeIdentity(457, 1, 2, 3), 1)


def test_a_file_longer_than_its_slots_has_no_record_beyond_them() -> None:
    data = HEADER.ljust(FILE_SIZE, b"\0") + pack_marks(DONE, SEED)

    assert unpack_file(data, SEED) == {}
