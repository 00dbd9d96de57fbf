"""The formats of lock/control: requests and replies, whole and in pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.admin.returning import RecipientSelector
from queue_wire.admin.socket import (
    COMMANDS,
    HOLD,
    IDS_MAX,
    QUERIES,
    SOME,
    Note,
    Request,
    Response,
    pack_request,
    pack_response,
    unpack_request,
    unpack_response,
)
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader
from support.plugins import strategies
from support.processes.refusals import value_or_refusal

requests = st.one_of(
    st.builds(
        lambda command, reason, names: Request(command, reason if command == HOLD else b"", names),
        st.sampled_from(sorted(COMMANDS - QUERIES - SOME)),
        strategies.texts,
        st.lists(strategies.texts, max_size=5),
    ),
    st.builds(
        lambda command, names, recipient, domain: Request(command, b"", names, RecipientSelector(recipient, domain)),
        st.sampled_from(sorted(SOME)),
        st.lists(strategies.texts, max_size=5),
        strategies.texts.filter(bool),
        strategies.texts,
    ),
)
notes = st.builds(Note, st.sampled_from([b"-", b"!", b"="]), strategies.texts)
replies = st.one_of(
    st.builds(lambda count, found: Response(count, found), strategies.numbers, st.lists(notes, max_size=5)),
    strategies.texts.filter(bool).map(lambda text: Response(0, [], text)),
)


def payloads(pieces: list[bytes]) -> list[bytes]:
    reader, found = NetstringReader(), []
    for piece in pieces:
        reader.feed(piece)
        while (payload := reader.next()) is not None:
            found.append(payload)
    return found


@given(requests, requests)
def test_requests_are_read_however_they_arrive(first: Request, second: Request) -> None:
    for pieces in strategies.arrivals(pack_request(first) + pack_request(second)):
        assert [unpack_request(payload) for payload in payloads(pieces)] == [first, second]


@given(replies, replies)
def test_replies_are_read_however_they_arrive(first: Response, second: Response) -> None:
    for pieces in strategies.arrivals(pack_response(first) + pack_response(second)):
        assert [unpack_response(payload) for payload in payloads(pieces)] == [first, second]


@given(strategies.garbage)
def test_garbage_is_a_format_error_or_a_value_and_nothing_else(data: bytes) -> None:
    for unpack in (unpack_request, unpack_response):
        value_or_refusal(unpack, data)


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"stop", b"HOLD\0x", b"hold", b"flush\0" + b"\0".join([b"1-1"] * 101),
        b"bounce-some", b"bounce-some\0a@b", b"bounce-some\0\0\0001-1",
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused(payload: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_request(payload)


def test_a_request_has_so_many_ids_at_the_most() -> None:
    request = Request(HOLD, b"why", [b"1-1"] * IDS_MAX)
    assert unpack_request(payloads([pack_request(request)])[0]) == request


@pytest.mark.parametrize("payload", [b"", b"ok", b"ok\0x", b"ok\0" + b"1" * 19, b"ok\0001\0?x", b"ok\0001\0", b"error"])
def test_what_is_no_reply_is_refused(payload: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_response(payload)
