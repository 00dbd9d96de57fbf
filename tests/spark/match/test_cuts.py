"""Short logs in which what follows depends on what was before, cut at every pair of places: the tables of one pass."""

import itertools

import pytest

from support.spark.logs.log_files import stamp
from support.spark.logs.log_reference import read_lines
from support.spark.logs.log_rows import agree
from support.spark.logs.log_world import DELETED
from support.spark.matched import HOST, QUEUE, Line, Stream, match_cut

BEGIN = 1_700_000_000_000_000_000
IDLE, BUSY = "status: local 0/10 remote 0/20", "status: local 0/10 remote 1/20"
LOST = "alert: oh no! lost queue-remote connection! dying..."


def info(number: int, sender: str, qp: int) -> str:
    return f"info msg {number}: bytes 7 from <{sender}> qp {qp} uid 9"


def start(delivery: int, number: int) -> str:
    return f"starting delivery {delivery}: msg {number} to remote r{number}@b"


# Events, a tick apart; where a number is given, with that stamp.
LOGS: dict[str, list[str | tuple[int, str]]] = {
    "two bounces with one qp": [
        *("new msg 5", info(5, "a@b", 1), start(1, 5), "bounce msg 5 qp 8", "new msg 6", info(6, "c@d", 2)),
        *("bounce msg 6 qp 8", "new msg 7", info(7, "", 8), "new msg 10", info(10, "", 8), "end msg 10", "end msg 7"),
    ],
    "a bounce of what is open, after one of what is not": [
        *("new msg 5", info(5, "a@b", 1), "new msg 6", "bounce msg 6 qp 8", "bounce msg 5 qp 8", "bounce msg 4 qp 8"),
        *("new msg 7", info(7, "#@[]", 8), "end msg 7", "end msg 5"),
    ],
    "a delivery's number that is used again while it is in flight": [
        *("new msg 5", start(1, 5), "new msg 6", start(1, 6), "delivery 1: success: ", start(1, 5), start(1, 5)),
        *("delivery 1: failure: x", "delivery 1: failure: x", "end msg 5", "end msg 6"),
    ],
    "a message that ends while its delivery is in flight": [
        *(
            "new msg 5",
            start(1, 5),
            "end msg 5",
            "new msg 5",
            start(2, 5),
            "delivery 1: success: ",
            "delivery 2: failure: x",
        ),
        *("end msg 5", "end msg 5"),
    ],
    "a message that is announced again after a crash": [
        *(IDLE, "new msg 5", info(5, "a@b", 1), IDLE, "new msg 5", info(5, "a@b", 1), start(1, 5), BUSY, IDLE),
        *("new msg 5", info(5, "a@b", 2), "end msg 5"),
    ],
    "crashes and levels": [
        *(IDLE, start(1, 5), BUSY, "delivery 1: deferral: x", BUSY, start(2, 5), "queue-start: alert: x", IDLE, IDLE),
        *(start(3, 5), "status: exiting", IDLE, start(1, 5), "status: local 0/9 remote 0/20", BUSY, BUSY, IDLE),
    ],
    "runs that lost a daemon": [
        *(IDLE, LOST, start(1, 5), BUSY, "delivery 1: success: ", IDLE, "status: exiting", IDLE, start(1, 5), LOST),
        *(IDLE, "status: exiting", "status: exiting", LOST, "queue-start: alert: oh no! lost x", "status: exiting"),
    ],
    "fates": [
        *("new msg 5", info(5, "a@b", 1), f"hold msg 5: {DELETED}", "release msg 5", "end msg 5"),
        *("new msg 5", info(5, "a@b", 1), "delete msg 5: by the administrator", "release msg 5", "end msg 5"),
        *("delete msg 5: by the administrator", "new msg 5", "end msg 5", "delete msg 6: by the administrator"),
        *(f"hold msg 5: {DELETED}", "new msg 5", "triple bounce: discarding bounce/5", "end msg 5"),
        *(
            f"hold msg 6: {DELETED}",
            start(1, 6),
            f"hold msg 6: {DELETED}",
            "end msg 6",
        ),
    ],
    "stamps that come back": [
        *((1, "new msg 5"), (1, "end msg 5"), (2, "new msg 6"), (1, "new msg 5"), (1, "new msg 7"), (1, "new msg 5")),
        *((1, "end msg 5"), (1, "end msg 5"), (2, "new msg 6"), (2, "end msg 6"), (3, "new msg 6"), (2, "end msg 6")),
    ],
    "one stamp": [(1, text) for text in (IDLE, BUSY, IDLE, BUSY, BUSY, "new msg 5", IDLE, "new msg 5", "end msg 5")],
}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_that_is_cut_in_three_makes_the_tables_of_one_pass(name: str) -> None:
    lines: list[Line] = []
    for tick, event in enumerate(LOGS[name]):
        at, text = (tick, event) if isinstance(event, str) else event
        lines.append((f"{stamp(BEGIN + at)} {text}".encode(), False))
    whole = Stream()
    whole.match(lines)
    expected = read_lines(lines, HOST, QUEUE)
    agree(expected, whole.truth())
    for one, two in itertools.combinations_with_replacement(range(len(lines) + 1), 2):
        stream = match_cut(lines, one, two, carried=True)
        agree(expected, stream.truth())
        assert (stream.counts, stream.state.mark()) == (whole.counts, whole.state.mark()), (one, two)
