"""What qmailanalog's matchup makes of a log, reckoned by hand: births, ends, bytes and the counts nk, nd and nz.

matchup prints `m birth done bytes nk nd nz qp uid sender` for a message and `d result birth done start …` for a
delivery. All logs here are batches of one pass, each on a host of its own.
"""

from pathlib import Path

from support.spark.logs.log_files import lines_of, write_files
from support.spark.logs.log_lake import Lake
from support.spark.logs.log_rows import Truth

DAY = 1_700_000_000
# By host: seconds after DAY, and the line.
LOGS: dict[str, list[tuple[float, str]]] = {
    # qmail-send's manual page, with a deferral and a failure more.
    "plain": [
        (0, "status: local 0/10 remote 0/20"),
        (1, "new msg 53"),
        (1.5, "info msg 53: bytes 1414 from <ann@a.example> qp 20345 uid 666"),
        (2, "starting delivery 1: msg 53 to local bob@b.example"),
        (2, "status: local 1/10 remote 0/20"),
        (2.25, "starting delivery 2: msg 53 to remote carl@c.example"),
        (2.25, "status: local 1/10 remote 1/20"),
        (3, "delivery 1: success: did_1+0+0/"),
        (3, "status: local 0/10 remote 1/20"),
        (4, "delivery 2: deferral: Connected_to_192.0.2.1_but_greeting_failed./"),
        (4, "status: local 0/10 remote 0/20"),
        (400, "starting delivery 3: msg 53 to remote carl@c.example"),
        (401, "delivery 3: report mangled, will defer"),
        (1400, "starting delivery 4: msg 53 to remote carl@c.example"),
        (1402, "delivery 4: failure: 192.0.2.1_does_not_like_recipient./"),
        (1403, "bounce msg 53 qp 20399"),
        (1403, "end msg 53"),
        (1403, "new msg 53"),
        (1403, "info msg 53: bytes 2000 from <> qp 20399 uid 1001"),
        (1404, "starting delivery 5: msg 53 to remote ann@a.example"),
        (1405, "delivery 5: success: ok/"),
        (1405, "end msg 53"),
    ],
    # Two messages are older than the log. Of 7 nothing is told but its end, and a result has no start.
    "middle": [
        (0, "delivery 90: success: ok/"),
        (1, "starting delivery 91: msg 8 to local x@y.example"),
        (2, "end msg 7"),
        (3, "delivery 91: success: did_0+0+1/"),
        (4, "end msg 8"),
    ],
    # Delivery 1 is in flight at the crash, and started again as delivery 1 of the next run.
    "crash": [
        (0, "status: local 0/10 remote 0/20"),
        (1, "new msg 5"),
        (1, "info msg 5: bytes 10 from <a@b> qp 1 uid 2"),
        (1, "starting delivery 1: msg 5 to remote x@y.example"),
        (1, "status: local 0/10 remote 1/20"),
        (60, "status: local 0/10 remote 0/20"),
        (61, "starting delivery 1: msg 5 to remote x@y.example"),
        (62, "delivery 1: success: ok/"),
        (62, "end msg 5"),
        (62, "end msg 5"),
    ],
    # A bounce of a bounce of a bounce: the last is discarded.
    "triple": [
        (0, "new msg 1"),
        (0, "info msg 1: bytes 100 from <a@b> qp 11 uid 1"),
        (1, "starting delivery 1: msg 1 to remote x@y.example"),
        (2, "delivery 1: failure: no/"),
        (2, "bounce msg 1 qp 12"),
        (2, "end msg 1"),
        (3, "new msg 2"),
        (3, "info msg 2: bytes 200 from <> qp 12 uid 1"),
        (4, "starting delivery 2: msg 2 to remote a@b"),
        (5, "delivery 2: failure: no/"),
        (5, "bounce msg 2 qp 13"),
        (5, "end msg 2"),
        (6, "new msg 1"),
        (6, "info msg 1: bytes 300 from <#@[]> qp 13 uid 1"),
        (7, "starting delivery 3: msg 1 to local postmaster@b"),
        (8, "delivery 3: failure: no/"),
        (8, "triple bounce: discarding bounce/1"),
        (8, "end msg 1"),
    ],
}
# By host: m birth done bytes nk nd nz qp uid sender, and what we add: key of what it reports, its outcome.
MESSAGES = {
    "plain": [
        (1, 1403, 1414, 1, 1, 2, 20345, 666, "ann@a.example", None, "partly"),
        (1403, 1405, 2000, 1, 0, 0, 20399, 1001, "", "53.1700000001000000000", "delivered"),
    ],
    "middle": [(None, 4, None, 1, 0, 0, None, None, None, None, "delivered")],
    "crash": [(1, 62, 10, 1, 0, 0, 1, 2, "a@b", None, "delivered")],
    "triple": [
        (0, 2, 100, 0, 1, 0, 11, 1, "a@b", None, "bounced"),
        (3, 5, 200, 0, 1, 0, 12, 1, "", "1.1700000000000000000", "bounced"),
        (6, 8, 300, 0, 1, 0, 13, 1, "#@[]", "2.1700000003000000000", "discarded"),
    ],
}
# By host: result, start, done, channel and recipient.
DELIVERIES = {
    "plain": [
        ("success", 2, 3, "local", "bob@b.example"),
        ("deferral", 2.25, 4, "remote", "carl@c.example"),
        ("mangled", 400, 401, "remote", "carl@c.example"),
        ("failure", 1400, 1402, "remote", "carl@c.example"),
        ("success", 1404, 1405, "remote", "ann@a.example"),
    ],
    "middle": [("success", 1, 3, "local", "x@y.example")],
    "crash": [("lost", 1, None, "remote", "x@y.example"), ("success", 61, 62, "remote", "x@y.example")],
    "triple": [
        ("failure", 1, 2, "remote", "x@y.example"),
        ("failure", 4, 5, "remote", "a@b"),
        ("failure", 7, 8, "local", "postmaster@b"),
    ],
}


def seconds(time_ns: int | None) -> float | None:
    return None if time_ns is None else (time_ns - DAY * 10**9) / 10**9


def read_logs(directory: Path) -> Truth:
    """Return the tables of all logs."""
    for host, log in LOGS.items():
        text = b"".join(lines_of((DAY * 10**9 + int(at * 10**9), line) for at, line in log))
        write_files(directory / "logs" / host / "main", [("current", text)])
    lake = Lake(directory / "lake")
    lake.feed(directory / "logs")
    return lake.truth()


# One test, because the tables take many seconds, and single tests of them may run in several processes.
def test_messages_and_deliveries_are_those_of_matchup_and_nothing_is_left(tmp_path: Path) -> None:
    tables = read_logs(tmp_path)
    for host in LOGS:
        messages = sorted((row for row in tables.messages if row.host == host), key=lambda row: row.done_ns or 0)
        assert [
            (
                *(seconds(row.birth_ns), seconds(row.done_ns), row.bytes, row.successes, row.failures, row.deferrals),
                *(row.qp, row.uid, row.sender, row.bounce_of, row.outcome),
            )
            for row in messages
        ] == MESSAGES[host], host
        deliveries = sorted((row for row in tables.deliveries if row.host == host), key=lambda row: row.start_ns)
        assert [
            (row.result, seconds(row.start_ns), seconds(row.done_ns), row.channel, row.recipient) for row in deliveries
        ] == DELIVERIES[host], host
    assert (tables.waiting, tables.flying, tables.quarantine) == ([], [], [])
    # Where matchup has the birth.
    assert {seconds(row.info_ns) for row in tables.messages if row.host == "plain"} == {1.5, 1403}
