"""The pipes between queue-todo and its workers: what is sent comes back, and what is passed on stays whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_todo.worker_records import (
    ClassOrder,
    Named,
    Parked,
    SharedAlert,
    Taken,
    WorkerReader,
    pack_named,
    pack_order,
    pack_parked,
    pack_rules,
    pack_shared_alert,
    pack_taken,
    share_of,
    unpack_instruction,
)
from queue_wire.control.rewrite import Rules
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader, pack_netstring
from queue_wire.pipes.notice import (
    ANNOUNCE,
    EXIT,
    Arrived,
    Ask,
    Classified,
    ClassifyRequest,
    Gone,
    NoticeReader,
    Resubmission,
    pack_arrived,
    pack_ask,
    pack_classified,
    pack_gone,
    pack_log,
    pack_request,
    pack_resubmission,
)
from support.plugins import strategies

CLASS_NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,10}", fullmatch=True)
WORDS = st.binary(min_size=1, max_size=8).filter(lambda word: not set(word) & set(b"\0\n:"))
RULES = st.builds(
    Rules,
    envnoathost=st.binary(max_size=8).filter(lambda word: not set(word) & set(b"\0\n")),
    locals=st.frozensets(WORDS, max_size=4),
    percenthack=st.frozensets(WORDS, max_size=4),
    virtualdomains=st.dictionaries(st.just(b"") | WORDS, st.just(b"") | WORDS | st.just(b"a:b"), max_size=4),
)
NOTICE = Arrived(7, 1_600_000_000_000_000, 300, b"a@example.org", [(b"R", b"b@example.net")], True, 40, 9, 2, 1)


def read_back(stream: bytes) -> list[object]:
    reader = NetstringReader()
    reader.feed(stream)
    found: list[object] = []
    while (record := reader.next()) is not None:
        found.append(unpack_instruction(record))
    return found


@given(CLASS_NAMES | st.just(""), st.booleans(), st.lists(strategies.ids, min_size=1, max_size=9))
def test_ids_come_back_in_their_order(priority: str, scanned: bool, messages: list[int]) -> None:
    assert read_back(pack_named(priority, scanned, messages)) == [Named(priority, scanned, messages)]


@given(RULES)
def test_rules_come_back(rules: Rules) -> None:
    assert read_back(pack_rules(rules)) == [rules]


@given(st.lists(CLASS_NAMES, max_size=8))
def test_the_order_of_the_classes_comes_back(names: list[str]) -> None:
    assert read_back(pack_order(names)) == [ClassOrder(tuple(names))]


def test_commands_of_queue_send_come_back_as_they_are() -> None:
    records = [ANNOUNCE, pack_request(ClassifyRequest(7, 0b101)), pack_gone(8), pack_resubmission(0), EXIT]
    stream = b"".join(map(pack_netstring, records))
    assert read_back(stream) == [ANNOUNCE, ClassifyRequest(7, 0b101), Gone(8), Resubmission(0), EXIT]


@pytest.mark.parametrize("record", [b"", b"N1 2", b"N\x000", b"N 2\0001", b"N 1\0x", b"Ua\0b", b"I7", b"AL", b"G\0"])
def test_an_instruction_that_is_garbage_is_refused(record: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_instruction(record)


@given(strategies.ids, st.integers(1, 40), st.integers(1, 16))
def test_a_bucket_belongs_to_one_worker(message: int, split: int, count: int) -> None:
    assert 0 <= share_of(message, split, count) < count
    assert share_of(message, split, count) == share_of(message + split, split, count)


def test_with_more_buckets_than_workers_each_worker_has_some() -> None:
    for count in range(1, 17):
        assert {share_of(message, 23, count) for message in range(23)} == set(range(count))


def test_what_is_for_queue_send_is_passed_on_whole_and_the_rest_is_taken_out() -> None:
    lines = pack_log(b"new msg 7") + pack_log(b"info msg 7: W P T1 2 Q3")
    full, short = pack_arrived(NOTICE), pack_classified(Classified(8, True, False))
    stream = lines + pack_ask(Ask.WRITTEN) + full + pack_taken(Taken(-3, 12)) + pack_parked(9) + short
    stream += pack_ask(Ask.PASSED)
    for pieces in strategies.arrivals(stream):
        reader = WorkerReader()
        found = [each for piece in pieces for each in reader.feed(piece)]
        passed = b"".join(each for each in found if isinstance(each, bytes))
        assert passed == lines + full + short
        ours = [each for each in found if not isinstance(each, bytes)]
        assert ours == [Ask.WRITTEN, Taken(-3, 12), Parked(9), Ask.PASSED]
        # The lines come before the question about them.
        before = b"".join(each for each in found[: found.index(Ask.WRITTEN)] if isinstance(each, bytes))
        assert before == lines
        for each in found:
            if isinstance(each, bytes):
                assert len(NoticeReader().feed(each[:-1])) == len(NoticeReader().feed(each)) - 1, "half a record"
        assert reader.worked


def test_lines_alone_are_no_work() -> None:
    reader = WorkerReader()
    assert reader.feed(pack_log(b"Dear log") + pack_taken(Taken(1, 0))) and not reader.worked


PIECES = [b"Lx\0", b"W\0", b"3:Cab,", b"DR7\0", b"T1 2\0", b"12", b"\0", b":", b"Q", b"K5\0", b"Ex\0"]


@given(st.lists(st.sampled_from(PIECES)))
def test_whatever_bytes_come_the_records_that_are_not_taken_out_are_passed_on(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    try:
        found = WorkerReader().feed(data)
    except FormatError:
        return
    passed = b"".join(each for each in found if isinstance(each, bytes))
    records = [record for record in NoticeReader().feed(data) if record[:1] not in (b"W", b"P", b"T", b"Q", b"E")]
    assert NoticeReader().feed(passed) == records


@pytest.mark.parametrize(
    "data", [b"L" + b"x" * 20_000, b"9999999999", b"99999:", b"3:Abcd", b"T1\0", b"Tx 1\0", b"Q\0", b"Qx\0", b"WW\0"]
)
def test_what_no_worker_says_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        WorkerReader().feed(data)


@given(st.text().filter(lambda text: "\0" not in text))
def test_an_alert_about_a_file_that_all_read_comes_back(text: str) -> None:
    [found] = WorkerReader().feed(pack_shared_alert(SharedAlert(text)))
    assert found == SharedAlert(text)
