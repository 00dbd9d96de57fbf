"""The reader of QMTP and QMQP: whole streams, all splits, limits, and what no package can be."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.format_error import FormatError
from queue_wire.pipes import package_reader
from queue_wire.pipes.package_reader import Begin, Data, Event, GivenUp, Package, PackageFacts, PackageReader, Protocol
from queue_wire.pipes.qmtp import (
    GIVE_UP,
    NUMBERS,
    PIECES_END,
    AnswerReader,
    IntakeFacts,
    pack_answer,
    pack_envelope,
    pack_facts,
    pack_package,
    pack_piece,
    pack_qmqp,
    unpack_facts,
)
from support.intake.intake_daemon import netstring, qmqp, qmtp

ADDRESSES = st.binary(max_size=30).map(lambda data: data.replace(b"\0", b"0"))
MESSAGES = st.binary(max_size=200) | st.text("\r\n.:,a", max_size=80).map(str.encode)


def read(
    data: bytes,
    cuts: list[int] | None = None,
    protocol: Protocol | None = None,
    recipients: int = package_reader.RECIPIENTS_MAX,
    recipient_bytes: int = package_reader.RECIPIENT_BYTES,
) -> list[Event]:
    """Return the events of a stream that comes in pieces, its Data of one message joined."""
    reader = PackageReader(protocol, recipients, recipient_bytes)
    events: list[Event] = []
    places = [0, *sorted(cuts or []), len(data)]
    for begin, end in pairwise(places):
        reader.feed(data[begin:end])
        while (event := reader.next()) is not None or reader.paused:
            if event is None:
                continue
            if isinstance(event, Data) and events and isinstance(events[-1], Data):
                events[-1] = Data(events[-1].data + event.data)
            else:
                events.append(event)
    return events


def package(sender: bytes, *recipients: bytes) -> Package:
    memory = sum(map(len, recipients)) + package_reader.RECIPIENT_EXTRA * len(recipients)
    return Package(sender, list(recipients), [], len(recipients), False, memory)


def test_packages_that_are_written_out_are_read() -> None:
    assert read(b"4:\nhi\n,3:a@b,12:3:c@d,3:e@f,,") == [Begin(3), Data(b"hi\n"), package(b"a@b", b"c@d", b"e@f")]
    assert read(b"5:\rhi\r\n,0:,4:1:c,,") == [Begin(4), Data(b"hi\n"), package(b"", b"c")]
    assert read(b"21:3:hi\n,3:a@b,3:c@d,0:,,") == [Begin(3), Data(b"hi\n"), package(b"a@b", b"c@d", b"")]


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_packages_of_qmtp_are_read_however_they_are_cut(step: int) -> None:
    stream = qmtp(b"Subject: a\n\nhi\n", b"a@b", [b"c@d", b"e@f"]) + qmtp(b"", b"", [b"x"])
    events = read(stream, list(range(step, len(stream), step)))
    expected = [Begin(15), Data(b"Subject: a\n\nhi\n"), package(b"a@b", b"c@d", b"e@f"), Begin(0), package(b"", b"x")]
    assert events == expected


@given(MESSAGES, ADDRESSES, st.lists(ADDRESSES, max_size=5), st.lists(st.integers(0, 300)), st.booleans())
def test_any_package_is_read_as_it_was_sent(
    message: bytes, sender: bytes, recipients: list[bytes], cuts: list[int], one: bool
) -> None:
    stream = (pack_qmqp if one else pack_package)(message, sender, recipients)
    assert stream == (qmqp if one else qmtp)(message, sender, recipients)
    body = [Data(message)] if message else []
    expected = [Begin(len(message)), *body, package(sender, *recipients)]
    assert read(stream, [min(cut, len(stream)) for cut in cuts]) == expected


@given(MESSAGES, st.lists(st.integers(0, 300)))
def test_crlf_line_ends_become_lf_however_they_are_cut(message: bytes, cuts: list[int]) -> None:
    stream = qmtp(message, b"a", [b"b"], begin=b"\r")
    events = read(stream, [min(cut, len(stream)) for cut in cuts])
    text = b"".join(event.data for event in events if isinstance(event, Data))
    assert text == message.replace(b"\r\n", b"\n") and events[-1] == package(b"a", b"b")


@given(st.lists(st.binary(max_size=20), max_size=5), st.lists(st.integers(0, 300)), st.booleans())
def test_a_message_in_pieces_is_read_to_its_end_or_given_up(
    pieces: list[bytes], cuts: list[int], given_up: bool
) -> None:
    stream = pack_facts(1000, pieces=True) + b"".join(map(pack_piece, pieces))
    stream += GIVE_UP if given_up else PIECES_END + pack_envelope(b"a", [b"b"])
    stream += qmtp(b"next", b"", [b"c"])
    events = read(stream, [min(cut, len(stream)) for cut in cuts])
    text = b"".join(pieces)
    end = GivenUp() if given_up else package(b"a", b"b")
    following = [Begin(4), Data(b"next"), package(b"", b"c")]
    assert events == [PackageFacts(1000), Begin(None), *([Data(text)] if text else []), end, *following]


@given(st.binary(max_size=60), st.lists(st.integers(0, 60)))
def test_any_bytes_are_read_alike_however_they_are_cut_and_break_nothing_else(data: bytes, cuts: list[int]) -> None:
    def outcome(where: list[int]) -> list[Event] | str:
        try:
            return read(data, where)
        except FormatError:
            return "wrong"

    assert outcome([min(cut, len(data)) for cut in cuts]) == outcome([])


@given(
    st.lists(ADDRESSES, min_size=1, max_size=4), st.lists(st.integers(0, 150)), st.integers(0, 150), st.integers(0, 255)
)
def test_a_package_with_a_wrong_byte_is_read_alike_however_it_is_cut(
    addresses: list[bytes], cuts: list[int], place: int, byte: int
) -> None:
    stream = bytearray(qmtp(b"hi", addresses[0], addresses[1:]) + qmtp(b"hi", b"a", [b"b"]))
    stream[min(place, len(stream) - 1)] = byte

    def outcome(where: list[int]) -> list[Event] | str:
        try:
            return read(bytes(stream), where)
        except FormatError:
            return "wrong"

    assert outcome([min(cut, len(stream)) for cut in cuts]) == outcome([])
    assert outcome(list(range(len(stream)))) == outcome([])


@pytest.mark.parametrize(
    "stream",
    [
        b"x", b":", b"01:\n,", b"-1:", b"1234567890123:", b"0:,", b"3:abc,", b" 3:\nab", b"3:\nabX", b"3:\nab,01:a,",
        b"3:\nab,1:a;", b"3:\nab,1234567890:", b"3:\nab,1:a,4:2:ab,;", b"3:\nab,1:a,4:3:ab,,", b"3:\nab,1:a,3:2:ab,,",
        b"3:\nab,1:a,4:9:ab,,", b"9:3:abc,1:a;", b"8:9:abc,1:a,", b"5:+a=b,,", b"4:+uid,", b"9:+uid=1234\0,", b"5000:+",
        b"7:+pieces,3:abc,", b"7:+pieces,65537:\n", b"7:+pieces,2:!!,",
    ],
)  # fmt: skip
@pytest.mark.parametrize("step", [1, 1000])
def test_what_no_package_can_be_is_an_error(stream: bytes, step: int) -> None:
    with pytest.raises(FormatError):
        read(stream + b"," * 40, list(range(step, len(stream), step)))


def test_an_error_comes_at_the_first_byte_that_shows_it() -> None:
    reader = PackageReader()
    reader.feed(b"00")
    with pytest.raises(FormatError):
        reader.next()


def test_nothing_comes_after_the_package_of_qmqp() -> None:
    with pytest.raises(FormatError, match="after the package"):
        read(qmqp(b"hi", b"a", [b"b"]) + b"4")


@pytest.mark.parametrize(("protocol", "other"), [(Protocol.QMTP, qmqp), (Protocol.QMQP, qmtp)])
def test_a_listener_of_one_protocol_takes_no_other_one(protocol: Protocol, other: object) -> None:
    assert callable(other)
    with pytest.raises(FormatError, match=protocol.value):
        read(other(b"hi", b"a", [b"b"]), protocol=protocol)


def test_addresses_that_cannot_be_are_told_by_their_places() -> None:
    recipients = [b"a", b"x" * 1003, b"b", b"c\0d", b"y" * 1002]
    (*_, found) = read(qmtp(b"", b"s", recipients), list(range(3, 2000, 100)))
    assert isinstance(found, Package)
    assert (found.recipients, found.invalid, found.sent) == ([b"a", b"b", b"y" * 1002], [1, 3], 5)
    for sender in (b"x" * 1003, b"a\0b"):
        (*_, found) = read(qmtp(b"", sender, [b"a"]))
        assert isinstance(found, Package) and found.sender is None and found.recipients == [b"a"]


def test_recipients_over_the_limit_are_counted_and_not_stored() -> None:
    for recipients in ([b"a"] * 11, [b"b" * 30] * 4, [b"c" * 2000] * 11):
        (*_, found) = read(qmtp(b"", b"s", recipients), list(range(50, 3000, 50)), None, 10, 100)
        assert isinstance(found, Package) and found.too_many and found.sent == len(recipients)
        assert len(found.recipients) <= 10 and sum(map(len, found.recipients)) <= 100
    (*_, found) = read(qmtp(b"", b"s", [b"a"] * 10) + qmtp(b"", b"s", [b"d" * 25] * 4), [], None, 10, 100)
    assert isinstance(found, Package) and not found.too_many and len(found.recipients) == 4


def test_a_package_of_impossible_recipients_is_told_as_a_whole_and_none_is_stored() -> None:
    recipients = [b"\0", b"a"] * package_reader.INVALID_MAX
    (*_, found) = read(qmtp(b"", b"s", recipients), list(range(50, 8000, 500)))
    assert isinstance(found, Package) and not found.too_many_invalid
    assert len(found.recipients) == len(found.invalid) == package_reader.INVALID_MAX
    (*_, found) = read(qmtp(b"", b"s", [*recipients, b"\0", b"b"]) + qmtp(b"", b"s", [*recipients, b"\0"] * 3))
    assert isinstance(found, Package) and found.too_many_invalid and found.memory == 0
    assert (found.recipients, found.invalid, found.sent) == ([], [], 3 * len(recipients) + 3)


@pytest.mark.parametrize("recipient", [b"", b"\0", b"a" * 1003])
def test_a_call_reads_a_limited_number_of_elements(recipient: bytes) -> None:
    reader = PackageReader()
    stream = qmtp(b"", b"s", [recipient] * 20_000)
    reader.feed(stream[:65536])
    assert reader.next() == Begin(0)
    calls = 0
    while reader.next() is not None or reader.paused:
        calls += 1
    assert calls >= (0 if len(recipient) > 1000 else 5)


def test_recipients_that_are_to_be_forgotten_take_no_memory() -> None:
    reader = PackageReader()
    stream = qmtp(b"", b"s", [b"abc"] * 1000)
    reader.feed(stream[:3000])
    while reader.next() is not None:
        pass
    assert reader.recipient_bytes > 1000
    reader.forget_recipients()
    assert reader.recipient_bytes == 0
    reader.feed(stream[3000:])
    while (found := reader.next()) is None and reader.paused:
        pass
    assert isinstance(found, Package) and found.too_many and not found.recipients and found.sent == 1000
    reader.feed(qmtp(b"", b"s", [b"abc"]))
    assert reader.next() == Begin(0) and reader.next() == package(b"s", b"abc")


def test_facts_name_a_uid() -> None:
    assert unpack_facts(b"uid=0") == IntakeFacts(0)
    assert unpack_facts(b"pieces\0uid=4294967294") == IntakeFacts(4294967294, True)
    assert unpack_facts(b"") == IntakeFacts()
    assert unpack_facts(b"numbers") == IntakeFacts(numbers=True)
    assert unpack_facts(b"submitter=0123456789abcdef") == IntakeFacts(submitter=b"0123456789abcdef")
    for wrong in (b"submitter=", b"submitter=0123456789abcde", b"submitter=0123456789abcde\n"):
        with pytest.raises(FormatError):
            unpack_facts(wrong)
    for wrong in (b"uid=", b"uid=-1", b"uid=4294967295", b"uid=12345678901", b"uid", b"x", b"uid=1\0", b"hold=",
                  b"pieces\0numbers",
                  b"copy=a\nb", b"hold=" + b"x" * 401):
        with pytest.raises(FormatError):
            unpack_facts(wrong)


def test_causes_are_read_as_they_were_packed_without_control_characters() -> None:
    packed = pack_facts(hold=b"spam\nor not", copy=b"x" * 999)
    assert unpack_facts(packed.partition(b":")[2][1:-1]) == IntakeFacts(hold=b"spam or not", copy=b"x" * 400)


@given(st.lists(st.integers(0, 60)))
def test_facts_may_come_among_pieces(cuts: list[int]) -> None:
    stream = pack_facts(pieces=True, copy=b"x") + pack_piece(b"text") + pack_facts(hold=b"spam") + pack_piece(b"more")
    stream += PIECES_END + pack_envelope(b"a", [b"b"])
    events = read(stream, [min(cut, len(stream)) for cut in cuts])
    assert [event for event in events if isinstance(event, PackageFacts)] == [
        PackageFacts(None, b"", b"x"), PackageFacts(None, b"spam")
    ]
    assert b"".join(event.data for event in events if isinstance(event, Data)) == b"textmore"
    assert events[-1] == package(b"a", b"b")


@pytest.mark.parametrize("late", [pack_facts(pieces=True), pack_facts(1), NUMBERS])
def test_what_must_be_known_before_a_message_is_refused_within_it(late: bytes) -> None:
    with pytest.raises(FormatError):
        read(pack_facts(pieces=True) + late, [])


@given(st.lists(st.tuples(st.sampled_from([b"K", b"Z", b"D"]), st.binary(max_size=40))), st.lists(st.integers(0, 99)))
def test_answers_are_read_however_they_are_cut(answers: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    stream = b"".join(pack_answer(*answer) for answer in answers)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    reader = AnswerReader()
    found = [answer for begin, end in pairwise(places) for answer in reader.feed(stream[begin:end])]
    assert [answer.letter for answer in found] == [letter for letter, _ in answers]
    assert all(len(answer.text) == len(text) for answer, (_, text) in zip(found, answers, strict=True))


@pytest.mark.parametrize("stream", [b"0:,", b"3:abc,", b"x", b"99999:K"])
def test_what_is_no_answer_is_an_error(stream: bytes) -> None:
    with pytest.raises(FormatError):
        AnswerReader().feed(stream)


def test_control_characters_of_an_answer_become_spaces() -> None:
    assert pack_answer(b"Z", b"a\nb\0c") == netstring(b"Za b c")
    assert len(pack_answer(b"Z", b"x" * 5000)) < 1010
