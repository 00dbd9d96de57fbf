"""All codecs of records: what is packed comes back; a record that is cut or damaged is never read as the one it was."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_wire.admin.cause import KINDS, Cause, pack_cause, unpack_cause
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
from queue_wire.admin.returning import RecipientSelector
from queue_wire.admin.socket import (
    COMMANDS,
    DESTINATIONS,
    HOLD,
    IDS_MAX,
    QUERIES,
    SOME,
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
from queue_wire.files.envelope import ADDRESS_MAX, Envelope, pack_info, pack_todo, unpack_todo, unpack_whole_info
from queue_wire.format_error import FormatError
from queue_wire.ids import ID_MAX, pack_long_id, unpack_id, unpack_long_id
from queue_wire.pipes.cleaning import ANY, BOTH, LOCAL, REMOTE, TODO, Removal, pack_clean, unpack_clean
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.job import Job, pack_job, unpack_job
from queue_wire.pipes.notice import (
    Arrived,
    Classified,
    NoticeReader,
    pack_arrived,
    pack_classified,
    unpack_notice,
)
from queue_wire.pipes.recipient_question import (
    RecipientQuestion,
    RecipientVerdict,
    pack_question,
    pack_verdict,
    unpack_question,
    unpack_verdict,
)
from queue_wire.pipes.report import (
    PartialReport,
    Report,
    SettingsReport,
    SlowJob,
    pack_partial_report,
    pack_report,
    pack_settings,
    pack_slow_job,
    unpack_report,
)
from support.plugins.strategies import (
    addresses,
    classes,
    garbage,
    ids,
    numbers,
    recipients,
    small_numbers,
    some_recipients,
    texts,
)
from support.processes.refusals import value_or_refusal


class Codec(NamedTuple):
    """How a record is packed, without its frame, and unpacked; records of it; and bytes that are none."""

    pack: Callable[[Any], bytes]
    unpack: Callable[[bytes], Any]
    values: st.SearchStrategy[Any]
    refused: list[bytes]


def framed(pack: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return a function that packs a record, and takes it out of its netstring again."""

    def payload(value: Any) -> bytes:
        reader = NetstringReader()
        reader.feed(pack(value))
        found = reader.next()
        assert found is not None and reader.next() is None
        return found

    return payload


def notice(pack: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return a function that packs a notice, and takes it out of the stream again."""

    def record(value: Any) -> bytes:
        (found,) = NoticeReader().feed(pack(value))
        return found

    return record


submitters = st.sampled_from([(None, b""), (0, b""), (1000, b"0123456789abcdef")])
letters = st.sampled_from([b"K", b"Z", b"D"])
nexthops = st.binary(max_size=40).map(lambda data: data.replace(b"\0", b" ").replace(b"\n", b" "))
channels = st.sampled_from([b"local", b"remote"])
words = st.sampled_from([b"", b"destinationlimits:3", b"relay.example:25,other+third"])
paths = st.builds(lambda message: b"mess/%d/%d" % (message % 23, message), ids) | st.sampled_from(
    [b"ondemand/example.net/mess/17.457-gk2x", b"ondemand/_x-1.a/mess/1.2-0", b"probe", b"release"]
)
questions = st.sampled_from([
    Request(HOLD, b"why", [b"1-1"] * IDS_MAX),
    Request(WHY, b"", [b"457-1f"]),
    Request(WHY, b"", [b"457-1f", b"Rexample.net", b"Lbox@example.org"]),
    Request(DESTINATIONS, b"", [b"remote", b""]),
    Request(DESTINATIONS, b"", [b"local", b"1000", b"box@example.org"]),
    Request(TOTALS, b"", []),
])  # fmt: skip
requests = st.one_of(
    questions,
    st.builds(
        lambda command, reason, names: Request(command, reason if command == HOLD else b"", names),
        st.sampled_from(sorted(COMMANDS - QUERIES - SOME)), texts, st.lists(texts, max_size=5),
    ),
    st.builds(
        lambda command, names, *chosen: Request(command, b"", names, RecipientSelector(*chosen)),
        st.sampled_from(sorted(SOME)), st.lists(texts, max_size=5), texts.filter(bool), texts,
    ),
)  # fmt: skip
responses = st.one_of(
    st.builds(
        lambda count, notes: Response(count, notes),
        numbers, st.lists(st.builds(Note, st.sampled_from([b"-", b"!", b"="]), texts), max_size=5),
    ),
    texts.filter(bool).map(lambda text: Response(0, [], text)),
)  # fmt: skip
reports = st.builds(
    lambda number, verdicts, place: Report(number, b"h" if place else b"m", verdicts, place),
    numbers, st.lists(st.tuples(letters, texts), min_size=1), st.sampled_from([b"", b"relay.example:2525"]),
)  # fmt: skip
removals = st.one_of(
    st.builds(lambda *words: Removal(*words), ids, st.sampled_from([ANY, LOCAL, REMOTE, BOTH])),
    st.builds(lambda *words: Removal(*words), ids, st.just(TODO), st.none() | st.integers(0, 16383), numbers, classes),
)
LONGEST = b"x" * ADDRESS_MAX
PARTS = (b"slow\x009\0", b"partial\x009\0K\0", b"ready\0", b"9\0m\0", b"9\0mess/20/457\0s\0", b"C1\x001\0", b"u1\0p2\0")
CODECS = {
    "id": Codec(lambda message: b"%d" % message, unpack_id, ids, [
        b"", b"0", b"007", b"-1", b"+1", b" 1", b"1 ", b"1\n", b"1x", b"\xb2", b"%d" % (ID_MAX + 1), b"1" * 20,
    ]),
    "long id": Codec(
        lambda one: pack_long_id(*one).encode(), lambda data: unpack_long_id(data.decode("latin-1")),
        st.tuples(ids, st.integers(0, 2**63)),
        [b"", b"-", b"457-", b"-z", b"457-Z", b"457-1-2", b"457-\xe9", b"457\n", b"457-" + b"z" * 14, b"x-1"],
    ),
    "todo": Codec(
        pack_todo, unpack_todo,
        st.builds(Envelope, small_numbers, small_numbers, addresses, recipients, submitters.map(lambda one: one[1])),
        [
            b"", b"\0", b"u1\0p2\0", b"u1\0p2\0Ta@b\0", b"u1\0p2\0Fa\0Fb\0Tc\0", b"u1\0p2\0Fa\0Xb\0",
            b"u1\0p2\0Fa\0Tb\0\0", b"u-1\0p2\0Fa\0", b"ux\0p2\0Fa\0", b"u\0p2\0Fa\0", b"u" + b"1" * 21 + b"\0p2\0Fa\0",
            b"u1\0p2\0F" + LONGEST + b"x\0", b"u1\0p2\0Fa\0T" + LONGEST + b"x\0", b"u1\0p2\0Fa\0Tb\0T",
            *(b"u1%s\0p2\0Fa\0" % tail for tail in (b" ", b" x", b" 0123456789abcdef0", b" 0123456789ABCDEF")),
        ],
    ),
    "info": Codec(
        lambda one: pack_info(*one), unpack_whole_info,
        st.tuples(addresses, classes, st.integers(0, 10**20 - 1), st.sampled_from([b"", b"0123456789abcdef"])),
        [
            b"", b"\0", b"F", b"Fa", b"Ta\0", b"Fa\0b", b"Fa\0\0", b"F" + LONGEST + b"x\0",
            *(b"Fa@b\0" + rest for rest in (b"u1", b"u\0", b"u1 x\0", b"u1 \0", b"u1\0u2\0", b"u1\0\0")),
            b"Fa@b\0u1 0123456789abcdeF\0", b"Fa@b\0Pbulk\0Pbulk\0",
        ],
    ),
    "notice": Codec(
        notice(pack_classified), unpack_notice,
        st.builds(
            lambda one, local, remote, priority, submitted: Classified(one, local, remote, priority, *submitted),
            ids, st.booleans(), st.booleans(), classes, submitters,
        ),
        [b"", b"D", b"DL", b"DLx", b"DL0", b"D457", b"DLR457", b"DQ1", b"X1", b"Lone\ntwo", b"L" + b"x" * 1001],
    ),
    "full notice": Codec(
        notice(pack_arrived), unpack_notice,
        st.builds(
            lambda one, birth, size, sender, channels, who: Arrived(
                one, birth, size, sender, channels, pid=8123, uid=1000, submitter=who
            ),
            ids, st.integers(0, 10**17), small_numbers, addresses,
            st.lists(st.tuples(st.sampled_from([b"L", b"R"]), addresses), max_size=8),
            st.sampled_from([b"", b"0123456789abcdef"]),
        ),
        [b"C", b"C457", b"C457\x001\x002", b"C457\0x\x002\0a", b"C0\x001\x002\0a", b"C7\x001\x002\0a\0Xb"],
    ),
    "job": Codec(
        framed(pack_job), unpack_job, st.builds(Job, numbers, paths, addresses, texts, some_recipients),
        [
            b"", b"9", b"9\0mess/20/457\0s\0h",
            *(number + b"\0mess/20/457\0s\0h\0r" for number in (b"x", b"-1", b"", b"1" * 19)),
            *(b"9\0%s\0s\0h\0r" % path for path in (
                b"mess/20/../../../etc/passwd", b"/mess/20/457", b"info/20/457", b"mess/20", b"mess/20/457/",
                b"mess//457", b"mess/20/-457", b"ondemand/../mess/1.2-x", b"ondemand/a/b/mess/1.2-x",
                b"ondemand/example.net/mess/..", b"ondemand/example.net/1.cluster", b"probes",
            )),
        ],
    ),
    "report": Codec(framed(pack_report), unpack_report, reports, [
        b"", b"9", b"9\0m", b"9\0x\0K", b"9\0\0K", b"x\0m\0K", b"\0m\0K", b"1" * 19 + b"\0m\0K",
        b"ready", b"ready\0", b"ready\0x", b"ready\0-1",
    ]),
    "report of a slow job": Codec(
        framed(pack_slow_job), unpack_report,
        st.builds(SlowJob, numbers, st.sampled_from([b"192.0.2.1", b"2001:db8::1"])),
        [b"slow\0" + rest for rest in (b"9", b"9\0", b"x\x00192.0.2.1", b"9\0a b", b"9\0" + b"a" * 109)],
    ),
    "partial report": Codec(
        framed(pack_partial_report), unpack_report,
        st.builds(
            lambda number, text, rest: PartialReport(number, [(b"", b""), (b"K", text), *rest]),
            numbers, texts, st.lists(st.just((b"", b"")) | st.tuples(st.just(b"K"), texts), max_size=3),
        ),
        [b"partial\0" + rest for rest in (b"", b"9", b"x\0K", b"9\0Z", b"9\0K\0D", b"1" * 19 + b"\0K")],
    ),
    "settings": Codec(framed(pack_settings), unpack_report, st.builds(SettingsReport, texts), []),
    "removal": Codec(lambda removal: pack_clean(*removal).removesuffix(b"\0"), unpack_clean, removals, [
        b"", b"R", b"Q457", b"457R", b"0", b"T457", b"T457/1", b"T457/1/", b"T457/-1/17", b"T457/1/17/", b"T/1/2",
        b"T457/123456789/1", b"T457/1/" + b"1" * 19,
    ]),
    "recipient question": Codec(
        framed(pack_question), unpack_question,
        st.builds(
            lambda number, address, servers, relayed: RecipientQuestion(
                number, address, servers, relayed and bool(servers)
            ),
            numbers, texts, texts, st.booleans(),
        ),
        [b"", b"7", b"x\0joe@host", b"\0joe@host", b"7\0a\0b\0c", b"7\0a\0b\0R\0R", b"-1\0a", b"1" * 19 + b"\0a"],
    ),
    "recipient verdict": Codec(
        framed(pack_verdict), unpack_verdict, st.builds(RecipientVerdict, numbers, letters, st.binary(max_size=100)),
        [b"", b"7", b"7\0", b"7\0Xno", b"x\0K", b"\0K"],
    ),
    "request": Codec(framed(pack_request), unpack_request, requests, [
        b"", b"stop", b"HOLD\0x", b"hold", b"flush\0" + b"\0".join([b"1-1"] * 101),
        b"bounce-some", b"bounce-some\0a@b", b"bounce-some\0\0\0001-1",
        b"why", b"why\x001-1\0example.net", b"why\x001-1\0", b"destinations", b"destinations\0remote",
        b"destinations\0mars\0", b"destinations\0remote\0x", b"destinations\0remote\0" + b"1" * 19,
    ]),
    "response": Codec(framed(pack_response), unpack_response, responses, [
        b"", b"ok", b"ok\0x", b"ok\0" + b"1" * 19, b"ok\0001\0?x", b"ok\0001\0", b"error",
    ]),
    "cause": Codec(
        pack_cause, unpack_cause,
        st.builds(
            Cause, st.sampled_from(sorted(KINDS)), channels | st.just(b""), numbers, numbers, numbers, numbers, nexthops
        ),
        [
            b"", b"due", b"due remote", b"due remote 1 2 3 x y", b"due mars 1 2 3 4 y", b"sad remote 1 2 3 4 y",
            b"due remote 1 2 3 -4 y", b"due remote 1 2 3 " + b"4" * 19 + b" y",
        ],
    ),
    "destination": Codec(
        pack_destination, unpack_destination,
        st.builds(
            lambda state, counts, *rest: DestinationFact._make([state, *counts, *rest]),
            st.sampled_from([ALIVE, DEAD, PROBED, RELAY]), st.lists(numbers, min_size=10, max_size=10),
            words, words, nexthops, nexthops,
        ),
        [b"", b"alive", b"well 1 2 3 4 5 6 7 8 9 10 x", b"dead 1 2 3 4 5 6 7 8 9 x x"],
    ),
    "channel": Codec(
        pack_channel, unpack_channel,
        st.builds(
            lambda counts, name: ChannelFact._make([*counts, name]),
            st.lists(numbers, min_size=5, max_size=5), channels,
        ),
        [b"", b"1 2 3 4 5 mars", b"1 2 3 4 remote", b"1 2 3 4 x remote"],
    ),
}  # fmt: skip
every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())


@every_codec
@given(st.data())
def test_a_record_comes_back_as_it_was_packed(codec: Codec, data: st.DataObject) -> None:
    value = data.draw(codec.values)
    assert codec.unpack(codec.pack(value)) == value


@every_codec
@given(st.data())
def test_a_record_that_was_cut_or_has_a_separator_changed_is_never_read_as_what_it_was(
    codec: Codec, data: st.DataObject
) -> None:
    value = data.draw(codec.values)
    packed = codec.pack(value)
    cut = packed[: data.draw(st.integers(0, len(packed) - 1))]
    places = [at for at, byte in enumerate(packed) if byte in b"\0 /-:"]
    changed = bytearray(packed)
    if places:
        changed[data.draw(st.sampled_from(places))] = ord("x")
    for damaged in {cut, bytes(changed)} - {packed}:
        assert value_or_refusal(codec.unpack, damaged) != value


@every_codec
@given(garbage)
def test_garbage_is_a_format_error_or_a_value_and_nothing_else(codec: Codec, data: bytes) -> None:
    for part in (b"", *PARTS):
        value_or_refusal(codec.unpack, part + data)


@pytest.mark.parametrize(
    ("name", "data"), [(name, data) for name, codec in CODECS.items() for data in codec.refused], ids=repr
)
def test_what_is_none_of_its_records_is_refused(name: str, data: bytes) -> None:
    with pytest.raises(FormatError):
        CODECS[name].unpack(data)
