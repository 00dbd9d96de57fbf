"""What queue-send answers on lock/control: causes and facts, there and back, and as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.admin.cause import KINDS, Cause, describe, pack_cause, unpack_cause
from queue_wire.admin.facts import (
    ALIVE,
    DEAD,
    PROBED,
    RELAY,
    ChannelFact,
    DestinationFact,
    pack_channel,
    pack_destination,
    unpack_channel,
    unpack_destination,
)
from queue_wire.admin.socket import (
    DESTINATIONS,
    NEWS,
    TOTALS,
    WHY,
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

NEXTHOPS = st.binary(max_size=40).map(lambda data: data.replace(b"\0", b" "))
WORDS = st.sampled_from([b"", b"destinationlimits:3", b"relay.example:25,other+third"])
CHANNELS = st.sampled_from([b"local", b"remote"])
NUMBERS = st.integers(0, 10**18 - 1)
causes = st.builds(
    Cause, st.sampled_from(sorted(KINDS)), st.one_of(CHANNELS, st.just(b"")),
    NUMBERS, NUMBERS, NUMBERS, NUMBERS, NEXTHOPS,
)  # fmt: skip
destinations = st.builds(
    lambda state, numbers, words, nexthop, why: DestinationFact._make([state, *numbers, *words, nexthop, why]),
    st.sampled_from([ALIVE, DEAD, PROBED, RELAY]), st.lists(NUMBERS, min_size=10, max_size=10),
    st.tuples(WORDS, WORDS), NEXTHOPS, NEXTHOPS.map(lambda data: data.replace(b"\n", b" ")),
)  # fmt: skip
channels = st.builds(
    lambda numbers, name: ChannelFact._make([*numbers, name]), st.lists(NUMBERS, min_size=5, max_size=5), CHANNELS
)


def through_a_reply(text: bytes) -> bytes:
    reader = NetstringReader()
    reader.feed(pack_response(Response(0, [Note(NEWS, text)])))
    payload = reader.next()
    assert payload is not None
    return unpack_response(payload).notes[0].text


@given(causes)
def test_a_cause_comes_back_from_a_reply(cause: Cause) -> None:
    assert unpack_cause(through_a_reply(pack_cause(cause))) == cause


@given(causes)
def test_a_cause_reads_as_one_printable_line(cause: Cause) -> None:
    text = describe(cause)
    assert text.isascii() and text.isprintable() and "{" not in text.replace("{", "", cause.nexthop.count(b"{"))


@given(destinations)
def test_a_destination_comes_back_from_a_reply(fact: DestinationFact) -> None:
    assert unpack_destination(through_a_reply(pack_destination(fact))) == fact


@given(channels)
def test_a_channel_comes_back_from_a_reply(fact: ChannelFact) -> None:
    assert unpack_channel(through_a_reply(pack_channel(fact))) == fact


@given(st.one_of(strategies.garbage, causes.map(pack_cause).flatmap(lambda text: st.just(text[:-1]))))
def test_garbage_is_a_format_error_or_a_value_and_nothing_else(data: bytes) -> None:
    for unpack in (unpack_cause, unpack_destination, unpack_channel):
        value_or_refusal(unpack, data)


@pytest.mark.parametrize(
    "text", [b"", b"due", b"due remote", b"due remote 1 2 3 x y", b"due mars 1 2 3 4 y", b"sad remote 1 2 3 4 y",
             b"due remote 1 2 3 -4 y", b"due remote 1 2 3 " + b"4" * 19 + b" y"],
)  # fmt: skip
def test_what_is_no_cause_is_refused(text: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_cause(text)


@pytest.mark.parametrize("text", [b"", b"alive", b"well 1 2 3 4 5 6 7 8 9 10 x", b"dead 1 2 3 4 5 6 7 8 9 x x"])
def test_what_is_no_destination_is_refused(text: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_destination(text)


@pytest.mark.parametrize("text", [b"", b"1 2 3 4 5 mars", b"1 2 3 4 remote", b"1 2 3 4 x remote"])
def test_what_is_no_channel_is_refused(text: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_channel(text)


QUERIES = [
    Request(WHY, b"", [b"457-1f"]),
    Request(WHY, b"", [b"457-1f", b"Rexample.net", b"Lbox@example.org"]),
    Request(DESTINATIONS, b"", [b"remote", b""]),
    Request(DESTINATIONS, b"", [b"local", b"1000", b"box@example.org"]),
    Request(TOTALS, b"", []),
]


@pytest.mark.parametrize("request_", QUERIES)
def test_a_question_is_a_request(request_: Request) -> None:
    reader = NetstringReader()
    reader.feed(pack_request(request_))
    payload = reader.next()
    assert payload is not None and unpack_request(payload) == request_


@pytest.mark.parametrize(
    "payload",
    [b"why", b"why\x001-1\0example.net", b"why\x001-1\0", b"destinations", b"destinations\0remote",
     b"destinations\0mars\0", b"destinations\0remote\0x", b"destinations\0remote\0" + b"1" * 19],
)  # fmt: skip
def test_what_is_no_question_is_refused(payload: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_request(payload)


def test_causes_read_as_sentences() -> None:
    sentences = {
        Cause(b"waits", b"remote", 1_800_000_000): "waits for its next attempt at 2027-01-15T08:00:00Z",
        Cause(b"flies", b"remote", 0, 1, nexthop=b"a b"): "1 recipient in flight to a_b since 1970-01-01T00:00:00Z",
        Cause(b"window", b"remote", 0, 2, 3, 4, b"c"): "2 recipients waiting at c: its window is 4, jobs in flight: 3",
        Cause(b"dead", b"remote", 0, 2, nexthop=b"c"): (
            "c is dead, next probe now; recipients deferred without an attempt: 2"
        ),
    }
    for cause, sentence in sentences.items():
        assert describe(cause) == sentence
