"""show, list and mailq: the last result of each recipient, why it is still here; never that of another message."""

import json
import re
import time
from pathlib import Path

import pytest

from queue_admin.web.status_site import StatusSite
from queue_base.home import Home
from queue_wire.files.hold_mark import HoldOrder, order_mark, pack_mark
from queue_wire.files.last_result import pack_header, pack_result
from queue_wire.ids import pack_long_id
from support.inject.qmail_queue import snapshot
from support.processes.suite import wait_until
from support.queues.home import make_home
from support.queues.listed_queue import BIRTH, Queue, lines
from support.queues.queued import classified_message
from support.send.control import file, long_id, queuectl
from support.send.scripted_send import ScriptedSend

GREY = b"192.0.2.1 does not like recipient.\nRemote host said: 450 4.2.0 <c@d>: Greylisted\nI'll try again.\n"
WHEN = 1_700_000_500


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue(tmp_path / "home")


def put_results(queue: Queue, message: int, *results: bytes, birth: int = BIRTH) -> None:
    Path(queue.layout.hashed("last", message)).write_bytes(pack_header(birth) + b"".join(results))


def two_recipients(queue: Queue, birth: int = BIRTH) -> int:
    """A message with three remote recipients, one of them done, and one local; three have results."""
    message = queue.classified(b"a@b", b"Tjoe@me\0", b"Dx@y\0Tc@d\0Te@f\0")
    old = pack_result("remote", 5, WHEN - 100, b"d", b"old\n")
    done = pack_result("remote", 0, WHEN, b"y", b"of one that is done\n")
    put_results(queue, message, old, done, pack_result("remote", 5, WHEN, b"relay.example:26", GREY), birth=birth)
    return message


def test_show_has_the_last_result_of_each_recipient_that_is_left(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    message = two_recipients(queue)
    assert queue.run("show", str(message)) == 0
    shown = lines(capsys)
    at = shown.index("remote: 1 done, 2 left; next attempt 2096-10-02T07:06:40Z")
    assert shown[at + 1 : at + 5] == [
        "  done <x@y>",
        "  pending <c@d>",
        "    2023-11-14T22:21:40Z relay.example:26: 192.0.2.1 does not like recipient. / Remote host said: 450 4.2.0"
        " <c@d>: Greylisted / I'll try again.",
        "  pending <e@f>",
    ]


def test_json_has_each_recipient_with_its_result(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    message = two_recipients(queue)
    expected = [
        ("joe@me", "local", False, None, None), ("x@y", "remote", True, None, None),
        ("c@d", "remote", False, "2023-11-14T22:21:40Z", "relay.example:26"), ("e@f", "remote", False, None, None),
    ]  # fmt: skip
    for words in (["list", "--format", "json"], ["show", str(message), "--format", "json"]):
        assert queue.run(*words) == 0
        (line,) = lines(capsys)
        found = json.loads(line)
        assert [
            (each["address"], each["channel"], each["done"], each["time"], each["nexthop"])
            for each in found["recipients"]
        ] == expected
        assert found["last"] == "450 4.2.0 <c@d>: Greylisted I'll try again."
        assert [each["reason"] is None for each in found["recipients"]] == [True, True, False, True]
    assert found["now"] == ["queue-send does not run; nothing is tried"]
    assert found["failed"] == [] and found["files"][0].startswith("mess/")


def test_list_ends_with_the_short_reason_of_the_newest_deferral(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    two_recipients(queue)
    assert queue.run("list") == 0
    (line,) = lines(capsys)
    assert line.endswith(" next 2096-10-02T07:06:40Z, last: 450 4.2.0 <c@d>: Greylisted I'll try again.")


def test_the_results_of_an_earlier_message_with_the_number_are_never_shown(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    message = two_recipients(queue, birth=BIRTH - 1)
    for words in (["list"], ["show", str(message)], ["mailq"], ["list", "--format", "json"]):
        assert queue.run(*words) == 0
        assert "Greylisted" not in capsys.readouterr().out


def test_a_hostile_reply_never_reaches_the_terminal_as_it_is(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    message = queue.classified(remote=b"Tc@d\0")
    put_results(queue, message, pack_result("remote", 0, WHEN, b"d", b"\x1b[2J\r\xff\xe2\x80\xae\0" + b"x" * 5000))
    for words in (["list"], ["show", str(message)], ["mailq"], ["list", "--format", "json"]):
        assert queue.run(*words) == 0
        text = capsys.readouterr().out
        assert "\\x1b" in text
        assert all(line.isprintable() and len(line) < 2000 for line in text.splitlines())


@pytest.mark.parametrize("data", [b"", b"junk", pack_header(BIRTH) + b"remote 0 5", pack_header(BIRTH)[:20]])
def test_a_file_that_a_crash_has_cut_hides_nothing_else(
    queue: Queue, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    message = queue.classified(remote=b"Tc@d\0")
    Path(queue.layout.hashed("last", message)).write_bytes(data)
    assert queue.run("show", str(message)) == 0
    assert "  pending <c@d>" in lines(capsys)


def test_reading_results_changes_nothing(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    message = two_recipients(queue)
    before = snapshot(Path(queue.home.path))
    for words in (["list"], ["show", str(message)], ["mailq"], ["list", "--format", "json"]):
        assert queue.run(*words) == 0
    assert snapshot(Path(queue.home.path)) == before


# mailq


def test_an_empty_queue_is_said_so_as_postfix_does(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    queue.mess()  # It is not queued yet.
    assert queue.run("mailq") == 0
    assert capsys.readouterr().out == "Mail queue is empty\n"


def test_mailq_has_the_form_of_postfix(
    queue: Queue, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    message = two_recipients(queue)
    assert queue.run("mailq") == 0
    # showq_compat.c: "%-17s %8ld %19.19s %s", "%-17s %8s %-19s %s", and the reason up to column 76, with parentheses.
    assert capsys.readouterr().out.split("\n") == [
        "----Queue ID----- --Size-- ---Arrival Time---- --Sender/Recipient------",
        f"{pack_long_id(message, BIRTH):<17} {18:8d} Tue Nov 14 22:13:20 a@b",
        " " * 47 + "joe@me",
        "(450 4.2.0 <c@d>: Greylisted I'll try again.)".rjust(78),
        " " * 47 + "c@d",
        "(reason unavailable)".rjust(78),
        " " * 47 + "e@f",
        "",
        "-- 0 Kbytes in 1 Request.",
        "",
    ]


def test_mailq_marks_what_is_due_and_what_is_on_hold_and_counts(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    queued, due = queue.queued(b""), queue.classified(remote=b"Tc@d\0", due=5)
    deferred, held = queue.classified(remote=b"Tc@d\0"), queue.classified(remote=b"Tc@d\0")
    queue.put(queue.layout.hashed("hold", held), b"ask Jo\n")
    gone = queue.classified(remote=b"Tc@d\0")
    queue.put(queue.layout.hashed("hold", gone), pack_mark(order_mark(HoldOrder.DELETE)))
    assert queue.run("mailq") == 0
    shown = lines(capsys)
    ids = {line.split()[0] for line in shown if re.match(r"^[0-9A-F]", line)}
    name = {message: pack_long_id(message, BIRTH) for message in (queued, due, deferred, held)}
    assert ids == {f"{name[queued]}*", f"{name[due]}*", name[deferred], f"{name[held]}!"}
    assert shown[-1] == "-- 0 Kbytes in 4 Requests."
    assert "(ask Jo)".rjust(78) in shown
    assert [line.split()[-1] for line in shown if line.startswith(f"{name[queued]}*")] == ["MAILER-DAEMON"]


def test_check_scripts_read_the_last_line(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        queue.put(queue.layout.mess(queue.classified(remote=b"Tc@d\0")), b"x" * 3000)
    assert queue.run("mailq") == 0
    shown = capsys.readouterr().out
    # monitoring-plugins' check_mailq, and Zabbix's and collectd's scripts.
    found = re.search(r"^-- (\d+) Kbytes in (\d+) Request", shown, re.MULTILINE)
    assert found is not None and found.groups() == ("8", "3")
    assert re.search(r"Kbytes in (\d+)", shown.splitlines()[-1])
    assert len(re.findall(r"(?m)^[A-F0-9]", shown)) == 3


def test_mail_of_a_dead_nexthop_that_was_never_tried_keeps_its_reason_after_the_end_of_queue_send(
    tmp_path: Path,
) -> None:
    home: Home = make_home(tmp_path / "home")
    for name in ("destinationcohorts", "destinationinitial"):
        Path(home.control, name).write_text("1\n")
    messages = [classified_message(home, remote=[b"b@dead.example"]) for _ in range(3)]
    with ScriptedSend(home) as send:
        send.remote.report(send.remote.job(), b"Zconnection refused\n", scope=b"h")
        wait_until(lambda: all(file(home, "remote", one).stat().st_mtime > time.time() for one in messages), why="due")
        wait_until(lambda: all(file(home, "last", one).exists() for one in messages), why="the records")
        suspended = "delivery temporarily suspended: dead.example is dead: connection refused"
        shown = queuectl(home, "list").stdout
        assert shown.count(f"last: {suspended}\n") == 2 and shown.count("last: connection refused\n") == 1
        assert queuectl(home, "mailq").stdout.count(f"({suspended})") == 2
        # So do all commands and pages that show the destination, and what waits for it without a result of its own.
        *_, row = queuectl(home, "destinations", "dead.example").stdout.splitlines()
        assert row.split()[:3] == ["remote", "dead.example", "dead"] and row.endswith("  -  connection refused")
        *_, facts = queuectl(home, "destinations", "--format", "json").stdout.splitlines()
        assert json.loads(facts)["reason"] == "connection refused"
        kept = {path: path.read_bytes() for path in (file(home, "last", one) for one in messages)}
        for path in kept:
            path.unlink()
        assert queuectl(home, "mailq").stdout.count(f"({suspended})") == 3
        for path, data in kept.items():
            path.write_bytes(data)
        site = StatusSite(home)
        for page in ("/", "/destinations"):
            assert "<bdi>connection refused</bdi>" in site.answer(page, "").body.decode(), page
        send.kill()
    assert queuectl(home, "mailq").stdout.count(f"({suspended})") == 2
    assert long_id(home, messages[0]) in queuectl(home, "mailq").stdout
