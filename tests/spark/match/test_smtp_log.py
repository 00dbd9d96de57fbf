"""What the matcher makes of lines of queue-smtpd: sessions, accepted messages, refusals, wherever the log is cut."""

import itertools
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from queue_report.match.grammar import parse_event
from queue_smtp.server_replies import RELAYING_DENIED
from queue_smtpd.sessions import session_log
from support.plugins.amount import amount
from support.spark.logs.log_files import stamp
from support.spark.matched import Line, Stream, check, match_cut

TURNING = RELAYING_DENIED._replace(code=250)
BEGIN = 1_700_000_000_000_000_000
TABLES = ("sessions", "accepted", "refusals", "filters")
# The long id 457-tk3x2a.
BIRTH = 29 * 36**5 + 20 * 36**4 + 3 * 36**3 + 33 * 36**2 + 2 * 36 + 10


def lines_of(*texts: bytes) -> list[Line]:
    """Return lines a nanosecond apart."""
    return [(f"{stamp(BEGIN + tick)} ".encode() + text, False) for tick, text in enumerate(texts)]


def connect(number: int) -> bytes:
    return session_log.connect(number, "192.0.2.1", 40000, b"mx.example.net", "198.51.100.1", 25)


def tables_of(stream: Stream) -> dict[str, Any]:
    rows = {name: sorted(stream.rows(name), key=str) for name in TABLES}
    for row in itertools.chain(*rows.values()):
        check(row)
    return rows | {"open": sorted((number, one.pack()) for number, one in stream.state.sessions.items())}


# Two processes, of which the second is killed with session 2 and starts again; numbers are used again.
LOG = lines_of(
    session_log.process_started(1, 2, 411),
    session_log.process_started(2, 2, 412),
    connect(1),
    session_log.tls_started(1, b"TLSv1.3", b"TLS_AES_256_GCM_SHA384"),
    connect(2),
    session_log.refused(1, b"AUTH joe", RELAYING_DENIED._replace(code=535), "192.0.2.1"),
    session_log.authenticated(1, b"ann", b"PLAIN"),
    session_log.sender_accepted(1, b"a@example.net", 7),
    session_log.sender_accepted(2, b"", 0),
    session_log.refused(1, b"RCPT <x@example.com>", RELAYING_DENIED, "192.0.2.1"),
    session_log.recipient_accepted(1, b"joe@example.org"),
    session_log.queued(1, b"457-tk3x2a", 2310, 1),
    session_log.recipient_accepted(2, b"joe@example.org"),
    b"smtp 1: greylisted something new",
    b"smtp 1: discarded bytes 7 recipients 1",
    b"smtp 1: filter inet:127.0.0.1:11332 holds message: looks_like_spam",
    session_log.process_started(2, 2, 413),
    connect(2),
    session_log.ended(1, "QUIT", 1, 2, 3),
    session_log.refused(2, b"connect", RELAYING_DENIED._replace(code=554), "192.0.2.1"),
    session_log.dropped(2),
    session_log.ended(2, "connection lost", 0, 1, 0),
    session_log.ended(9, "QUIT", 4, 0, 9),
    session_log.connect(3, "2001:db8::1", 4, b"", "2001:db8::2", 25),
    session_log.tls_failed(3, "no_shared_cipher"),
)


def test_sessions_accepted_messages_and_refusals_become_rows() -> None:
    found = tables_of(match_cut(LOG))
    of_session = {"client": "192.0.2.1", "name": "mx.example.net", "server_port": 25, "host": "alpha", "queue": "main"}
    secured = of_session | {"key": f"1.{BEGIN + 2}", "tls_version": "TLSv1.3", "auth_user": "ann"}
    (accepted,) = found["accepted"]
    assert accepted.items() >= (secured | {
        "time_ns": BEGIN + 11, "long_id": "457-tk3x2a", "id": 457, "birth_ns": BIRTH * 1000,
        "sender": "a@example.net", "recipients": 1, "bytes": 2310,
    }).items()  # fmt: skip
    sessions = {row["key"]: row for row in found["sessions"]}
    assert sessions[f"1.{BEGIN + 2}"].items() >= (secured | {
        "number": 1, "start_ns": BEGIN + 2, "done_ns": BEGIN + 18, "port": 40000, "server": "198.51.100.1",
        "tls_cipher": "TLS_AES_256_GCM_SHA384", "mechanism": "PLAIN", "messages": 1, "recipients": 1, "bytes": 2310,
        "refused": 2, "auth_failures": 1, "dropped": 0, "discarded": 1, "ended": "QUIT", "end_messages": 1,
        "end_errors": 2,
    }).items()  # fmt: skip
    killed = sessions[f"2.{BEGIN + 4}"]
    assert (killed["ended"], killed["done_ns"], killed["end_messages"]) == ("killed", None, None)
    assert (sessions[f"2.{BEGIN + 17}"]["ended"], sessions[f"2.{BEGIN + 17}"]["dropped"]) == ("connection_lost", 1)
    # It began before the log.
    assert (sessions[f"9.{BEGIN + 22}"]["client"], sessions[f"9.{BEGIN + 22}"]["end_messages"]) == (None, 4)
    assert len(sessions) == 4
    refusals = {(row["verb"], row["address"], row["sender"], row["reply"]): row for row in found["refusals"]}
    relaying = refusals["RCPT", "x@example.com", "a@example.net", 550]
    assert (relaying["code"], relaying["class"], relaying["auth_user"]) == ("5.7.1", "policy", "ann")
    assert relaying["reason"].startswith("550_5.7.1_")
    assert refusals["AUTH", "joe", None, 535]["auth_user"] is None
    assert refusals["connect", "", None, 554]["key"] == f"2.{BEGIN + 17}"
    (held,) = found["filters"]
    assert held.items() >= (secured | {
        "time_ns": BEGIN + 15, "filter": "inet:127.0.0.1:11332", "verdict": "holds", "stage": "message",
        "reason": "looks_like_spam", "template": "looks_like_spam", "sender": None,
    }).items()  # fmt: skip
    ((number, still_open),) = found["open"]
    assert (number, json.loads(still_open)["row"]["tls_failure"]) == (3, "no_shared_cipher")
    assert json.loads(still_open)["row"]["client"] == "2001:db8::1"


def test_a_log_that_is_cut_anywhere_makes_the_rows_of_one_pass() -> None:
    whole = match_cut(LOG)
    expected = tables_of(whole)
    pairs = list(itertools.combinations_with_replacement(range(len(LOG) + 1), 2))
    for one, two in amount([pair for pair in pairs if pair[1] - pair[0] in (0, 2, 9)], pairs):
        stream = match_cut(LOG, one, two, carried=one == two)
        assert tables_of(stream) == expected, (one, two)
        assert stream.counts == whole.counts


NUMBERS = st.sampled_from((1, 2, 3))
# What no filter says as it is: control characters, pieces of UTF-8 or none, statements of its own, and all together.
HOSTILE = st.lists(
    st.one_of(
        st.binary(max_size=8).map(lambda data: data.replace(b"\n", b"\r")),
        st.sampled_from((
            b" ", b": ", b"f accepts message: ", b"\x1b[2J", b"\xed\xa0\x80", b"\xe2\x80\xae", b"a" * 900,
            b"smtp 1: queued 457-tk3x2a bytes 1 recipients 1", b"'; drop table filters;--", b"new msg 5",
        )),
    ),
    max_size=5,
).map(b"".join)  # fmt: skip
ANY_LINES = st.one_of(
    NUMBERS.map(connect),
    st.builds(session_log.process_started, st.sampled_from((1, 2)), st.sampled_from((1, 2)), st.just(9)),
    st.builds(session_log.sender_accepted, NUMBERS, st.sampled_from((b"a@b", b"")), st.just(0)),
    st.builds(
        session_log.refused,
        NUMBERS,
        st.sampled_from((b"RCPT <x>", b"MAIL <y>")),
        st.just(RELAYING_DENIED),
        st.just("192.0.2.1"),
    ),
    st.builds(session_log.filtered, NUMBERS, st.just(b"f"), st.sampled_from((b"holds message: x", b"failed:", b""))),
    st.builds(b"smtp %d: filter %s".__mod__, st.tuples(NUMBERS, HOSTILE)),
    st.builds(session_log.queued, NUMBERS, st.sampled_from((b"457-tk3x2a", b"x")), st.just(7), st.just(1)),
    st.builds(session_log.authenticated, NUMBERS, st.just(b"joe"), st.just(b"PLAIN")),
    st.builds(session_log.ended, NUMBERS, st.just("QUIT"), st.just(1), st.just(0), st.just(3)),
    st.builds(b"tcpserver: end %d status 9".__mod__, NUMBERS),
    st.sampled_from((b"status: local 0/10 remote 0/20", b"new msg 5", b"smtp 1: what is this", b"smtp x: dropped")),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from((0, 0, 1, 1, -1)), ANY_LINES), max_size=30), st.data())
def test_any_lines_in_any_pieces_make_the_rows_of_one_pass(steps: list[tuple[int, bytes]], data: st.DataObject) -> None:
    at, lines = BEGIN, list[Line]()
    for step, text in steps:
        at += step
        lines.append((f"{stamp(at)} ".encode() + text, False))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(lines)), max_size=4)))
    stream = match_cut(lines, *cuts, carried=data.draw(st.booleans()))
    whole = match_cut(lines)
    assert tables_of(stream) == tables_of(whole) and stream.counts == whole.counts


def test_every_line_is_counted_by_its_kind_and_none_is_in_quarantine() -> None:
    counts = match_cut(LOG).counts
    assert counts["smtp_other"] == counts["smtp_filter"] == counts["smtp_discarded"] == 1
    assert counts["smtp_start"] == 3 and counts["smtp_refused"] == 3
    assert sum(counts.values()) == len(LOG) and not counts["quarantine"]


def test_garbage_with_large_numbers_ends_nothing() -> None:
    most = 2**63 - 1
    lines = [connect(1), *(session_log.queued(1, b"%d-zzzzzzzzzzzz" % most, most, most) for _ in range(2))]
    stream = match_cut(lines_of(*lines, b"smtp start: process 9 of 0 pid 0", session_log.ended(1, "x", most, 1, 1)))
    (session,) = stream.rows("sessions")
    assert (session["bytes"], session["recipients"], session["end_messages"]) == (most, most, most)
    assert [row["id"] for row in stream.rows("accepted")] == [None, None]


def test_the_id_of_a_message_of_several_queues_has_the_queue_before_it() -> None:
    stream = match_cut(lines_of(connect(1), session_log.queued(1, b"first/457-tk3x2a", 2310, 1)))
    (accepted,) = stream.rows("accepted")
    assert (accepted["long_id"], accepted["id"], accepted["birth_ns"]) == ("first/457-tk3x2a", 457, BIRTH * 1000)


def test_lines_of_the_server_are_none_of_queue_send() -> None:
    idle, busy = b"status: local 0/10 remote 0/20", b"status: local 0/10 remote 1/20"
    start = b"starting delivery 1: msg 5 to remote a@b"
    stream = match_cut(lines_of(idle, start, busy, connect(1), idle))
    # The run crashed after its own last line.
    assert max(row["until_ns"] for row in stream.rows("intervals")) == BEGIN + 2


def test_the_super_server_tells_of_a_process_that_was_killed() -> None:
    said = ("status: 1/40", "pid 811 from 192.0.2.1", "ok 811 mx:192.0.2.9:25 a:192.0.2.1::9", "end 811 status 9")
    texts = [f"tcpserver: {text}".encode() for text in said]
    lines = lines_of(*texts[:3], connect(811), texts[3], b"tcpsvd: info: status 0/30", b"tcpserver: fatal: no memory")
    for cut in range(len(lines) + 1):
        stream = match_cut(lines, cut)
        (row,) = stream.rows("sessions")
        assert (row["number"], row["ended"]) == (811, "killed") and not stream.state.sessions
        assert stream.counts == {"smtp_connect": 1, "smtp_gone": 1, "tcpserver": 4, "alert": 1}


def test_who_speaks_before_the_greeting_is_refused_by_two_words() -> None:
    stream = match_cut(lines_of(connect(1), b"smtp 1: refused early talker: 554_5.5.1_You_spoke"))
    (row,) = stream.rows("refusals")
    assert (row["verb"], row["address"], row["reply"]) == ("early talker", "", 554)


def test_a_refusal_names_the_client_of_a_session_that_began_before_the_log() -> None:
    refused = session_log.refused(1, b"RCPT <x@y.example>", RELAYING_DENIED, "2001:db8::7")
    stream = match_cut(lines_of(refused, b"smtp 2: refused RCPT <x@y.example>: 550_no"))
    assert [row["client"] for row in stream.rows("refusals")] == ["2001:db8::7", None]


def test_what_a_client_says_makes_no_other_line() -> None:
    for said in (b"RCPT <a b: 550_x>", b"x: y", b": ", b"", b"RCPT <" + b"a" * 5000 + b">"):
        event = parse_event(session_log.refused(1, said, RELAYING_DENIED, "192.0.2.1"))
        assert event is not None and event[0].name == "smtp_refused", said
        assert bytes(event[1][-2]).startswith(b"550_5.7.1_")
        assert event[1][-1] == b" client 192.0.2.1"


def test_etrn_and_atrn_are_counted() -> None:
    asked = [session_log.mail_turned(1, [b"a.example"], TURNING), session_log.mail_wanted(1, b"b.example", TURNING)]
    log = lines_of(connect(1), *asked, session_log.ended(1, "QUIT", 0, 0, 1))
    stream = match_cut(log)
    assert [row["ended"] for row in stream.rows("sessions")] == ["QUIT"]
    assert (stream.counts["smtp_atrn"], stream.counts["smtp_etrn"]) == (1, 1)
