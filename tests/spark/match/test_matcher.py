"""What the matcher makes of single lines and of the places between them: gaps, bytes, NULs, line numbers, counts."""

import re
import tracemalloc

import numpy as np
import pytest

from queue_report.match import Matcher, State
from queue_report.match.block import Lines, split_lines
from queue_report.match.hashes import hash_addresses, murmur3
from queue_report.match.text import escape
from queue_report.schema.columns import PARTITIONED
from support.spark.logs.log_files import stamp
from support.spark.matched import HOST, QUEUE, Stream, carry_state, match_cut

BEGIN = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
HOUR = 3600 * SECOND


def line(at: int, text: str | bytes) -> bytes:
    """Return a line without its newline; at: seconds after BEGIN."""
    return f"{stamp(BEGIN + at * SECOND)} ".encode() + (text if isinstance(text, bytes) else text.encode())


def unescape(text: str) -> bytes:
    """Return the bytes that `escape` made a text of."""
    return re.sub(rb"%([0-9A-F]{2})", lambda found: bytes.fromhex(found[1].decode()), text.encode())


def new_matcher(state: State | None = None) -> Matcher:
    """Return a matcher of a stream of which nothing was read before."""
    nothing = np.empty(0, np.int64), np.empty(0, np.int32)
    return Matcher(state or State(HOST, QUEUE), lambda earliest, latest: nothing)


def feed(data: bytes, first: int | None = 1) -> tuple[dict[str, list[dict[str, object]]], Matcher]:
    """Match a log that begins with the data."""
    matcher = new_matcher()
    rows = matcher.feed(split_lines(data, "alpha/main/current", first))
    return {name: rows[name].to_pylist() if name in rows else [] for name in PARTITIONED}, matcher


def levels_of(*lines: tuple[int, str]) -> list[tuple[object, ...]]:
    """Return the intervals: seconds from and until, and how many remote deliveries are in flight."""
    rows, _ = feed(b"".join(line(at, text) + b"\n" for at, text in lines))
    return [
        ((row["at_ns"] - BEGIN) // SECOND, (row["until_ns"] - BEGIN) // SECOND, row["remote_now"])  # type: ignore[operator]
        for row in sorted(rows["intervals"], key=str)
    ]


def test_nothing_is_known_of_the_time_between_the_last_line_before_a_crash_and_the_next_run() -> None:
    assert levels_of(
        (0, "status: local 0/10 remote 0/20"),
        (1, "starting delivery 1: msg 5 to remote a@b"),
        (1, "status: local 0/10 remote 1/20"),
        (60, "warning: something"),
        (7000, "queue-start: alert: cannot start: x"),  # Nobody's word on what is in flight.
        (28_800, "status: local 0/10 remote 0/20"),
        (28_900, "status: exiting"),
    ) == [(0, 1, 0), (1, 60, 1), (28_800, 28_900, 0)]


def test_a_crash_before_the_first_status_of_a_delivery_is_a_gap_too() -> None:
    assert levels_of(
        (0, "status: local 0/10 remote 0/20"),
        (5, "starting delivery 1: msg 5 to remote a@b"),
        (28_800, "status: local 0/10 remote 0/20"),
        (28_900, "status: exiting"),
    ) == [(0, 5, 0), (28_800, 28_900, 0)]


def test_a_run_without_a_crash_has_no_gap() -> None:
    assert levels_of(
        (0, "status: local 0/10 remote 0/20"),
        (1, "starting delivery 1: msg 5 to remote a@b"),
        (1, "status: local 0/10 remote 1/20"),
        (60, "delivery 1: success: ok"),
        (70, "status: local 0/10 remote 0/20"),
        (90, "status: exiting"),
    ) == [(0, 1, 0), (1, 70, 1), (70, 90, 0)]


def test_a_crash_and_the_end_of_a_run_that_had_lost_a_daemon_are_counted_as_such() -> None:
    idle, busy = "status: local 0/10 remote 0/20", "status: local 0/10 remote 1/20"
    start, lost = "starting delivery 1: msg 5 to remote a@b", "alert: oh no! lost queue-remote connection! dying..."
    stream = Stream()
    for texts in (
        [idle, start, busy],
        [idle, start],
        [lost, busy],
        ["delivery 1: deferral: x", idle, "status: exiting"],
    ):
        stream.match([(line(stream.counts.total(), text), False) for text in texts])
    stream.match([(line(900, idle), False), (line(901, "status: exiting"), False)])
    assert stream.counts["crash"] == 1 and stream.counts["died"] == 1 and stream.counts["exiting"] == 1
    assert (stream.counts["status"], stream.counts.total()) == (5, 12)


def test_reasons_that_differ_in_a_byte_that_is_no_utf_8_stay_apart() -> None:
    reasons = [b"caf\xe9", b"caf\xe8", b"caf\xc3\xa9", b"caf%E9", b"caf%e9", b"50%"]
    log = b""
    for number, reason in enumerate(reasons):
        log += line(number, f"starting delivery {number}: msg 5 to remote a@b") + b"\n"
        log += line(number, f"delivery {number}: failure: ".encode() + reason) + b"\n"
    rows, _ = feed(log)
    found = [row["reason"] for row in rows["deliveries"]]
    assert found == ["caf%E9", "caf%E8", "café", "caf%25E9", "caf%e9", "50%"]
    assert [unescape(str(reason)) for reason in found] == reasons


@pytest.mark.parametrize(
    "data", [b"", b"a%", b"%41", b"\xff%41\xfe", b"%\xff", b"%2\xff", b"%25", b"\xed\xa0\x80", bytes(range(256))]
)
def test_what_is_escaped_can_be_turned_back(data: bytes) -> None:
    assert unescape(escape(data).decode()) == data


def test_nuls_before_a_line_lose_nothing_of_it() -> None:
    cut = line(1, "info msg 5: byt")
    rows, matcher = feed(
        line(0, "new msg 5") + b"\n" + cut + b"\0" * 4000 + line(2, "end msg 5") + b"\n" + line(3, "new msg 6") + b"\n"
    )
    assert [(row["line"], row["reason"]) for row in rows["quarantine"]] == [(2, "not a line of the log")]
    assert [row["id"] for row in rows["messages"]] == [5]
    assert +matcher.counts == {"new": 2, "end": 1, "quarantine": 1}


def test_several_runs_of_nuls_in_a_line_are_parts_of_it() -> None:
    rows, _ = feed(b"\0\0" + line(0, "new msg 5") + b"\0" + line(1, "end msg 5") + b"\n\0\0\n" + line(1, "x") + b"\n")
    found = [(row["line"], row["time_ns"], row["reason"]) for row in rows["quarantine"]]
    assert found == [
        (1, None, "not stamped"),
        (2, None, "not stamped"),
        (1, BEGIN, "not a line of the log"),
        (3, BEGIN + SECOND, "not a line of the log"),
    ]


def test_a_line_that_could_not_be_read_is_named_by_its_number_and_what_is_wrong() -> None:
    log = [line(0, "new msg 5"), b"no stamp", b"@ffffffffffffffff00000000 new msg 1", line(1, "session 5: begins"), b""]
    rows, matcher = feed(b"\n".join(log), 100)
    assert [(row["file"], row["line"], row["reason"], row["text"]) for row in rows["quarantine"]] == [
        ("alpha/main/current", 101, "not stamped", "no stamp"),
        ("alpha/main/current", 102, "stamp out of range", "@ffffffffffffffff00000000 new msg 1"),
        ("alpha/main/current", 103, "not a line of the log", log[3].decode()),
    ]
    assert +matcher.counts == {"new": 1, "quarantine": 3}


def test_alerts_and_warnings_are_kept_with_what_they_say() -> None:
    said = [
        b"alert: unable to open mess/3/45712: no space", b"warning: \xff", b"queue-remote: alert: " + b"x" * 2000,
        b"queue-remote: warning: unable to verify mx.far.example", b"cron: fatal: gone", b"alert: ", b"note: none",
    ]  # fmt: skip
    rows, matcher = feed(b"".join(line(at, "") + text + b"\n" for at, text in enumerate(said)))
    assert [(row["time_ns"], row["kind"], row["text"], row["template"]) for row in rows["alerts"]] == [
        (BEGIN, "alert", "unable to open mess/3/45712: no space", "unable_to_open_mess/N/N:_no_space"),
        (BEGIN + SECOND, "warning", "%FF", "%FF"),
        (BEGIN + 2 * SECOND, "alert", f"queue-remote: {'x' * 986}", f"queue-remote:_{'x' * 986}"),
        (BEGIN + 3 * SECOND, "warning", "queue-remote: unable to verify mx.far.example",
         "queue-remote:_unable_to_verify_HOST"),
        (BEGIN + 4 * SECOND, "alert", "cron: gone", "cron:_gone"),
        (BEGIN + 5 * SECOND, "alert", "", ""),
    ]  # fmt: skip
    assert +matcher.counts == {"alert": 4, "warning": 2, "quarantine": 1}


def test_alerts_of_two_blocks_are_a_row_each() -> None:
    matcher = new_matcher()
    blocks = [line(at, f"warning: {at}") + b"\n" for at in range(2)]
    rows = [matcher.feed(split_lines(block, "alpha/main/current")) for block in blocks]
    found = [part["alerts"] for part in rows]
    assert [row["text"] for part in found if part is not None for row in part.to_pylist()] == ["0", "1"]


def test_unknown_first_words_are_counted_but_not_without_end() -> None:
    words = [f"{chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(300)]
    stream = Stream()
    stream.match([(line(at, f"{word} 1"), False) for at, word in enumerate(words)])
    unknown = stream.unknown
    assert (len(unknown), unknown["(others)"], unknown.total()) == (101, 200, 300)


def test_a_line_that_was_cut_short_is_quarantined_whatever_it_says() -> None:
    data = line(0, "new msg 5")
    state = State(HOST, QUEUE)
    ends = np.array([len(data)])
    rows = new_matcher(state).feed(Lines(data, ends * 0, ends, "f", None, torn=True))
    assert rows["quarantine"].to_pylist()[0] | {"date": None} == {
        "host": HOST, "queue": QUEUE, "file": "f", "line": None, "time_ns": BEGIN, "reason": "cut short",
        "text": data.decode(), "date": None,
    }  # fmt: skip
    assert "lines" not in rows and not state.messages


def test_no_lines_make_no_rows() -> None:
    matcher = new_matcher()
    assert not any(matcher.feed(split_lines(b"", "f")).values())
    assert not +matcher.counts


def test_what_follows_the_last_newline_is_a_line() -> None:
    lines = split_lines(b"a\n\nbc", "f")
    assert (lines.starts.tolist(), lines.ends.tolist()) == ([0, 2, 3], [1, 2, 5])
    assert split_lines(b"a\n", "f").ends.tolist() == [1]


def test_a_message_that_is_announced_again_in_the_next_build_is_the_same() -> None:
    stream = Stream()
    info = "info msg 5: bytes 7 from <a@b> qp 1 uid 2"
    stream.match([(line(0, "new msg 5"), False), (line(0, info), False)])
    # It crashed before the message was out of todo/, so it is the same message.
    stream.match([(line(1, "new msg 5"), False), (line(1, info), False), (line(2, "end msg 5"), False)])
    assert [(row["key"], row["outcome"]) for row in stream.rows("messages")] == [(f"5.{BEGIN}", "delivered")]


def test_an_open_message_takes_some_hundred_bytes() -> None:
    log = []
    for number in range(10_000):
        log.append(line(number, f"new msg {number + 10**9}"))
        log.append(line(number, f"info msg {number + 10**9}: bytes 70 from <s{number}@a.example> qp {number} uid 900"))
        log.append(line(number, f"starting delivery {number}: msg {number + 10**9} to remote r{number}@b.example"))
        log.append(line(number, f"delivery {number}: deferral: no_answer/"))
    data = b"\n".join([*log, b""])
    feed(data)  # pyarrow imports pandas at its first array, which is not the message's.
    tracemalloc.start()
    matcher = feed(data)[1]
    del data, log
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # A million of them take 1 GB at most.
    assert matcher.counts["new"] == 10_000 and size < 10_000 * 1000


# Spark's own: hash(text), and xxhash64('remote', text).
@pytest.mark.parametrize(
    ("text", "print_", "hashed"),
    [
        ("", 142593372, 8073343532158504530),
        ("abcdefg", 2132013596, 1192057447135546099),
        ("someone@host.example.com", -45201603, -3609023192381924463),
        ("y" * 45, 1427868570, 8277131219950877229),
        ("z" * 64, -1206048871, 6879966759156741655),
        ("z" * 100, 414382442, 1061037984093867851),
    ],
)
def test_hashes_are_those_of_lakes_that_spark_made(text: str, print_: int, hashed: int) -> None:
    assert (murmur3(text.encode()), hash_addresses([b"remote " + text.encode()])) == (print_, [hashed])


def test_recipients_that_an_earlier_build_knows_are_not_counted_again() -> None:
    stream = Stream(carry=carry_state)
    for at, recipients in enumerate((["a@b"], ["a@b", "c@d"], ["c@d", "e@f", "a@b"])):
        texts = [f"starting delivery {at * 5 + n}: msg 5 to remote {one}" for n, one in enumerate(recipients)]
        stream.match([(line(at, text), False) for text in texts])
    assert [row.recipients for row in stream.truth().waiting] == [3]


@pytest.mark.parametrize("channel", ["local", "remote"])
def test_many_addresses_have_the_hashes_that_each_has(channel: str) -> None:
    addresses = [f"{channel} {'ä' * (size % 3)}{'x@y' * size}"[: size + 8].encode() for size in range(100)]
    addresses += [f"{channel} ".encode() + bytes(range(size, 2 * size)) for size in range(60)]
    assert hash_addresses(addresses) == [hash_addresses([address])[0] for address in addresses]


def test_unknown_words_are_kept_from_build_to_build() -> None:
    stream = Stream(carry=carry_state)
    for at in range(3):
        stream.match([(line(at, "session 5: begins"), False), (line(at, f"w{at}: x"), False)])
    assert stream.state.mark()["unknown"] == {"session": 3, "w0:": 1, "w1:": 1, "w2:": 1}


def test_the_mark_has_no_name_that_the_stream_has_in_the_lake_already() -> None:
    assert State(HOST, QUEUE).mark().keys().isdisjoint(("files", "last", "carried"))


def test_a_line_that_ends_with_cr_lf_is_read_as_one_that_ends_with_lf() -> None:
    texts = ("new msg 5", "info msg 5: bytes 9 from <a@b> qp 1 uid 2", "nonsense", "", "end msg 5")
    lines = [line(at, text) for at, text in enumerate(texts)]
    unix, _ = feed(b"".join(one + b"\n" for one in lines) + b"\n")
    windows, _ = feed(b"".join(one + b"\r\n" for one in lines) + b"\r\n")
    assert windows == unix and len(windows["messages"]) == 1
    assert len(windows["quarantine"]) == 3


@pytest.mark.parametrize("cut", range(9))
def test_lives_of_one_number_that_begin_with_one_stamp_have_keys_of_their_own(cut: int) -> None:
    texts = ["new msg 5", "info msg 5: bytes 9 from <a@x> qp 1 uid 2", "end msg 5"] * 3
    log = [(line(0, f"{text[:-1]}{number}" if text.startswith("info") else text), False)
           for number, text in enumerate(texts)]  # fmt: skip
    stream = match_cut(log, cut, carried=True)
    assert [row["key"] for row in stream.rows("messages")] == [f"5.{BEGIN}", f"5.{BEGIN}.2", f"5.{BEGIN}.3"]
