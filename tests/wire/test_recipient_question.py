"""Questions to the recipient checker and its verdicts, as bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.recipient_question import (
    VERDICT_MAX,
    RecipientQuestion,
    RecipientVerdict,
    pack_question,
    pack_verdict,
    unpack_question,
    unpack_verdict,
)

NUMBERS = st.integers(0, 10**18 - 1)


def payload(data: bytes) -> bytes:
    reader = NetstringReader()
    reader.feed(data)
    found = reader.next()
    assert found is not None and reader.next() is None
    return found


TEXTS = st.binary(max_size=100).filter(lambda data: b"\0" not in data)


@given(NUMBERS, TEXTS, TEXTS, st.booleans())
def test_a_question_comes_out_as_it_went_in(number: int, address: bytes, servers: bytes, relayed: bool) -> None:
    question = RecipientQuestion(number, address, servers, relayed and bool(servers))
    assert unpack_question(payload(pack_question(question))) == question


@given(NUMBERS, st.sampled_from([b"K", b"D", b"Z"]), st.binary(max_size=100))
def test_a_verdict_comes_out_as_it_went_in(number: int, letter: bytes, text: bytes) -> None:
    verdict = RecipientVerdict(number, letter, text)
    assert unpack_verdict(payload(pack_verdict(verdict))) == verdict


def test_a_long_text_is_cut() -> None:
    cut = payload(pack_verdict(RecipientVerdict(7, b"Z", b"x" * 10_000)))
    assert len(cut) == VERDICT_MAX and unpack_verdict(cut).letter == b"Z"


@pytest.mark.parametrize(
    "data", [b"", b"7", b"x\0joe@host", b"\0joe@host", b"7\0a\0b\0c", b"7\0a\0b\0R\0R", b"-1\0a", b"1" * 19 + b"\0a"]
)
def test_what_is_no_question_is_an_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_question(data)


@pytest.mark.parametrize("data", [b"", b"7", b"7\0", b"7\0Xno", b"x\0K", b"\0K"])
def test_what_is_no_verdict_is_an_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_verdict(data)
