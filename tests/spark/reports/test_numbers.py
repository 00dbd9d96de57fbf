"""qmailanalog's numbers, on tables written by hand: each expected number is computed from matchup.c and its awk."""

from decimal import Decimal
from typing import Any

import pytest

from queue_report.reports.engine import Engine
from queue_report.reports.report import View
from support.spark.lake_rows import LakeRows, Seconds, ask, ns, utc

T = 1_700_000_000


def s(text: str) -> Decimal:
    """Return seconds since T as a time."""
    return T + Decimal(text)


def injected(rows: LakeRows, table: str, uid: int, qp: int) -> None:
    """Say who injected the last message of the table."""
    rows.rows[table][-1].update(uid=uid, qp=qp)


def hand_made() -> LakeRows:
    """Return one log's rows: two messages that count, one pending, one from before the log, one lost."""
    rows = LakeRows()
    # a is delivered to two, one at the second try. b is a bounce that fails after a mangled report.
    rows.message("a", T, T + 10, sender="Joe@A.example", size=1000, counts=(2, 0, 1))
    injected(rows, "messages", 1000, 11)
    rows.delivery("a", "u@x.example", s("1"), s("3"))
    rows.delivery("a", "V@X.example", s("1"), s("2"), "deferral")
    rows.delivery("a", "V@X.example", s("5"), s("10"))
    rows.message("b", T + 2, T + 6, sender="", size=500, counts=(0, 1, 1), outcome="bounced")
    injected(rows, "messages", 1000, 12)
    rows.delivery("b", "joe", s("3"), s("3.5"), "mangled", channel="local")
    rows.delivery("b", "joe", s("4"), s("6"), "failure", channel="local", reason="No.")
    # c waits still. d was classified before the log begins. e's number was used again without an end.
    rows.message("c", T + 5, None, sender="joe@a.example", size=300, counts=(1, 0, 0))
    injected(rows, "pending", 1001, 13)
    rows.delivery("c", "joe", s("6"), s("7.25"), channel="local")
    rows.message("d", None, s("0.5"), first=T - 1, sender=None, size=None, counts=(1, 0, 0))
    rows.delivery("d", "x@y.example", s("-1"), s("0.5"))
    rows.message("e", T + 1, T + 8, sender="e@a.example", size=70, counts=(0, 0, 1), outcome="lost")
    injected(rows, "messages", 1002, 14)
    rows.delivery("e", "u@x.example", s("2"), s("2.5"), "deferral")
    rows.delivery("e", "u@x.example", s("3"), None, "lost")
    return rows


def with_delays(rows: LakeRows, host: str, delays: list[Seconds]) -> None:
    """Add a host with one message, and a success after each of these delays."""
    rows.message("m", T, T + 1000, host=host, counts=(len(delays), 0, 0))
    for delay in delays:
        rows.delivery("m", "u@x.example", T, T + delay, host=host)


@pytest.fixture(scope="module")
def lake() -> Engine:
    rows = hand_made()
    with_delays(rows, "ties", [3, 1, 1, 1, 1, 1, 1, 2, 4, 5, 6, 7])
    with_delays(rows, "many", list(range(1, 151)))
    rows.message("b", T, s("0.5"), host="brief", counts=(1, 0, 0))
    rows.delivery("b", "u@x.example", T, s("0.4"), host="brief")
    with_delays(rows, "back", [Decimal("-0.5"), 100])
    rows.message("w", T, T + 5_000_000_000, host="long", size=2**62)
    rows.message("x", T, T + 5_000_000_000, host="long", size=1)
    for row in rows.rows["messages"] + rows.rows["pending"]:
        # A message is born at `info` for qmailanalog, a little after `new`.
        if row.get("bytes") is not None:
            row["info_ns"], row["birth_ns"] = row["birth_ns"], row["birth_ns"] - ns(Decimal("0.01"))
    return rows.engine()


OWN = View(host="h")


def overall(lake: Engine, view: View) -> dict[str, Any]:
    names = (
        "messages", "recips", "tries", "tries_average", "bytes", "sbytes", "qtime", "qtime_average", "attempts",
        "successes", "failures", "deferrals", "ddelay", "ddelay_average", "xdelay", "xdelay_average", "span",
        "concurrency", "first", "last",
    )  # fmt: skip
    return dict(zip(names, ask("overall", lake, view, *names)[0], strict=True))


def test_overall_counts_messages_that_ended_and_every_delivery_that_did(lake: Engine) -> None:
    assert overall(lake, OWN) == {
        "messages": 2, "recips": 3, "tries": 5, "tries_average": Decimal("2.5"), "bytes": 1500, "sbytes": 2000,
        "qtime": 14, "qtime_average": 7, "attempts": 8, "successes": 4, "failures": 1, "deferrals": 3,
        "ddelay": Decimal("16.75"), "ddelay_average": Decimal("4.1875"), "xdelay": Decimal("13.75"),
        "xdelay_average": Decimal("1.71875"), "span": 11, "concurrency": Decimal("1.25"),
        "first": utc(T - 1), "last": utc(T + 10),
    }  # fmt: skip


def test_concurrency_is_over_a_span_to_the_nanosecond(lake: Engine) -> None:
    row = overall(lake, View(host="brief"))
    assert (row["xdelay"], row["span"], row["concurrency"]) == (Decimal("0.4"), Decimal("0.5"), Decimal("0.8"))


def test_overall_of_nothing_has_counts_of_0_and_no_averages(lake: Engine) -> None:
    counts = {
        "messages", "recips", "tries", "bytes", "sbytes", "attempts", "successes", "failures", "deferrals"
    }  # fmt: skip
    row = overall(lake, View(host="nobody"))
    assert {name: row[name] for name in counts} == dict.fromkeys(counts, 0)
    assert not [name for name in row.keys() - counts if row[name] is not None]


def test_overall_of_a_window_knows_the_birth_of_messages_that_ended_after_it_or_have_not(lake: Engine) -> None:
    early = overall(lake, View(host="h", since=ns(s("1")), until=ns(s("4"))))
    assert (early["messages"], early["attempts"], early["ddelay"]) == (0, 4, 3)
    late = overall(lake, View(host="h", since=ns(s("6")), until=ns(s("8"))))
    assert (late["messages"], late["attempts"], late["ddelay"]) == (1, 2, Decimal("2.25"))


def test_overall_of_a_domain_counts_the_messages_that_have_recipients_there(lake: Engine) -> None:
    rows = overall(lake, View(host="h", domain="x.example"))
    assert (rows["messages"], rows["attempts"], rows["deferrals"], rows["bytes"]) == (1, 2, 1, 1000)


def test_sums_that_no_long_of_nanoseconds_holds_are_exact(lake: Engine) -> None:
    row = overall(lake, View(host="long"))
    assert (row["qtime"], row["bytes"]) == (10_000_000_000, 2**62 + 1)


def test_senders_have_bytes_by_success_and_by_recipient_and_the_delays_of_waiting_mail(lake: Engine) -> None:
    assert ask("senders", lake, OWN) == [
        (1, 1000, 2000, 2000, 2, 3, Decimal("9.25"), "<joe@a.example>"),
        (1, 500, 0, 500, 1, 2, Decimal("2.5"), "<>"),
    ]


def test_suids_are_the_users_whose_messages_ended(lake: Engine) -> None:
    assert ask("suids", lake, OWN) == [(2, 1500, 2000, 2500, 3, 5, Decimal("10.5"), 1000)]


def test_recipients_are_told_apart_by_channel_and_not_by_case(lake: Engine) -> None:
    assert ask("recipients", lake, OWN) == [
        (300, 2, 3, Decimal("3.75"), "local.joe"),
        (1000, 1, 2, Decimal("6"), "remote.v@x.example"),
        (1000, 1, 2, Decimal("2.5"), "remote.u@x.example"),
        (0, 1, 1, Decimal("1.5"), "remote.x@y.example"),
    ]


def test_rhosts_are_domains_and_recipients_without_one(lake: Engine) -> None:
    assert ask("rhosts", lake, OWN) == [
        (2000, 2, 4, Decimal("8.5"), "x.example"),
        (300, 2, 3, Decimal("3.75"), "local.joe"),
        (0, 1, 1, Decimal("1.5"), "y.example"),
    ]


def test_rxdelay_puts_the_quickest_recipient_first(lake: Engine) -> None:
    assert ask("rxdelay", lake, OWN) == [
        (Decimal("1.25"), 2, "remote.u@x.example"),
        (Decimal("1.25"), 3, "local.joe"),
        (Decimal("1.5"), 1, "remote.x@y.example"),
        (Decimal("3"), 2, "remote.v@x.example"),
    ]


def test_a_limit_keeps_the_first_rows(lake: Engine) -> None:
    assert ask("rxdelay", lake, View(host="h", limit=1)) == [(Decimal("1.25"), 2, "remote.u@x.example")]


def test_ddist_gives_each_percentage_that_a_delay_falls_on(lake: Engine) -> None:
    assert ask("ddist", lake, OWN) == [
        (Decimal("1.5"), Decimal("1.5"), 25),
        (Decimal("2.25"), Decimal("1.875"), 50),
        (Decimal("3"), Decimal("2.25"), 75),
        (Decimal("10"), Decimal("4.1875"), 100),
    ]


def test_ddist_takes_equal_delays_as_so_many(lake: Engine) -> None:
    rows = ask("ddist", lake, View(host="ties"))
    assert [doneby for doneby, _, _ in rows] == [1, 2, 3, 4, 5, 6, 7]
    assert [pct for _, _, pct in rows] == [50, 58, 66, 75, 83, 91, 100]
    assert [avg for _, avg, _ in rows][:2] == [1, Decimal("1.142857143")]


def test_ddist_gives_the_least_delay_of_a_percentage_from_10_on_and_averages_from_the_first(lake: Engine) -> None:
    rows = ask("ddist", lake, View(host="many"))
    # The 15th and the 16th of 150 are at 10 percent; the average is that of all 16.
    assert rows[0] == (15, Decimal("8.5"), 10)
    assert (rows[-1], len(rows)) == ((150, Decimal("75.5"), 100), 91)


def test_ddist_bears_a_clock_that_was_set_back(lake: Engine) -> None:
    assert ask("ddist", lake, View(host="back")) == [
        (Decimal("-0.5"), Decimal("-0.5"), 50),
        (100, Decimal("49.75"), 100),
    ]


def test_sendmail_lines_come_by_time_with_a_message_after_its_deliveries(lake: Engine) -> None:
    lines = ask("sendmail", lake, OWN, "at", "line")
    assert [line for _, line in lines] == [
        "qp ?: to=remote.x@y.example, uid=?, ddelay=1.500000, xdelay=1.500000, stat=Sent ()",
        "qp 11: to=remote.v@x.example, uid=1000, ddelay=2.000000, xdelay=1.000000, stat=Deferred ()",
        "qp 14: to=remote.u@x.example, uid=1002, ddelay=1.500000, xdelay=0.500000, stat=Deferred ()",
        "qp 11: to=remote.u@x.example, uid=1000, ddelay=3.000000, xdelay=2.000000, stat=Sent ()",
        "qp 12: to=local.joe, uid=1000, ddelay=1.500000, xdelay=0.500000, stat=Deferred (report_mangled)",
        "qp 12: to=local.joe, uid=1000, ddelay=4.000000, xdelay=2.000000, stat=Failed (No.)",
        "qp 12: from=<>, uid=1000, size=500, nrcpts=1, deferrals=1, qtime=4.000000",
        "qp 13: to=local.joe, uid=1001, ddelay=2.250000, xdelay=1.250000, stat=Sent ()",
        "qp 11: to=remote.v@x.example, uid=1000, ddelay=10.000000, xdelay=5.000000, stat=Sent ()",
        "qp 11: from=<joe@a.example>, uid=1000, size=1000, nrcpts=2, deferrals=1, qtime=10.000000",
    ]
    assert lines[0][0] == utc(s("0.5"))


def test_reasons_come_with_the_least_of_those_logged_and_a_mangled_report_with_its_name() -> None:
    rows = LakeRows()
    for number, reason in enumerate(("b_2", "b_1", "a_3")):
        rows.delivery("1.1", "u@x.example", T, T + number, "deferral", reason=reason, template=f"{reason[0]}_N")
    rows.delivery("1.1", "u@x.example", T, T + 5, "mangled", template="report_mangled", kind="local")
    rows.rows["deliveries"][-1]["reason"] = None
    assert ask("deferrals", rows.engine(), None, "del", "xdelay", "reason", "example") == [
        (2, 1, "b_N", "b_1"),
        (1, 5, "report_mangled", "report_mangled"),
        (1, 2, "a_N", "a_3"),
    ]


def test_successes_fold_into_templates_as_failures_do() -> None:
    said = "192.0.2.7_accepted_message./Remote_host_said:_250_2.0.0_Ok:_queued_as_"
    rows = LakeRows()
    for number, reason in enumerate((f"{said}4Gk2Xn3T4Mz9sTl/", f"{said}zBcDfGhJk/", "did_0+0+1/", "it's_[12kB]")):
        rows.delivery("1.1", "u@x.example", T, T + number, reason=reason)
    assert ask("successes", rows.engine(), None, "del", "xdelay", "reason") == [
        (2, 1, "IP_accepted_message./Remote_host_said:_250_2.0.0_Ok:_queued_as_ID/"),
        (1, 3, "it's_[N]"),
        (1, 2, "did_N+N+N/"),
    ]
