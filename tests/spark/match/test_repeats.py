"""Lines that are in the log twice count once, and lines that came twice in one tick of the clock count twice."""

from collections.abc import Callable
from typing import TypeAlias
from zlib import crc32

import numpy as np
import pytest

from queue_report.match import Matcher, State
from queue_report.match.hashes import murmur3
from support.spark.logs.log_files import lines_of, stamp
from support.spark.logs.log_reference import read_lines
from support.spark.logs.log_rows import agree
from support.spark.matched import HOST, QUEUE, Line, Stream, blocks_of, carry_state

Log: TypeAlias = list[tuple[int, str]]
SECOND = 10**9
BEGIN = 1_700_000_000 * SECOND
IDLE, BUSY = "status: local 0/10 remote 0/20", "status: local 1/10 remote 1/20"


def life(message: int, delivery: int, result: str) -> list[str]:
    """Return what is said of a message with two recipients, the numbers of whose deliveries begin at `delivery`."""
    texts = [
        f"new msg {message}",
        f"info msg {message}: bytes {70 + message} from <s@a.example> qp {message + 1000} uid 9",
        f"starting delivery {delivery}: msg {message} to remote r@D.example",
        f"starting delivery {delivery + 1}: msg {message} to local l@here.example",
        BUSY,
        f"delivery {delivery + 1}: success: did_1+0+0/",
        f"delivery {delivery}: {result}: said_so/",
        IDLE,
        f"bounce msg {message} qp {message + 2000}",
        f"end msg {message}",
    ]
    # A crash comes when both are in flight.
    cut = {"failure": 10, "crash": 5, "deferral": 8}.get(result)
    return texts[:cut] if cut else [*texts[:8], texts[9]]


def calm_log() -> Log:
    """Return a log with a line a second and nothing odd: results of each kind, a crash, a stop, some left in flight."""
    texts = [IDLE, *life(401, 1, "success"), *life(402, 3, "failure"), *life(403, 5, "crash")]
    texts += [IDLE, *life(404, 1, "success"), *life(405, 3, "deferral"), *life(401, 5, "success"), "status: exiting"]
    texts += [IDLE, *life(406, 1, "failure"), *life(402, 3, "crash")]
    return [(BEGIN + number * SECOND, text) for number, text in enumerate(texts)]


def place(log: Log, text: str) -> int:
    """Return where the first line is that begins so."""
    return next(number for number, line in enumerate(log) if line[1].startswith(text))


def said_twice(text: str, later: int = 0) -> Callable[[Log], Log]:
    """Return what puts a line there once more, `later` lines behind it."""

    def change(log: Log) -> Log:
        at = place(log, text)
        return [*log[: at + 1 + later], log[at], *log[at + 1 + later :]]

    return change


def in_bytes(log: Log) -> list[Line]:
    return [(line[:-1], False) for line in lines_of(log)]


TWICE: dict[str, Callable[[Log], Log]] = {
    "chunk": lambda log: log[:25] + log[8:25] + log[25:],
    "all": lambda log: log + log,
    "all, three times": lambda log: log * 3,
    "new": said_twice("new msg 404"),
    "info, later": said_twice("info msg 404", 3),
    "start": said_twice("starting delivery 2: msg 404"),
    "result": said_twice("delivery 3: failure"),
    "result, of a number that is used again": said_twice("delivery 1: success", 30),
    "bounce": said_twice("bounce msg 402"),
    "end, later": said_twice("end msg 401", 40),
    "first status, with deliveries in flight": said_twice(IDLE, 4),
    "last status, with deliveries in flight": lambda log: [*log, log[place(log, "status: exiting") + 1]],
    "first status, with nothing behind it": lambda log: log[:5] + log[:1] + log[5:],
}


@pytest.mark.parametrize("change", TWICE.values(), ids=TWICE)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_line_that_is_there_twice_counts_once(change: Callable[[Log], Log], size: int) -> None:
    once, lines = calm_log(), in_bytes(change(calm_log()))
    stream = Stream()
    stream.match(lines, size)
    agree(read_lines(in_bytes(once), HOST, QUEUE), stream.truth())
    assert stream.counts["repeated"] == len(lines) - len(once)


def test_a_clock_that_is_set_back_makes_no_line_a_repeat() -> None:
    log = calm_log()
    at = place(log, "info msg 404")
    log = [*log[:at], *((time - 10 * SECOND, text) for time, text in log[at:])]
    stream = Stream()
    stream.match(in_bytes(log))
    agree(read_lines(in_bytes(log), HOST, QUEUE), stream.truth())
    assert stream.counts["repeated"] == 0 and len(stream.rows("lines")) == len(log)


def test_of_three_levels_in_one_tick_the_last_counts() -> None:
    other = "status: local 1/10 remote 0/20"
    log = [(BEGIN, IDLE), (BEGIN + 1, BUSY), (BEGIN + 1, other), (BEGIN + 1, BUSY), (BEGIN + 9, IDLE)]
    stream = Stream()
    stream.match(in_bytes(log))
    levels = [(row["at_ns"] - BEGIN, row["until_ns"] - BEGIN, row["remote_now"]) for row in stream.rows("intervals")]
    assert sorted(levels) == [(0, 1, 0), (1, 1, 0), (1, 1, 1), (1, 9, 1)]


def test_a_copy_of_three_levels_in_one_tick_adds_nothing() -> None:
    other = "status: local 1/10 remote 0/20"
    log = [(BEGIN, IDLE), (BEGIN + 1, BUSY), (BEGIN + 1, other), (BEGIN + 1, BUSY), (BEGIN + 9, IDLE)]
    # The copy has one more of them.
    stream = Stream()
    stream.match(in_bytes([*log, *log[:4], log[2], *log[4:]]))
    assert (stream.counts["repeated"], stream.counts["status"]) == (5, 6)


@pytest.mark.parametrize("cut", range(0, 60, 3))
def test_a_build_that_has_lines_of_an_earlier_one_counts_them_once(cut: int) -> None:
    lines = in_bytes(calm_log())
    stream = Stream(carry=carry_state)
    stream.match(lines[:cut])
    stream.match(lines[max(0, cut - 5) :])
    assert stream.counts["repeated"] == min(cut, 5)
    agree(read_lines(lines, HOST, QUEUE), stream.truth())


def test_a_log_that_is_given_again_to_the_next_build_adds_nothing() -> None:
    lines = in_bytes(calm_log())
    stream = Stream(carry=carry_state)
    for _ in range(3):
        stream.match(lines, 10)
    agree(read_lines(lines, HOST, QUEUE), stream.truth())
    assert stream.counts["repeated"] == 2 * len(lines)


def test_lines_of_a_tick_that_two_builds_share_all_count() -> None:
    log = [(BEGIN + number // 4, f"new msg {number}") for number in range(40)]
    stream = Stream(carry=carry_state)
    for start in range(0, 40, 3):
        stream.match(in_bytes(log[start : start + 3]))
    assert (stream.counts["repeated"], len(stream.truth().waiting)) == (0, 40)


def test_a_line_that_a_lake_made_before_has_read_is_known_by_its_print_there() -> None:
    line = f"{stamp(BEGIN)} new msg 5".encode()
    times, prints = (np.array(values) for values in ([BEGIN], [murmur3(line)]))
    state = State.unpack(HOST, QUEUE, None, {"latest": BEGIN})
    matcher = Matcher(state, lambda earliest, latest: (times, prints))
    for block in blocks_of([(line, False)], 9):
        assert not any(matcher.feed(block).values())
    assert matcher.counts == {"repeated": 1}


def twin_of(first: bytes, second: bytes) -> bytes:
    """Return `second` with some of its letters a replaced by b, so that its CRC is that of `first`."""
    # A CRC is linear: what each letter changes of it adds up by exclusive or.
    places = [place for place, letter in enumerate(second) if letter == ord("a")]
    basis: dict[int, tuple[int, int]] = {}

    def reduce(value: int, chosen: int) -> tuple[int, int]:
        while value and value.bit_length() in basis:
            other, with_other = basis[value.bit_length()]
            value, chosen = value ^ other, chosen ^ with_other
        return value, chosen

    for number, place in enumerate(places):
        changed = second[:place] + b"b" + second[place + 1 :]
        value, chosen = reduce(crc32(changed) ^ crc32(second), 1 << number)
        if value:
            basis[value.bit_length()] = value, chosen
    _, chosen = reduce(crc32(first) ^ crc32(second), 0)
    letters = bytearray(second)
    for number, place in enumerate(places):
        if chosen >> number & 1:
            letters[place] = ord("b")
    return bytes(letters)


@pytest.mark.parametrize("size", [1, 1 << 30])
@pytest.mark.parametrize("builds", [False, True])
def test_a_recipient_that_was_made_so_that_its_line_has_the_crc_of_the_one_before_is_not_lost(
    size: int, builds: bool
) -> None:
    one = b"starting delivery 1: msg 7 to remote one@d.example"
    two = twin_of(one, b"starting delivery 2: msg 7 to remote " + b"a" * 40 + b"@d.example")
    assert crc32(one) == crc32(two) and one != two
    texts = ["new msg 7", one.decode(), two.decode(), two.decode()]
    lines = [(line.rstrip(b"\n"), False) for line in lines_of([(BEGIN, text) for text in texts])]
    stream = Stream(carry=carry_state if builds else None)
    if builds:
        for line in lines:
            stream.match([line], size)
    else:
        stream.match(lines, size)
    # The last line is its equal, not one with an equal CRC.
    assert sorted(stream.state.deliveries) == [1, 2] and stream.counts["repeated"] == 1
