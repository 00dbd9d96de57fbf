"""The reports about on-demand domains, on the tables that a log makes; a line that is missing shows in conservation."""

import pytest

from queue_report.reports.engine import Engine
from queue_report.reports.report import View
from queue_wire import logline
from support.spark.lake_rows import LakeRows, ask, ns, utc

T = 1_700_000_000
D, E = b"customer.example", b"branch.example"
OLD = b"It was stored for too long, and nobody has taken it. (#4.4.7)\n"
BACK = b"The administrator of this host has returned the message without another delivery. (#5.7.0)\n"


def queued(at: int, number: int, recipient: bytes) -> list[tuple[int, bytes]]:
    """Return the lines of a message that is stored for its one recipient's domain."""
    domain = recipient.rpartition(b"@")[2]
    return [
        (at, b"new msg %d" % number),
        (at, b"info msg %d: bytes 100 from <a@x> qp 5 uid 6" % number),
        (at, b"starting delivery %d: msg %d to remote %s" % (number, number, recipient)),
        (at, logline.stored_on_demand(domain, f"{number}-abc", 100, b"a@x", recipient)),
        (at, b"delivery %d: success: stored_for_%s/no_route/" % (number, domain)),
        (at, b"end msg %d" % number),
    ]


def done(at: int, number: int, letter: bytes, recipient: bytes, text: bytes = b"ok\n") -> tuple[int, bytes]:
    domain = recipient.rpartition(b"@")[2]
    return at, logline.on_demand_result(domain, f"{number}-abc", letter, recipient, text)


def log() -> list[tuple[int, bytes]]:
    """Return the lines: nine recipients of D, of which two wait, and one of E."""
    lines = [line for number in range(1, 10) for line in queued(T + number, number, b"r%d@customer.example" % number)]
    lines += queued(T + 10, 10, b"r@branch.example")
    lines += [(T + 100, logline.run_started(D, b"etrn")), done(T + 101, 1, b"K", b"r1@customer.example")]
    lines += [done(T + 112, 2, b"K", b"r2@customer.example"), done(T + 113, 3, b"Z", b"r3@customer.example")]
    lines += [done(T + 114, 4, b"D", b"r4@customer.example", b"no such user\n")]
    lines += [(T + 115, logline.run_ended(D, 2, 1, 1)), done(T + 116, 5, b"D", b"r5@customer.example", OLD)]
    lines += [(T + 116, logline.run_ended(D, 0, 1, 0)), done(T + 117, 6, b"D", b"r6@customer.example", BACK)]
    lines += [done(T + 117, 7, b"D", b"r7@customer.example", b"deleted by the administrator\n")]
    lines += [(T + 117, logline.run_ended(D, 0, 2, 0))]
    lines += [(T + 118, logline.on_demand_requeue(D, "8-abc", 77, b"r8@customer.example"))]
    lines += [(T + 200, logline.run_started(D, b"probe")), (T + 201, logline.run_started(D, b"flush"))]
    return lines


def engine_of(lines: list[tuple[int, bytes]]) -> Engine:
    rows = LakeRows()
    rows.queue_log(lines)
    return rows.engine()


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(log())


def test_a_domain_has_what_became_of_its_mail_and_its_runs(engine: Engine) -> None:
    assert ask("ondemand", engine) == [
        ("customer.example", 9, 2, 1, 1, 1, 1, 1, 2, 1, 100, 110, 3, 1, 0, 1, 1, utc(T + 201)),
        ("branch.example", 1, 0, 0, 0, 0, 0, 0, 1, 0, None, None, 0, 0, 0, 0, 0, None),
    ]
    assert ask("ondemand", engine, View(domain="branch.example"), "domain", "waiting") == [("branch.example", 1)]
    window = View(since=ns(T + 2), until=ns(T + 112), domain="customer.example")
    names = ("stored", "delivered", "failed", "waiting", "runs", "p99")
    assert ask("ondemand", engine, window, *names) == [(8, 1, 0, 2, 1, 100)]


def test_what_is_stored_is_followed_beyond_the_queue(engine: Engine) -> None:
    names = ("messages", "recipients", "delivered", "stored", "failed", "difference", "problems")
    assert ask("conservation", engine, None, *names) == [(10, 10, 0, 10, 0, 0, 0)]
    assert ask("conservation-ondemand", engine) == [
        ("h", "q", "branch.example", 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0),
        ("h", "q", "customer.example", 9, 9, 2, 4, 1, 2, 0, 0, 2, 1, 0),
    ]


FAULTS = {
    "a stored line is missing": (b"ondemand customer.example stored 1-abc", ("not_stored", "unknown"), (1, 1)),
    "a stored line of one that waits is missing": (b"ondemand customer.example stored 9-abc", ("not_stored",), (1,)),
    "a done line is missing": (b"ondemand customer.example done 2-abc", ("runs_differ", "waiting"), (1, 3)),
    "the delivery's end is missing": (b"delivery 3: success", ("told", "not_stored"), (8, -1)),
    "the end of a run is missing": (b"ondemand customer.example ended: delivered 2", ("killed", "runs"), (1, 2)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_line_that_is_missing_shows(name: str) -> None:
    begin, names, wanted = FAULTS[name]
    lines = [line for line in log() if not line[1].startswith(begin)]
    assert len(lines) == len(log()) - 1
    found = ask("conservation-ondemand", engine_of(lines), View(domain="customer.example"), *names)
    assert found == [wanted]


def test_one_that_ends_twice_shows(engine: Engine) -> None:
    lines = [*log(), done(T + 300, 1, b"K", b"r1@customer.example", b"again\n")]
    found = ask("conservation-ondemand", engine_of(lines), View(domain="customer.example"), "unknown", "delivered")
    assert found == [(1, 2)]
