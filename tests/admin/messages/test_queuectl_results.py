"""Last results that are hostile, and those of a dead nexthop; transcripts/results.txt has what else is shown."""

import json
import re
import time
from pathlib import Path

import pytest

from queue_admin.web.status_site import StatusSite
from queue_base.home import Home
from queue_wire.files.last_result import pack_header, pack_result
from support.inject.qmail_queue import snapshot
from support.processes.suite import wait_until
from support.queues.home import make_home
from support.queues.listed_queue import BIRTH, Queue
from support.queues.queued import classified_message
from support.send.control import file, long_id, queuectl
from support.send.scripted_send import ScriptedSend

GREY = b"192.0.2.1 does not like recipient.\nRemote host said: 450 4.2.0 <c@d>: Greylisted\nI'll try again.\n"
WHEN = 1_700_000_500


def put_results(queue: Queue, message: int, *results: bytes, birth: int = BIRTH) -> None:
    Path(queue.layout.hashed("last", message)).write_bytes(pack_header(birth) + b"".join(results))


def two_recipients(queue: Queue, birth: int = BIRTH) -> int:
    """A message with three remote recipients, one of them done, and one local; three have results."""
    message = queue.classified(b"a@b", b"Tjoe@me\0", b"Dx@y\0Tc@d\0Te@f\0")
    old = pack_result("remote", 5, WHEN - 100, b"d", b"old\n")
    done = pack_result("remote", 0, WHEN, b"y", b"of one that is done\n")
    put_results(queue, message, old, done, pack_result("remote", 5, WHEN, b"relay.example:26", GREY), birth=birth)
    return message


def test_a_hostile_reply_never_reaches_the_terminal_as_it_is(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    message = queue.classified(remote=b"Tc@d\0")
    put_results(queue, message, pack_result("remote", 0, WHEN, b"d", b"\x1b[2J\r\xff\xe2\x80\xae\0" + b"x" * 5000))
    for words in (["list"], ["show", str(message)], ["mailq"], ["list", "--format", "json"]):
        assert queue.run(*words) == 0
        text = capsys.readouterr().out
        assert "\\x1b" in text
        assert all(line.isprintable() and len(line) < 2000 for line in text.splitlines())


def test_reading_results_changes_nothing(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    message = two_recipients(queue)
    before = snapshot(Path(queue.home.path))
    for words in (["list"], ["show", str(message)], ["mailq"], ["list", "--format", "json"]):
        assert queue.run(*words) == 0
    assert snapshot(Path(queue.home.path)) == before


# mailq


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
