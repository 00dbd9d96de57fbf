"""bounce/I: what is kept of a long text, and the file read in pieces of any size."""

from hypothesis import given
from hypothesis import strategies as st

from queue_send.messages.bounce_file import BOUNCE_MAX
from queue_wire.failures import END, TEXT_MAX, FailureReader, pack_failure, unpack_failures, whole_length
from queue_wire.files.envelope import ADDRESS_MAX

LONG = b"Remote host said: 550-" + b"no " * 1000 + b"\n550 5.1.1 really\nGiving up on 192.0.2.1.\n"


def test_a_long_text_is_kept_with_its_beginning_and_its_last_lines() -> None:
    [(recipient, text)] = unpack_failures(pack_failure(b"b@c", LONG))
    assert recipient == b"b@c"
    assert TEXT_MAX - 10 <= len(text) <= TEXT_MAX
    assert text.startswith(b"Remote host said: 550-no no")
    assert text.endswith(b" [...]\n550 5.1.1 really\nGiving up on 192.0.2.1.")


def test_a_long_text_of_one_line_is_cut_at_its_end() -> None:
    [(_, text)] = unpack_failures(pack_failure(b"b@c", b"x" * 5000))
    assert text == b"x" * (TEXT_MAX - len(b" [...]\n")) + b" [...]"


@given(st.lists(st.sampled_from([b"x" * 400, b"\n", b"\n\n", b"\r\n", b"y" * 150, b"<b>:\n", b" "]), max_size=30))
def test_a_text_of_any_length_is_one_paragraph_of_bounded_size(pieces: list[bytes]) -> None:
    packed = pack_failure(b"b@c", b"".join(pieces))
    assert len(packed) <= len(b"<b@c>:\n") + TEXT_MAX + len(END)
    assert packed.count(END) == 1 and whole_length(packed) == len(packed)
    [(recipient, text)] = unpack_failures(packed + pack_failure(b"d@e", b"no"))[:1]
    assert (recipient, packed) == (b"b@c", b"<b@c>:\n" + text + END)


def test_the_file_of_50000_failures_of_the_greatest_length_may_be_read() -> None:
    greatest = pack_failure(b"a" * ADDRESS_MAX, b"x" * 5000)
    assert 50_000 * len(greatest) < BOUNCE_MAX


@given(
    st.lists(st.sampled_from([b"<a@b>:\n", b"no", b"\n", b"\n\n", b"<", b"\0", b"550"]), max_size=30).map(b"".join),
    st.integers(1, 9),
)
def test_a_file_read_in_pieces_is_the_file_read_at_once(data: bytes, size: int) -> None:
    reader = FailureReader()
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
    assert list(reader.take()) == unpack_failures(data)


def test_a_paragraph_without_end_does_not_grow_in_memory_and_hides_nothing_after_it() -> None:
    reader = FailureReader()
    for piece in [b"<a@b>:\n", *[b"x" * 65535 + b"\n"] * 200, b"\n", b"<c@d>:\nno\n\n"]:
        reader.feed(piece)
        assert len(reader._rest) <= 70_000
    assert list(reader.take()) == [(b"a@b", b"x" * TEXT_MAX), (b"c@d", b"no")]
