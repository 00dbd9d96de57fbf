"""Envelopes: todo/, info/, and what a client writes to queue-enqueue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.files.envelope import (
    ADDRESS_MAX,
    Envelope,
    EnvelopeReader,
    check_address,
    drop_recipients,
    pack_info,
    pack_todo,
    unpack_info,
    unpack_todo,
    unpack_whole_info,
)
from queue_wire.format_error import AddressTooLong, FormatError
from support.plugins import strategies

TODO = b"u1000\0p8123\0Fa@example.org\0Tb@example.net\0"
LONGEST = b"x" * ADDRESS_MAX


def test_a_todo_file_is_the_bytes_that_qmail_documents() -> None:
    envelope = Envelope(1000, 8123, b"a@example.org", [b"b@example.net"])

    assert pack_todo(envelope) == TODO
    assert unpack_todo(TODO) == envelope


def test_a_todo_file_may_have_the_null_sender_and_no_recipients() -> None:
    assert unpack_todo(b"u0\0p1\0F\0") == Envelope(0, 1, b"", [])
    assert pack_todo(Envelope(0, 1, b"", [])) == b"u0\0p1\0F\0"


@pytest.mark.parametrize("length", range(len(TODO)))
def test_a_todo_file_that_was_cut_short_is_refused_or_lacks_whole_recipients_only(length: int) -> None:
    try:
        cut = unpack_todo(TODO[:length])
    except FormatError:
        return
    assert cut == Envelope(1000, 8123, b"a@example.org", [])


@given(strategies.addresses)
def test_an_info_file_comes_back_as_it_was_packed(sender: bytes) -> None:
    assert pack_info(sender) == b"F" + sender + b"\0"
    assert unpack_info(pack_info(sender)) == sender


SUBMITTER = b"0123456789abcdef"


@given(
    strategies.addresses, st.sampled_from(["", "bulk"]), st.integers(0, 10**20 - 1), st.sampled_from([b"", SUBMITTER])
)
def test_uid_and_submitter_behind_the_sender_in_info_come_back_and_their_values_do_not_change_its_length(
    sender: bytes, priority: str, uid: int, submitter: bytes
) -> None:
    data = pack_info(sender, priority, uid, submitter)
    assert unpack_whole_info(data) == (sender, priority, uid, submitter)
    assert len(data) == len(pack_info(sender, priority, 0, submitter))
    # What qmail-send reads: up to the first NUL.
    assert data.partition(b"\0")[0] == b"F" + sender


def test_the_submitter_follows_the_uid_where_qmail_reads_only_digits() -> None:
    envelope = Envelope(1000, 8123, b"a@example.org", [b"b@example.net"], SUBMITTER)
    assert pack_todo(envelope) == TODO.replace(b"u1000", b"u1000 " + SUBMITTER)
    assert unpack_todo(pack_todo(envelope)) == envelope
    for wrong in (b"", b" ", b" x", b" " + SUBMITTER + b"0", b" " + SUBMITTER.upper(), b"  " + SUBMITTER[1:]):
        if wrong:
            with pytest.raises(FormatError):
                unpack_todo(TODO.replace(b"u1000", b"u1000" + wrong))


def test_the_longest_address_is_packed_and_a_longer_one_is_not() -> None:
    assert check_address(LONGEST) == LONGEST
    with pytest.raises(AddressTooLong):
        pack_info(LONGEST + b"x")
    with pytest.raises(AddressTooLong):
        pack_todo(Envelope(0, 0, b"", [LONGEST + b"x"]))


def test_an_address_with_a_nul_is_never_packed() -> None:
    with pytest.raises(FormatError):
        pack_info(b"a\0b")
    with pytest.raises(FormatError):
        pack_todo(Envelope(0, 0, b"", [b"a\0Tb"]))


def feed(pieces: list[bytes]) -> tuple[tuple[bytes, list[bytes]] | None, bytes]:
    """Return what a new reader makes of the pieces, and what it left."""
    reader = EnvelopeReader()
    for number, piece in enumerate(pieces):
        envelope = reader.feed(piece)
        if envelope is not None:
            return envelope, reader.rest + b"".join(pieces[number + 1 :])
    return None, b""


@pytest.mark.parametrize("after", [b"", b"\0", b"Tx@y\0", b"more\0\0"])
def test_a_clients_envelope_is_read_however_it_arrives_and_leaves_what_follows(after: bytes) -> None:
    data = b"Fa@example.org\0Tb@example.net\0T\0\0"

    for pieces in strategies.arrivals(data + after):
        assert feed(pieces) == ((b"a@example.org", [b"b@example.net", b""]), after)


@given(strategies.addresses, strategies.recipients)
def test_a_clients_envelope_comes_back(sender: bytes, recipients: list[bytes]) -> None:
    data = b"F" + sender + b"\0" + b"".join(b"T" + recipient + b"\0" for recipient in recipients) + b"\0"

    assert feed([data]) == ((sender, recipients), b"")
    assert feed([data[at : at + 1] for at in range(len(data))]) == ((sender, recipients), b"")


@given(strategies.garbage)
def test_a_clients_garbage_is_refused_alike_however_it_arrives(data: bytes) -> None:
    outcomes = set()
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
        try:
            envelope, rest = feed(pieces)
            outcomes.add((str(envelope), rest))
        except FormatError as error:
            outcomes.add((type(error).__name__, b""))
    assert len(outcomes) == 1


@pytest.mark.parametrize(
    "data", [b"\0", b"Ta\0", b"Fa\0Fb\0", b"Fa\0Tb\0Xc\0", b"x", b"x" * 5000, b"Fa\0x" + b"y" * 5000]
)
def test_a_record_of_the_wrong_kind_is_bad_and_not_too_long(data: bytes) -> None:
    for pieces in strategies.arrivals(data):
        with pytest.raises(FormatError) as caught:
            feed(pieces)
        assert not isinstance(caught.value, AddressTooLong)


@pytest.mark.parametrize("head", [b"F", b"Fa\0T", b"Fa\0Tb\0T"])
def test_an_address_is_taken_up_to_1002_bytes_as_qmail_queue_does(head: bytes) -> None:
    envelope, _ = feed([head + b"x" * 1002 + b"\0\0"])
    assert envelope is not None

    for ending in (b"\0\0", b""):
        for pieces in strategies.arrivals(head + b"x" * 1003 + ending):
            with pytest.raises(AddressTooLong):
                feed(pieces)


def test_an_envelope_over_the_readers_cap_is_refused() -> None:
    reader = EnvelopeReader(most=100)
    assert reader.feed(b"Fa\0" + b"Tb\0" * 32) is None

    with pytest.raises(FormatError, match="too large"):
        reader.feed(b"Tb\0")


@pytest.mark.parametrize(
    ("done", "left"), [(0, b"Tc\0Td\0Te\0"), (0b010, b"Tc\0Te\0"), (0b111, b""), (0b1000, b"Tc\0Td\0Te\0")]
)
def test_recipients_that_are_done_are_dropped_by_their_place(done: int, left: bytes) -> None:
    assert drop_recipients(b"u1\0p2\0FT\0Tc\0Td\0Te\0", done) == b"u1\0p2\0FT\0" + left
