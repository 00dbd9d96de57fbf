"""Any lines, in any builds and blocks, make what the reference reads in them: most of these no queue would log."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st

from queue_report.match import State
from queue_report.match.send_log import DELETED_BEFORE
from support.spark.logs.log_files import GARBAGE, stamp
from support.spark.logs.log_reference import read_lines
from support.spark.logs.log_rows import agree
from support.spark.matched import HOST, QUEUE, Line, Stream, carry_state

BEGIN = 1_700_000_000_000_000_000
LONG = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)

# Few numbers, so that all of them meet.
MESSAGES = st.sampled_from((5, 6, 7))
DELIVERIES = st.sampled_from((1, 2))
QPS = st.sampled_from((8, 9))
SIZES = st.sampled_from((70, 71))
SENDERS = st.sampled_from(("", "#@[]", "a@b"))
ADDRESSES = st.sampled_from(("local a", "remote b@C", "remote "))
RESULTS = st.sampled_from(("success: ", "failure: no_#5.1.1", "deferral: x", "report mangled, will defer"))
WHYS = st.sampled_from((DELETED_BEFORE.decode(), "by the administrator"))
TRIPLES, LEAVING = st.sampled_from(("triple", "double")), st.sampled_from(("", " exitasap"))
IN_FLIGHT = st.sampled_from((0, 0, 1))
OTHERS = (
    "status: exiting",
    "alert: oh no! lost queue-remote connection! dying...",
    "queue-remote: warning: x",
    "session 5: begins",
    "status: local 0/10 remote 0",
    "end msg 99999999999999999999",
    "warning: \udcff%41",
)
EVENTS = st.one_of(
    st.builds("new msg {}".format, MESSAGES),
    st.builds("info msg {}: bytes {} from <{}> qp {} uid 4".format, MESSAGES, SIZES, SENDERS, QPS),
    st.builds("starting delivery {}: msg {} to {}".format, DELIVERIES, MESSAGES, ADDRESSES),
    st.builds("delivery {}: {}".format, DELIVERIES, RESULTS),
    st.builds("end msg {}".format, MESSAGES),
    st.builds("bounce msg {} qp {}".format, MESSAGES, QPS),
    st.builds("{} bounce: discarding bounce/{}".format, TRIPLES, MESSAGES),
    st.builds("hold msg {}: {}".format, MESSAGES, WHYS),
    st.builds("delete msg {}: {}".format, MESSAGES, WHYS),
    st.builds("release msg {}".format, MESSAGES),
    st.builds("requeue msg {}: {}".format, MESSAGES, WHYS),
    st.builds("status: local {}/10 remote {}/20{}".format, IN_FLIGHT, IN_FLIGHT, LEAVING),
    st.sampled_from(OTHERS),
)
SIZES_OF_BLOCKS = st.lists(st.sampled_from((1, 3, 1000)), min_size=13, max_size=13)
STEPS = st.sampled_from((0, 0, 0, 1, 1, 5, -1, -4))


@st.composite
def logs(draw: st.DrawFn, most: int = 40) -> list[Line]:
    """Draw lines: stamps that step, stay and come back, pieces of the log given again, and garbage."""
    time_ns, lines = BEGIN, list[Line]()
    for event in draw(st.lists(EVENTS, max_size=most)):
        time_ns += draw(STEPS)
        lines.append((f"{stamp(time_ns)} {event}".encode("utf-8", "surrogateescape"), False))
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 2)))):
        place, start = draw(st.integers(0, len(lines))), draw(st.integers(0, len(lines)))
        again = lines[start : start + draw(st.integers(1, 12))]
        lines[place:place] = again
    for _ in range(draw(st.sampled_from((0, 0, 1)))):
        place = draw(st.integers(0, len(lines)))
        lines.insert(place, (draw(st.sampled_from(GARBAGE))[:-1], draw(st.booleans())))
    return lines


@LONG
@given(logs(), st.data())
def test_lines_in_any_pieces_make_what_one_pass_makes(lines: list[Line], data: st.DataObject) -> None:
    stream = Stream(carry=data.draw(st.sampled_from((None, carry_state))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(lines)), max_size=6)))
    for start, end in zip([0, *cuts], [*cuts, len(lines)], strict=True):
        stream.match(lines[start:end], data.draw(st.sampled_from((1, 2, 7, 1000))))
    agree(read_lines(lines, HOST, QUEUE), stream.truth())
    whole = Stream()
    whole.match(lines)
    assert (stream.counts, stream.unknown) == (whole.counts, whole.unknown)
    assert stream.state.mark() == whole.state.mark()


@LONG
@given(st.lists(st.tuples(st.binary(max_size=60), st.booleans()), max_size=12))
def test_any_bytes_are_read_or_quarantined(given: list[Line]) -> None:
    lines = [(line.replace(b"\n", b""), torn) for line, torn in given]
    stream = Stream()
    stream.match(lines)
    agree(read_lines(lines, HOST, QUEUE), stream.truth())


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(20))
def test_many_pieces_of_lines_that_no_queue_would_log(seed: int) -> None:
    @hypothesis_seed(seed)
    @settings(LONG, max_examples=1000, database=None)
    @given(logs(80), st.lists(st.integers(0, 100), max_size=12), st.sampled_from((None, carry_state)), SIZES_OF_BLOCKS)
    def run(lines: list[Line], cuts: list[int], carry: Callable[[State], State] | None, sizes: list[int]) -> None:
        stream = Stream(carry=carry)
        at = 0
        for cut, size in zip([*sorted(cuts), len(lines)], sizes, strict=False):
            stream.match(lines[at:cut], size)
            at = max(at, cut)
        agree(read_lines(lines, HOST, QUEUE), stream.truth())

    run()
