"""N.cluster: what counts of a file that a power cut may have left torn, and what a record keeps."""

from hypothesis import given
from hypothesis import strategies as st

from queue_wire.files.cluster import (
    HEADER_SIZE,
    StoredRecipient,
    cluster_number,
    link_name,
    pack_cluster_header,
    pack_stored,
    salvage_cluster,
    unpack_cluster,
    unpack_cluster_header,
    unpack_link_name,
)

SEED = 0x1234_5678_9ABC_DEF0
ONE = StoredRecipient(457, 1_600_000_000_000_000, 2310, b"a@example.org", b"b@example.net")
TWO = StoredRecipient(2**64 - 1, 0, 0, b"", b'"odd\xff one"@example.net')
addresses = st.binary(max_size=60)
stored = st.builds(
    StoredRecipient, st.integers(1, 2**64 - 1), st.integers(0, 2**63), st.integers(0, 2**50), addresses, addresses,
    st.integers(0, 2**40),
)  # fmt: skip


def packed(*records: StoredRecipient, seed: int = SEED) -> bytes:
    return pack_cluster_header(seed) + b"".join(pack_stored(record, seed) for record in records)


@given(st.lists(stored, max_size=5))
def test_what_was_appended_is_read_back_in_order(records: list[StoredRecipient]) -> None:
    data = packed(*records)
    found = unpack_cluster(data)

    assert [each.stored for each in found.records] == records
    assert found.end == len(data)
    assert found.pending == found.records


def test_a_file_cut_at_any_byte_has_the_records_that_are_whole_and_no_others() -> None:
    data = packed(ONE, TWO, ONE)
    ends = [HEADER_SIZE, len(packed(ONE)), len(packed(ONE, TWO)), len(data)]

    for length in range(len(data) + 1):
        found = unpack_cluster(data[:length])
        assert len(found.records) == max(0, sum(end <= length for end in ends) - 1)


@given(st.integers(HEADER_SIZE, len(packed(ONE, TWO)) - 1), st.integers(1, 255))
def test_a_damaged_byte_takes_its_record_and_those_behind_it_and_never_makes_another_one(at: int, by: int) -> None:
    data = bytearray(packed(ONE, TWO))
    data[at] ^= by

    found = [each.stored for each in unpack_cluster(bytes(data)).records]

    assert found == [ONE, TWO][: len(found)]
    marks = [HEADER_SIZE, len(packed(ONE))]
    assert len(found) == (2 if at in marks else 0 if at < marks[1] else 1)


@given(st.integers(HEADER_SIZE, len(packed(ONE, TWO, ONE)) - 1), st.integers(1, 255), st.booleans())
def test_of_a_damaged_cluster_all_records_but_the_damaged_one_are_found(at: int, by: int, cut: bool) -> None:
    data = bytearray(packed(ONE, TWO, ONE))
    data[at] ^= by
    ends = [HEADER_SIZE, len(packed(ONE)), len(packed(ONE, TWO)), len(data)]
    hit = next(place for place, end in enumerate(ends[1:]) if at < end)
    found = [each.stored for each in salvage_cluster(bytes(data[:-1] if cut else data))]
    whole = [one for place, one in enumerate([ONE, TWO, ONE]) if at in ends or place != hit]
    assert found == (whole[:-1] if cut and (at in ends or hit != 2) else whole)


@given(st.binary(max_size=200))
def test_garbage_with_a_header_has_no_records_to_salvage(data: bytes) -> None:
    assert salvage_cluster(pack_cluster_header(SEED) + data) == [] == salvage_cluster(data)


def test_zeros_and_records_of_another_cluster_behind_the_end_do_not_count() -> None:
    other = packed(ONE, seed=SEED + 1)[HEADER_SIZE:]

    for tail in (bytes(500), other, b"T", b"T" + b"\xff" * 20):
        found = unpack_cluster(packed(TWO) + tail)
        assert [each.stored for each in found.records] == [TWO]
        assert found.end == len(packed(TWO))


def test_a_done_mark_is_one_byte_at_the_offset_of_the_record() -> None:
    data = bytearray(packed(ONE, TWO))
    data[unpack_cluster(bytes(data)).records[0].offset] = ord("D")

    found = unpack_cluster(bytes(data))

    assert [each.done for each in found.records] == [True, False]
    assert [each.stored for each in found.pending] == [TWO]


@given(st.binary(max_size=300))
def test_garbage_has_no_records(data: bytes) -> None:
    assert unpack_cluster(data).records == []
    assert unpack_cluster(pack_cluster_header(SEED) + data).records == []


def test_a_header_tells_its_seed_if_it_is_whole() -> None:
    assert unpack_cluster_header(pack_cluster_header(SEED)) == SEED
    assert unpack_cluster_header(pack_cluster_header(SEED)[:-1]) is None
    assert unpack_cluster_header(b"queue-suite cluster 2 " + b"0" * 16 + b"\n") is None


def test_names_of_clusters_and_of_their_links() -> None:
    assert cluster_number("17.cluster") == 17
    assert [cluster_number(name) for name in ("0.cluster", "017.cluster", "17.new", "mess", "1.clusters")] == [None] * 5
    assert link_name(17, ONE.long_id) == f"17.{ONE.long_id}"
    assert unpack_link_name(f"17.{ONE.long_id}") == (17, ONE.long_id)
    wrong = ("17", "17.457", f"017.{ONE.long_id}", f"x.{ONE.long_id}", "1.0-5", "1.7-05", "1.7-A", "", "9" * 30)
    assert [unpack_link_name(name) for name in wrong] == [None] * len(wrong)
