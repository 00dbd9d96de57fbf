"""What queue-send answers on lock/control: causes and facts, there and back, and as people read them."""

from hypothesis import given
from hypothesis import strategies as st

from queue_wire.admin.cause import KINDS, Cause, describe, pack_cause, unpack_cause
from queue_wire.admin.socket import (
    NEWS,
    Note,
    Response,
    pack_response,
    unpack_response,
)
from queue_wire.pipes.framing import NetstringReader

NEXTHOPS = st.binary(max_size=40).map(lambda data: data.replace(b"\0", b" "))
WORDS = st.sampled_from([b"", b"destinationlimits:3", b"relay.example:25,other+third"])
CHANNELS = st.sampled_from([b"local", b"remote"])
NUMBERS = st.integers(0, 10**18 - 1)
causes = st.builds(
    Cause, st.sampled_from(sorted(KINDS)), st.one_of(CHANNELS, st.just(b"")),
    NUMBERS, NUMBERS, NUMBERS, NUMBERS, NEXTHOPS,
)  # fmt: skip


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
