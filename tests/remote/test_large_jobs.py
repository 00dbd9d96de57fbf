"""queue-remote takes the largest job that queue-send makes, and queue-send makes none that is larger."""

from pathlib import Path

import pytest

from queue_base.home import Home
from queue_remote import report_text
from queue_send.config import read_controls
from queue_smtp.reply import TEXT_MAX, Reply
from queue_wire.files.envelope import ADDRESS_MAX
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.report import MESSAGE_SCOPE, PERMANENT, Report, pack_report, unpack_report
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.queues.home import make_home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path / "home")


def test_a_job_of_the_most_and_longest_recipients_is_answered(tmp_path: Path) -> None:
    home = RemoteHome(tmp_path)
    home.control("smtproutes", ":127.0.0.1:1")
    recipients = [b"%04d" % number + b"a" * (ADDRESS_MAX - 14) + b"@b.example" for number in range(1100)]
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(home.message(b"Subject: x\n\ny\n"), *recipients)
        assert [letter for letter, _ in report.verdicts] == [b"D"] * 1100
        assert daemon.end() == (0, b"")


def test_no_control_file_makes_a_job_of_more_than_1000_recipients(home: Home) -> None:
    path = Path(home.control, "destinationrecipients")
    path.write_text("1000\n")
    assert read_controls(home).destinations.recipients == 1000
    path.write_text("1001\n")
    said: list[str] = []
    assert read_controls(home, said.append).destinations.recipients == 50
    assert [f"unable to parse {path} line 1: not a number from 1 to 1000: '1001'" in line for line in said] == [True]


def test_the_report_of_such_a_job_with_the_longest_replies_is_one_that_queue_send_takes() -> None:
    refusal = report_text.recipient_rejected(b"192.0.2.1 (%s)" % (b"x" * 253), Reply(550, b"x" * TEXT_MAX))
    report = Report(1, MESSAGE_SCOPE, [(PERMANENT, refusal + report_text.giving_up(b"x" * 300))] * 1000)
    reader = NetstringReader()
    reader.feed(pack_report(report))
    payload = reader.next()
    assert payload is not None
    assert unpack_report(payload) == report
