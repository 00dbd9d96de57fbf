"""What people read or write: log lines, failures, control files, addresses, error texts."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire import logline
from queue_wire.address import bounce_recipient, is_verp, split_address, verp_sender
from queue_wire.control.lines import (
    unpack_line,
    unpack_lines,
    unpack_map,
    unpack_number,
    unpack_set,
)
from queue_wire.failures import pack_failure, unpack_failures, whole_length
from queue_wire.format_error import FormatError, quoted
from support.plugins import strategies

long_bytes = st.one_of(st.binary(max_size=80), st.binary(max_size=40).map(lambda data: data * 60))
PRINTABLE = bytes(range(33, 127)).replace(b"%", b"")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (logline.status(1, 10, 17, 120, False), b"status: local 1/10 remote 17/120"),
        (logline.status(0, 10, 1, 20, True), b"status: local 0/10 remote 1/20 exitasap"),
        (logline.EXITING, b"status: exiting"),
        (logline.new_message(457), b"new msg 457"),
        (
            logline.info_message(457, 2310, b"a@example.org", 8123, 1000),
            b"info msg 457: bytes 2310 from <a@example.org> qp 8123 uid 1000",
        ),
        (
            logline.starting_delivery(9, 457, b"remote", b"b@example.net"),
            b"starting delivery 9: msg 457 to remote b@example.net",
        ),
        (
            logline.delivery_result(9, b"K", b"192.0.2.1 accepted message.\nRemote host said: 250 ok\n"),
            b"delivery 9: success: 192.0.2.1_accepted_message./Remote_host_said:_250_ok/",
        ),
        (logline.delivery_result(9, b"Z", b"100% \xff\x7f\t"), b"delivery 9: deferral: 100_____"),
        (logline.delivery_result(9, b"D", b""), b"delivery 9: failure: "),
        (logline.delivery_result(9, b"Q", b"what"), b"delivery 9: report mangled, will defer"),
        (logline.delivery_result(9, b"", b""), b"delivery 9: report mangled, will defer"),
        (logline.bounce_message(457, 8125), b"bounce msg 457 qp 8125"),
        (logline.triple_bounce(457), b"triple bounce: discarding bounce/457"),
        (logline.end_message(457), b"end msg 457"),
        (logline.alert("unable to read x: no\nsuch"), b"alert: unable to read x: no/such"),
        (logline.warning("caf\u00e9 100%"), b"warning: caf__ 100_"),
        (logline.corrupt_message(457, "no sender"), b"corrupt msg 457: no sender"),
    ],
)
def test_a_log_line_is_qmail_sends_to_the_letter(line: bytes, expected: bytes) -> None:
    assert line == expected


WITH_OUTSIDE_TEXT: list[tuple[Callable[[bytes], bytes], bytes, bytes]] = [
    (lambda text: logline.info_message(2**64, 2**40, text, 2**31, 2**32), b"from <", b"> qp"),
    (lambda text: logline.starting_delivery(10**9, 2**64, b"remote", text), b"to remote ", b""),
    (lambda text: logline.delivery_result(10**9, b"Z", text), b"deferral: ", b""),
]


@pytest.mark.parametrize(("make", "head", "tail"), WITH_OUTSIDE_TEXT)
@given(text=long_bytes)
def test_outside_text_in_a_log_line_is_one_printable_word(
    make: Callable[[bytes], bytes], head: bytes, tail: bytes, text: bytes
) -> None:
    line = make(text)
    word = line.split(head, 1)[1]
    word = word[: word.rindex(tail)] if tail else word

    assert len(line) <= 1000
    assert not word.strip(PRINTABLE)
    assert len(word) == len(text) or len(line) == 1000


@given(st.text(max_size=60), st.integers(1, 40))
def test_our_own_words_in_a_log_line_stay_on_one_line_of_1000_bytes(text: str, times: int) -> None:
    for line in (logline.alert(text * times), logline.warning(text * times), logline.corrupt_message(7, text * times)):
        assert len(line) <= 1000
        assert not line.strip(PRINTABLE + b" ")


@given(st.binary(max_size=80))
def test_escaped_text_keeps_its_length_and_its_printable_bytes(text: bytes) -> None:
    escaped = logline.escape(text)

    assert len(escaped) == len(text)
    assert all(new == old for new, old in zip(escaped, text, strict=True) if old in PRINTABLE)
    assert logline.escape(escaped) == escaped


def test_a_failure_is_a_paragraph_that_names_the_recipient() -> None:
    packed = pack_failure(b"b@example.net", b"Remote host said: 550 no such user\n")

    assert packed == b"<b@example.net>:\nRemote host said: 550 no such user\n\n"
    assert unpack_failures(packed) == [(b"b@example.net", b"Remote host said: 550 no such user")]


@given(st.lists(st.tuples(strategies.texts, st.binary(max_size=60)), max_size=6))
def test_failures_come_back_whole_whatever_they_hold(failures: list[tuple[bytes, bytes]]) -> None:
    data = b"".join(pack_failure(recipient, text) for recipient, text in failures)
    found = unpack_failures(data)

    assert whole_length(data) == len(data)
    assert [recipient for recipient, _ in found] == list(dict.fromkeys(r.replace(b"\n", b"_") for r, _ in failures))
    assert all(text and b"\n\n" not in text for _, text in found)


@given(strategies.texts, st.binary(max_size=60), st.data())
def test_a_piece_of_a_failure_that_a_crash_left_is_never_taken_for_one(
    recipient: bytes, text: bytes, data: st.DataObject
) -> None:
    first, second = pack_failure(b"first", b"one"), pack_failure(recipient, text)
    piece = second[: data.draw(st.integers(0, len(second) - 1))]

    assert whole_length(first + piece) == len(first)
    assert unpack_failures(first + piece) == [(b"first", b"one")]
    assert whole_length(first + bytes(len(piece))) == len(first)


@given(strategies.garbage)
def test_a_bounce_file_of_other_tools_is_never_refused(data: bytes) -> None:
    assert all(text for _, text in unpack_failures(data))


def test_a_control_line_is_the_first_one_without_its_trailing_blanks() -> None:
    assert unpack_line(b"me.example.org \t\nsecond\n") == b"me.example.org"
    assert unpack_line(b"dos\r\n") == b"dos"
    assert unpack_line(b"") == unpack_line(b"\nme\n") == b""


def test_control_lines_leave_out_empty_ones_and_comments() -> None:
    data = b"one\n\n#two\n three \t\n   \n#\nfour"

    assert unpack_lines(data) == [b"one", b" three", b"four"]
    assert unpack_set(b"Example.ORG\nexample.org\n") == frozenset([b"example.org"])


@pytest.mark.parametrize(("data", "number"), [(b"20\n", 20), (b"0", 0), (b"007 \nx", 7), (b"9" * 18, int("9" * 18))])
def test_a_control_number_is_the_digits_of_the_first_line(data: bytes, number: int) -> None:
    assert unpack_number(data) == number


@pytest.mark.parametrize("data", [b"", b"\n20\n", b"-1", b"1.5", b"twenty", b"2 0", b"0x10", b"9" * 19, b"\xb2"])
def test_what_is_not_a_control_number_is_refused_and_quoted(data: bytes) -> None:
    with pytest.raises(FormatError, match="not a number"):
        unpack_number(data)


def test_a_control_map_is_divided_at_the_first_colon_and_the_last_of_equal_keys_wins() -> None:
    data = b"Example.net:alias-net\n.example.com:\nno colon\n:[192.0.2.1]:25\nexample.NET:second\n#x:y\n"

    assert unpack_map(data) == {b"example.net": b"second", b".example.com": b"", b"": b"[192.0.2.1]:25"}


@given(st.binary(max_size=80))
def test_no_control_file_makes_a_reader_raise_anything_but_a_format_error(data: bytes) -> None:
    unpack_line(data), unpack_set(data), unpack_map(data)
    try:
        assert unpack_number(data) >= 0
    except FormatError as error:
        assert "not a number" in str(error)


@pytest.mark.parametrize(
    ("address", "parts"),
    [(b"a@b", (b"a", b"b")), (b"a@b@c", (b"a@b", b"c")), (b"a", (b"a", b"")), (b"", (b"", b"")), (b"@c", (b"", b"c"))],
)
def test_the_last_at_divides_an_address(address: bytes, parts: tuple[bytes, bytes]) -> None:
    assert split_address(address) == parts


def test_a_verp_sender_names_the_recipient_as_addresses_5_says() -> None:
    assert is_verp(b"owner-@host-@[]")
    assert verp_sender(b"owner-@host-@[]", b"x@y") == b"owner-x=y@host"
    assert verp_sender(b"owner-@host-@[]", b"a@b@y") == b"owner-a@b=y@host"
    assert verp_sender(b"owner-@host-@[]", b"x@") == b"owner-x=@host"
    assert verp_sender(b"owner-@host-@[]", b"nohost") == b"owner-@host-@[]"


@pytest.mark.parametrize("sender", [b"", b"owner@host", b"#@[]", b"-@[]", b"owner-@[]", b"owner-@host"])
def test_any_other_sender_is_the_same_for_every_recipient(sender: bytes) -> None:
    assert not is_verp(sender)
    assert verp_sender(sender, b"x@y") == sender


@pytest.mark.parametrize(
    ("sender", "recipient"),
    [(b"owner-@host-@[]", b"owner-@host"), (b"a@b", b"a@b"), (b"", b""), (b"#@[]", b"#@[]"), (b"owner-@[]", b"owner")],
)
def test_a_bounce_goes_to_a_verp_sender_without_its_suffix(sender: bytes, recipient: bytes) -> None:
    assert bounce_recipient(sender) == recipient


@given(st.binary(max_size=100))
def test_quoted_bytes_are_short_printable_ascii(data: bytes) -> None:
    shown = quoted(data)

    assert shown.isascii() and shown.isprintable()
    assert len(shown) <= 40 * 4 + 5
