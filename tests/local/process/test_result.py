"""What a delivery's process tells queue-local, and queue-local its forwarder: formats that no bytes can break."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_local.forwarding import (
    ForwardAnswer,
    ForwardRequest,
    pack_answer,
    pack_request,
    unpack_answer,
    unpack_request,
)
from queue_local.result import (
    FORWARD_MAX,
    TEXT_MAX,
    Forward,
    cut_text,
    pack_forward,
    pack_result,
    unpack_forward,
    unpack_result,
)
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader, pack_netstring
from queue_wire.pipes.report import PERMANENT, SUCCESS, TEMPORARY
from support.plugins.strategies import addresses, garbage, numbers, some_recipients, texts
from support.processes.refusals import value_or_refusal

head = texts.map(lambda data: data + b"\n") | st.just(b"")
forward = st.builds(Forward, st.integers(0, 2**32 - 2), addresses, head, some_recipients)


def payload(data: bytes) -> bytes:
    reader = NetstringReader()
    reader.feed(data)
    found = reader.next()
    assert found is not None and reader.next() is None
    return found


@given(st.binary(max_size=200), st.none() | forward)
def test_a_result_comes_back_as_it_was(text: bytes, wanted: Forward | None) -> None:
    data = pack_result(text, wanted)
    for size in 1, 7, len(data):
        found, forward = unpack_result([data[at : at + size] for at in range(0, len(data), size)])
        assert found == cut_text(text)
        assert (None if forward is None else unpack_forward(b"".join(forward))) == wanted


@given(garbage)
def test_any_bytes_are_a_result_or_a_format_error(data: bytes) -> None:
    for attempt in (data, pack_netstring(data), pack_netstring(b"did") + pack_netstring(data)):
        try:
            text, _ = unpack_result([attempt])
        except FormatError:
            continue
        assert text.endswith(b"\n") and len(text) <= TEXT_MAX


@given(st.binary(max_size=40), forward, st.data())
def test_a_result_that_is_cut_off_or_goes_on_is_refused(text: bytes, wanted: Forward, data: st.DataObject) -> None:
    whole = pack_result(text, wanted)
    first = len(pack_result(text))
    cut = data.draw(st.integers(0, len(whole) - 1).filter(lambda length: length != first))
    for bad in (whole[:cut], whole + b"x", whole + pack_netstring(b"")):
        with pytest.raises(FormatError):
            unpack_result([bad])


@given(st.binary(max_size=3 * TEXT_MAX))
def test_a_text_is_bounded_and_keeps_its_beginning_and_its_end(text: bytes) -> None:
    cut, whole = cut_text(text), text.rstrip(b"\n") + b"\n"
    assert len(cut) <= TEXT_MAX and cut.endswith(b"\n")
    assert cut == whole or (cut[:1500] == whole[:1500] and cut[-900:] == whole[-900:])


@given(numbers, forward)
def test_a_request_comes_back_as_it_was(number: int, wanted: Forward) -> None:
    packed = pack_forward(wanted)
    for pieces in [packed], [packed[:3], packed[3:]]:
        found = unpack_request(payload(b"".join(pack_request(number, b"mess/3/49", pieces))))
        assert found == ForwardRequest(number, b"mess/3/49", packed)


@given(numbers, st.sampled_from([SUCCESS, TEMPORARY, PERMANENT]), texts)
def test_an_answer_comes_back_as_it_was(number: int, letter: bytes, text: bytes) -> None:
    answer = ForwardAnswer(number, letter, text)
    assert unpack_answer(payload(pack_answer(answer))) == answer


@given(garbage)
def test_any_bytes_are_a_request_and_an_answer_or_a_format_error(data: bytes) -> None:
    for unpack in (unpack_request, unpack_answer, unpack_forward):
        value_or_refusal(unpack, data)


@pytest.mark.parametrize(
    "wanted",
    [
        Forward(1, b"a@b", b"", []),
        Forward(1, b"a\0b", b"", [b"x"]),
        Forward(1, b"", b"h\0\n", [b"x"]),
        Forward(1, b"", b"", [b"x\0y"]),
        Forward(1, b"", b"", [b"x" * FORWARD_MAX]),
    ],
    ids=["nobody", "sender", "head", "recipient", "too large"],
)
def test_a_forward_that_cannot_be_told_apart_again_is_not_packed(wanted: Forward) -> None:
    with pytest.raises(FormatError):
        pack_forward(wanted)


@pytest.mark.parametrize(
    "packed", [b"-1\0\0\0x", b"4294967295\0\0\0x", b"1\0s\0h\n", b"1\0s\0no line\0x", b"", b"x\0\0\0y"]
)
def test_a_forward_of_nobody_s_or_to_nobody_is_refused(packed: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_forward(packed)
