"""queue-report build on real logs: batch by batch as they grow, and logs that cannot be read."""

import os
from pathlib import Path

import pytest

from queue_base.errors import Permanent, Temporary
from queue_report.commands.summary import print_build
from queue_report.lake.build import Summary
from queue_report.lake.lake import open_lake
from queue_report.match import State, smtp_log
from queue_report.schema.columns import COLUMNS
from support.spark.logs.log_lake import Lake

# Each line with its stamp's nanoseconds; one second, 2023-11-14.
EVENTS = [
    "new msg 457",
    "info msg 457: bytes 2310 from <a@example.org> qp 8123 uid 1000",
    "starting delivery 9: msg 457 to remote b@Example.NET",
    "delivery 9: deferral: 192.0.2.1_does_not_like_recipient./Remote_host_said:_451_4.7.1_later/",
    "starting delivery 10: msg 457 to remote b@Example.NET",
    "what is this",
    "delivery 10: success: 192.0.2.1_accepted_message./",
    "end msg 457",
]
# What delta-rs takes for another path.
REFUSED = "%#?\\"
LINES = [f"@400000006553f10a{100 + at:08x} {event}\n" for at, event in enumerate(EVENTS)]


def run(logs: Path, lake: Path) -> Summary:
    return Lake(lake).build(logs)


def test_a_log_that_grows_and_is_rotated_is_read_once(tmp_path: Path) -> None:
    log, lake = tmp_path / "logs" / "a" / "q", tmp_path / "lake"
    log.mkdir(parents=True)
    (log / "current").write_text("".join(LINES[:3]) + LINES[3][:40])
    run(tmp_path / "logs", lake)
    tables = Lake(lake)
    assert not tables.rows("messages")
    assert sorted(row["what"] for row in tables.rows("pending")) == ["delivery", "message"]
    (log / "current").write_text("".join(LINES[:7]))
    (log / "current").rename(log / "@400000006553f10a00000200.s")
    (log / "current").write_text(LINES[7])
    summary = run(tmp_path / "logs", lake)
    (message,) = tables.rows("messages")
    wanted = ("id", "outcome", "successes", "deferrals")
    assert [message[name] for name in wanted] == [457, "delivered", 1, 1]
    deliveries = sorted(tables.rows("deliveries"), key=lambda row: row["delivery"])
    assert [(one["result"], one["code"], one["domain"]) for one in deliveries] == [
        ("deferral", "4.7.1", "example.net"),
        ("success", "", "example.net"),
    ]
    (unread,) = tables.rows("quarantine")
    assert (unread["text"], unread["line"]) == (LINES[5].rstrip("\n"), 6)
    assert not tables.rows("pending") and summary.lines["quarantine"] == 1
    assert run(tmp_path / "logs", lake).rows == {}


def test_the_log_of_queue_smtpd_is_read_beside_that_of_its_queue(tmp_path: Path) -> None:
    log, other = tmp_path / "queue", tmp_path / "queue-smtpd"
    log.mkdir()
    (log / "current").write_text("".join(LINES))
    lake = Lake(tmp_path / "lake")
    summary = lake.build(log, smtpd_log=str(other))
    (warning,) = summary.warnings
    assert warning.startswith(f"unable to read logs {other}: ") and "no such file or directory; the rest was" in warning
    assert len(lake.rows("messages")) == 1
    other.mkdir()
    stamp = LINES[0][:26]
    (other / "current").write_text(f"{stamp}smtp 1: connect 192.0.2.1:4 unknown to 192.0.2.2:25\n")
    assert lake.build(log, smtpd_log=str(other)).lines == {"smtp_connect": 1}
    with (other / "current").open("a") as file:
        file.write(f"{stamp}smtp 1: refused RCPT <a@b>: 550_5.1.1_No\n{stamp}smtp 1: end QUIT: messages 0 errors 1 ")
        file.write("seconds 3\n")
    assert lake.build(log, smtpd_log=str(other)).warnings == []
    (session,), (refusal,) = lake.rows("sessions"), lake.rows("refusals")
    place = ("localhost", "queue-smtpd")
    assert (session["host"], session["queue"], session["client"], session["ended"]) == (*place, "192.0.2.1", "QUIT")
    assert (refusal["key"], refusal["code"]) == (session["key"], "5.1.1")
    assert lake.rows("messages")[0]["queue"] == "queue" and not lake.rows("pending")
    assert lake.build(log, smtpd_log=str(other)).rows == {}


def test_a_line_on_which_the_rules_fail_costs_its_own_queue_alone_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue in "one", "two":
        (tmp_path / "logs" / queue).mkdir(parents=True)
        (tmp_path / "logs" / queue / "current").write_text("".join(LINES))
    with (tmp_path / "logs" / "two" / "current").open("a") as file:
        file.write(f"{LINES[-1][:26]}smtp 1: queued 457-tk3x2a bytes 7 recipients 1\n")
    monkeypatch.setattr(smtp_log, "born_of", {}.__getitem__)
    lake = Lake(tmp_path / "lake")
    summary = lake.build(tmp_path / "logs", host="mx")
    (warning,) = summary.warnings
    assert "queue two of host mx is left as it was: unable to match" in warning and "KeyError: b'457-tk3x2a'" in warning
    assert [row["queue"] for row in lake.rows("messages")] == ["one"]
    assert {row["queue"] for table in COLUMNS for row in lake.rows(table)} == {"one"}
    with pytest.raises(Temporary, match=r"^unable to match every queue"):
        print_build(summary)
    monkeypatch.undo()
    lake.build(tmp_path / "logs", host="mx")
    assert sorted(row["queue"] for row in lake.rows("messages")) == ["one", "two"]


@pytest.mark.parametrize("method", ["take_slices", "mark", "unpack"])
def test_a_bug_at_the_ends_of_a_log_costs_its_own_queue_alone(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue in "one", "two", "three":
        (tmp_path / "logs" / queue).mkdir(parents=True)
        (tmp_path / "logs" / queue / "current").write_text("".join(LINES).replace("a@example", f"{queue}@example"))
    lake, original = Lake(tmp_path / "lake"), getattr(State, method)

    def fail(state: object, *rest: object) -> object:
        queue = state.queue if isinstance(state, State) else rest[0]
        if queue == "two":
            raise OverflowError("too large")
        return original(state, *rest)

    monkeypatch.setattr(State, method, staticmethod(fail) if method == "unpack" else fail)
    (warning,) = lake.build(tmp_path / "logs", host="mx").warnings
    assert "queue two of host mx is left as it was: unable to match it: OverflowError: too large" in warning
    assert {row["queue"] for table in COLUMNS for row in lake.rows(table)} == {"one", "three"}
    monkeypatch.undo()
    lake.build(tmp_path / "logs", host="mx")
    assert sorted(row["queue"] for row in lake.rows("messages")) == ["one", "three", "two"]


@pytest.mark.parametrize("bad", ["a", "b", "c"])
def test_logs_of_another_kind_among_good_ones_are_passed_by(tmp_path: Path, bad: str) -> None:
    for host in "abc":
        (tmp_path / "logs" / host / "q").mkdir(parents=True)
        good = "".join(LINES).replace("a@example", f"{host}@example")
        text = "Jan  2 03:04:05 a postfix/smtp[1]: hello\n" * 10 if host == bad else good
        (tmp_path / "logs" / host / "q" / "current").write_text(text)
    lake = Lake(tmp_path / "lake")
    for _ in range(2):
        (warning,) = lake.build(tmp_path / "logs").warnings
        assert f"queue q of host {bad} is left as it was" in warning and "its lines have no TAI64N stamps" in warning
        assert sorted(row["host"] for row in lake.rows("messages")) == sorted({"a", "b", "c"} - {bad})


def test_logs_that_cannot_be_read_are_permanent_trouble_and_make_no_table(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    missing = r"^unable to read logs \S+/missing: no such file or directory; the lake is as it was$"
    with pytest.raises(Permanent, match=missing):
        run(tmp_path / "missing", lake)
    (tmp_path / "empty").mkdir()
    with pytest.raises(Permanent, match=r"^unable to read logs \S+/empty: it has no log files; "):
        run(tmp_path / "empty", lake)
    (tmp_path / "syslog").mkdir()
    (tmp_path / "syslog" / "mail.log").write_text("Jan  2 03:04:05 a postfix/smtp[1]: hello\n")
    with pytest.raises(Permanent, match=r"^unable to read logs \S+/syslog: \S+/syslog/mail\.log: its lines"):
        run(tmp_path / "syslog", lake)
    assert not any(open_lake(str(lake)).tables.values())


def test_logs_hosts_queues_and_lakes_may_have_any_name(tmp_path: Path) -> None:
    odd = "a b%41[x]*#ü{c}?&+'\"\\d:e"
    log = tmp_path / f"logs {odd}" / f"h{odd}" / f"q{odd}"
    lake = tmp_path / f"lake {''.join(letter for letter in odd if letter not in REFUSED)}"
    log.mkdir(parents=True)
    # One file is read in place, the other as a copy.
    (log / "@400000006553f10a00000200.s").write_text("".join(LINES[:4]))
    (log / "current").write_text("".join(LINES[4:]))
    run(log.parents[1], lake)
    (message,) = Lake(lake).rows("messages")
    assert (message["host"], message["queue"], message["outcome"]) == (f"h{odd}", f"q{odd}", "delivered")
    assert run(log.parents[1], lake).rows == {}


@pytest.mark.parametrize("letter", REFUSED)
def test_a_lake_whose_path_delta_rs_takes_for_another_is_refused(tmp_path: Path, letter: str) -> None:
    log = tmp_path / "logs" / "h" / "q"
    log.mkdir(parents=True)
    (log / "current").write_text("".join(LINES))
    with pytest.raises(Permanent, match=r"^unable to open lake \S+: its path has ., which delta-rs takes for another$"):
        run(tmp_path / "logs", tmp_path / f"a{letter}b")
    assert os.listdir(tmp_path) == ["logs"]
