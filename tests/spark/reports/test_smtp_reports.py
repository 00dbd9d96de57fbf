"""The reports of the SMTP server, on the tables that its log makes."""


import pytest

from queue_report.page.gather import statement
from queue_report.reports.engine import Engine
from queue_report.reports.report import View
from queue_smtp.server_replies import BAD_CREDENTIALS, RELAYING_DENIED, SENDER_REFUSED
from queue_smtpd.sessions import session_log as log
from queue_wire.ids import pack_long_id
from support.spark.lake_rows import LakeRows, ask, ns, utc

T = 1_700_000_000
ANN, JOE = b"ann@here.example", b"joe@x.example"


def born(at: int) -> bytes:
    """Return the long id of message 5 that is born then."""
    return pack_long_id(5, at * 1_000_000).encode()


@pytest.fixture(scope="module")
def engine() -> Engine:
    rows = LakeRows()
    lines = [(0, log.process_started(1, 1, 7)), (1, log.connect(1, "192.0.2.1", 9, b"a.example", "192.0.2.9", 25))]
    lines += [(1, log.tls_started(1, b"TLSv1.3", b"AES"))]
    # The number 5 is used by two messages of this server, with one of another program between them.
    for at in (10, 30):
        lines += [(at, log.sender_accepted(1, ANN, 0)), (at, log.queued(1, born(T + at), 100 + at, 2))]
    lines += [(31, log.ended(1, "QUIT", 2, 0, 30)), (40, log.connect(2, "192.0.2.2", 9, b"", "192.0.2.9", 25))]
    lines += [
        (41, log.refused(2, b"AUTH ann", BAD_CREDENTIALS, "192.0.2.2")),
        (42, log.refused(2, b"AUTH ann", BAD_CREDENTIALS, "192.0.2.2")),
    ]
    lines += [(43, log.authenticated(2, b"ann", b"PLAIN")), (44, log.sender_accepted(2, b"b@c.example", 0))]
    lines += [
        (45, log.refused(2, b"RCPT <%s>" % JOE, RELAYING_DENIED, "192.0.2.2")),
        (46, log.ended(2, "QUIT", 0, 4, 6)),
    ]
    lines += [
        # As older logs have it, without the client.
        (50, log.refused(3, b"MAIL <x@y.example>", SENDER_REFUSED, "").partition(b" client ")[0]),
        (51, log.ended(3, "QUIT", 0, 1, 6)),
    ]
    lines += [(60, log.connect(4, "192.0.2.1", 9, b"a.example", "192.0.2.9", 587)), (61, log.tls_failed(4, "x"))]
    lines += [(62, log.ended(4, "connection lost", 0, 0, 2))]
    lines += [(70, log.connect(5, "192.0.2.1", 9, b"", "192.0.2.9", 25))]
    lines += [(80, log.process_started(1, 1, 8)), (81, log.connect(6, "192.0.2.1", 9, b"", "192.0.2.9", 25))]
    spam, milter = b"refuses message: 554 5.7.1 Spam", b"inet:127.0.0.1:1"
    for at, name, what in [
        (44, milter, b"accepts message"), (44, milter, spam), (44, milter, b"defers RCPT: 451 4.7.1 Later"),
        (45, milter, spam), (45, b"header", b"copies message: no-date"), (45, milter, b"failed: no answer in 30 s"),
    ]:  # fmt: skip
        lines.append((at, log.filtered(2, name, what)))
    lines.sort(key=lambda line: line[0])
    rows.server_log([(T + at, text) for at, text in lines])
    for first, sender, recipients in ((T + 11, ANN, 2), (T + 20, b"other@x", 1), (T + 31, ANN, 0)):
        key = f"5.{ns(first)}"
        rows.message(key, first, first + 5 if recipients else None, sender=sender.decode(), recipients=recipients)
        for number in range(recipients):
            recipient = f"r{number}@x.example"
            rows.delivery(key, recipient, first, first + 1, "deferral", delivery=1, reason="no")
            rows.delivery(key, recipient, first + 2, first + 4, "success", delivery=2, reason="yes")
    return rows.engine()


def test_refusals_are_counted_by_reason_and_by_client(engine: Engine) -> None:
    assert ask("refusals", engine, None, "verb", "reply", "code", "refusals", "clients", "first", "last") == [
        ("AUTH", 535, "5.7.8", 2, 1, utc(T + 41), utc(T + 42)),
        ("MAIL", 550, "5.7.1", 1, 0, utc(T + 50), utc(T + 50)),
        ("RCPT", 550, "5.7.1", 1, 1, utc(T + 45), utc(T + 45)),
    ]
    assert ask("refused-clients", engine, None, "client", "verb", "refusals") == [
        ("192.0.2.2", "AUTH", 2), ("(unknown)", "MAIL", 1), ("192.0.2.2", "RCPT", 1),
    ]  # fmt: skip
    assert ask("refusals", engine, View(since=ns(T + 42), until=ns(T + 50)), "verb", "refusals") == [
        ("AUTH", 1), ("RCPT", 1),
    ]  # fmt: skip
    assert ask("refusals", engine, View(host="another")) == []


def test_filters_are_counted_by_verdict_and_reason(engine: Engine) -> None:
    columns = ("filter", "verdict", "stage", "verdicts", "verdicts_percent", "reason", "first", "last")
    found = ask("filters", engine, None, *columns)
    assert [(*row[:4], f"{row[4]:.1f}", *row[5:]) for row in found] == [
        ("header", "copies", "message", 1, "100.0", "no-date", utc(T + 45), utc(T + 45)),
        ("inet:127.0.0.1:1", "refuses", "message", 2, "40.0", "554_5.7.1_Spam", utc(T + 44), utc(T + 45)),
        ("inet:127.0.0.1:1", "accepts", "message", 1, "20.0", "", utc(T + 44), utc(T + 44)),
        ("inet:127.0.0.1:1", "defers", "RCPT", 1, "20.0", "451_4.7.1_Later", utc(T + 44), utc(T + 44)),
        ("inet:127.0.0.1:1", "failed", "", 1, "20.0", "no_answer_in_N_s", utc(T + 45), utc(T + 45)),
    ]


def test_clients_come_by_messages_with_what_they_were_refused(engine: Engine) -> None:
    columns = ("client", "sessions", "tls", "authenticated", "messages", "recipients", "bytes", "refused")
    assert ask("clients", engine, None, *columns) == [
        ("192.0.2.1", 3, 1, 0, 2, 4, 240, 0),
        ("(unknown)", 1, 0, 0, 0, 0, 0, 1),
        ("192.0.2.2", 1, 0, 1, 0, 0, 0, 3),
    ]


def test_the_share_of_tls_is_that_of_each_port(engine: Engine) -> None:
    found = ask("tls", engine, None, "port", "tls", "sessions", "sessions_percent", "messages")
    assert [(*row[:3], f"{row[3]:.1f}", row[4]) for row in found] == [
        (None, "none", 1, "100.0", 0), (25, "none", 2, "66.7", 0), (25, "TLSv1.3", 1, "33.3", 2),
        (587, "failed", 1, "100.0", 0),
    ]  # fmt: skip


def test_an_auth_failure_tells_whether_the_same_client_got_in(engine: Engine) -> None:
    assert ask("auth-failures", engine, None, "auth_user", "client", "failures", "successes") == [
        ("ann", "192.0.2.2", 2, 1)
    ]


def test_a_message_is_followed_from_its_client_to_its_receivers(engine: Engine) -> None:
    columns = ("accepted", "client", "long_id", "recipient", "attempts", "result", "seconds", "message", "reason")
    first, second = born(T + 10).decode(), born(T + 30).decode()
    assert ask("journeys", engine, None, *columns) == [
        (utc(T + 10), "192.0.2.1", first, "r0@x.example", 2, "success", 5, "delivered", "yes"),
        (utc(T + 10), "192.0.2.1", first, "r1@x.example", 2, "success", 5, "delivered", "yes"),
        (utc(T + 30), "192.0.2.1", second, None, None, None, None, "waiting", None),
    ]
    # What was accepted in the window is followed beyond it.
    window = View(since=ns(T + 10), until=ns(T + 11), domain="x.example")
    assert [row[-1] for row in ask("journeys", engine, window, "message", "reason")] == ["yes", "yes"]


def test_an_open_session_is_no_queue_and_no_moment_of_one() -> None:
    rows = LakeRows()
    rows.message("5.1", T, T + 5)
    rows.server_log([(T + 9000, log.connect(1, "192.0.2.1", 9, b"", "192.0.2.9", 25))])
    engine = rows.engine()
    assert list(engine.query("select ns from newest", View()).rows) == [(ns(T + 5),)]
    assert [row[:2] for row in engine.query(statement("span", {}), View()).rows] == [("h", "q")]


def test_sessions_and_accepted_messages_are_accounted_for(engine: Engine) -> None:
    # A `refused` line of session 2 is missing.
    assert ask("conservation-sessions", engine) == [("h", "smtpd", 6, 1, 1, 0, 1, 2, 2, 0)]


def test_a_refusal_that_names_no_address_is_about_none() -> None:
    rows = LakeRows()
    rows.server_log([
        (T, log.connect(1, "192.0.2.1", 9, b"", "192.0.2.9", 25)),
        (T, log.refused(1, b"connect", RELAYING_DENIED, "192.0.2.1")),
        (T + 1, log.refused(1, b"RCPT <%s>" % JOE, RELAYING_DENIED, "192.0.2.1")),
    ])  # fmt: skip
    engine = rows.engine()
    assert ask("refusals", engine, None, "verb", "addresses") == [("RCPT", 1), ("connect", 0)]
    assert ask("refused-clients", engine, None, "verb", "addresses") == [("RCPT", 1), ("connect", 0)]
