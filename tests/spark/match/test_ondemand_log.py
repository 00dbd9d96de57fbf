"""What the matcher makes of lines about on-demand domains: stored recipients and runs, wherever the log is cut."""

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from queue_wire import logline
from support.plugins.amount import amount
from support.spark.logs.log_files import stamp
from support.spark.matched import Line, Stream, check, match_cut

BEGIN = 1_700_000_000_000_000_000
D, E = b"customer.example", b"branch.example"
ONE, TWO = "457-tk3x2a", "458-tk3x2b"
LONG = b"x" * 400 + b"@customer.example"
TABLES = ("stored", "runs")


def stored(domain: bytes, long_id: str, recipient: bytes, sender: bytes = b"a@x") -> bytes:
    return logline.stored_on_demand(domain, long_id, 2310, sender, recipient)


def result(domain: bytes, long_id: str, letter: bytes, recipient: bytes, text: bytes = b"ok\n") -> bytes:
    return logline.on_demand_result(domain, long_id, letter, recipient, text)


# `b` of TWO is stored twice; `late` was stored before the log. The second run of D is killed, that of E is an order.
LOG = [
    result(D, ONE, b"K", b"late@x"),
    logline.run_ended(D, 1, 0, 0),
    stored(D, ONE, b"a@x"),
    stored(D, TWO, b"b@x"),
    stored(E, TWO, b"b@x", b""),
    stored(D, TWO, LONG),
    logline.run_started(D, b"etrn"),
    result(D, ONE, b"K", b"a@x", b"taken\n"),
    result(D, TWO, b"Z", b"b@x"),
    stored(D, TWO, b"b@x"),
    result(D, TWO, b"D", LONG, b"no\n"),
    logline.run_ended(D, 1, 1, 1),
    logline.run_started(D, b"probe"),
    result(D, TWO, b"K", b"b@x"),
    logline.run_started(D, b"flush"),
    logline.on_demand_requeue(E, TWO, 99, b"b@x"),
    stored(E, ONE, b"c@x"),
    result(E, ONE, b"D", b"c@x", b"deleted by the administrator\n"),
    logline.run_ended(E, 0, 1, 0),
    result(D, TWO, b"K", b"b@x"),
    result(D, TWO, b"K", b"b@x", b"again\n"),
    stored(D, ONE, b"left@x"),
]


def lines_of(texts: list[bytes]) -> list[Line]:
    """Return lines a nanosecond apart."""
    return [(f"{stamp(BEGIN + tick)} ".encode() + text, False) for tick, text in enumerate(texts)]


def match(texts: list[bytes], *cuts: int, carried: bool = False) -> Stream:
    """Match lines of these texts."""
    return match_cut(lines_of(texts), *cuts, carried=carried)


def tables_of(stream: Stream) -> dict[str, Any]:
    rows = {name: sorted(stream.rows(name), key=str) for name in TABLES}
    for row in itertools.chain(*rows.values()):
        check(row)
    pending = [row for row in stream.state.pack().to_pylist() if row["what"] in ("stored", "run")]
    return {**rows, "pending": sorted(pending, key=str), "counts": +stream.counts}


def test_stored_recipients_and_runs_become_rows() -> None:
    found = tables_of(match(LOG))
    rows = {(row["domain"], row["recipient"][:6], row["done_ns"] - BEGIN): row for row in found["stored"]}
    brief = {
        key: (row["start_ns"] and row["start_ns"] - BEGIN, row["result"], row["deferrals"]) for key, row in rows.items()
    }
    assert brief == {
        ("customer.example", "late@x", 0): (None, "success", 0),
        ("customer.example", "a@x", 7): (2, "success", 0),
        ("customer.example", "xxxxxx", 10): (5, "failure", 0),
        ("customer.example", "b@x", 13): (9, "success", 0),
        ("branch.example", "b@x", 15): (4, "requeued", 0),
        ("branch.example", "c@x", 17): (16, "failure", 0),
        ("customer.example", "b@x", 19): (3, "success", 1),
        ("customer.example", "b@x", 20): (None, "success", 0),
    }
    assert rows["customer.example", "a@x", 7].items() >= {
        "long_id": ONE, "id": 457, "sender": "a@x", "bytes": 2310, "reason": "taken/", "host": "alpha",
    }.items()  # fmt: skip
    runs = [tuple(row[name] for name in ("domain", "cause", "successes", "delivered", "failures", "deferrals"))
            for row in sorted(found["runs"], key=lambda row: row["done_ns"] or row["start_ns"])]  # fmt: skip
    assert runs == [
        ("customer.example", None, 1, 1, 0, 0),
        ("customer.example", "etrn", 1, 1, 1, 1),
        ("customer.example", "probe", 1, None, 0, 0),
        ("branch.example", None, 0, 0, 1, 0),
    ]
    assert [(row["what"], row["domain"], row["recipient"], row["fate"], row["successes"]) for row in found["pending"]] \
        == [("run", "customer.example", None, "flush", 2), ("stored", "customer.example", "left@x", None, None)]
    assert found["counts"]["ondemand"] == len(LOG)


def test_a_log_that_is_cut_anywhere_makes_the_rows_of_one_pass() -> None:
    whole = tables_of(match(LOG))
    for cut in range(len(LOG) + 1):
        assert tables_of(match(LOG, cut)) == whole, cut
        assert tables_of(match(LOG, cut, carried=True)) == whole, cut


line = st.one_of(
    st.builds(stored, st.sampled_from([D, E]), st.sampled_from([ONE, TWO]), st.sampled_from([b"a", b"b"])),
    st.builds(
        result, st.sampled_from([D, E]), st.sampled_from([ONE, TWO]), st.sampled_from([b"K", b"Z", b"D"]),
        st.sampled_from([b"a", b"b"]),
    ),
    st.builds(logline.run_started, st.sampled_from([D, E]), st.sampled_from([b"etrn", b"probe"])),
    st.builds(logline.run_ended, st.sampled_from([D, E]), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)),
    st.just(b"ondemand customer.example something new"),
)  # fmt: skip


@settings(max_examples=amount(60, 1000), deadline=None)
@given(st.lists(line, max_size=25), st.lists(st.integers(0, 25), max_size=3), st.booleans())
def test_any_lines_in_any_pieces_make_the_rows_of_one_pass(texts: list[bytes], cuts: list[int], carried: bool) -> None:
    places = sorted(min(cut, len(texts)) for cut in cuts)
    assert tables_of(match(texts, *places, carried=carried)) == tables_of(match(texts))
