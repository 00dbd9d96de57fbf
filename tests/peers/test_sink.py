"""queue-remote and smtp-sink in each of its failing modes: the right verdict and scope, and the stage in the text.

Each mode runs with more jobs than one, so that what a failure leaves behind (a connection, a half-open
transaction) meets the next job; what smtp-sink took is what was reported as taken.
"""

import time

import pytest

from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.smtp.smtp_sink import SmtpSink

TEXT = b"Subject: hello\n\nA message.\n.with a dot\n"
JOBS = 3
# What tests of a timeout wait for, and what a busy machine may need for any other answer.
TIMEOUT = 3
PATIENCE = 60
pytestmark = pytest.mark.home("remote", timeoutremote=str(PATIENCE), connectionidle="20")

GREETING = "greeting failed"
NAME = "my name was rejected"
SENDER = "sender was rejected"
RECIPIENT = "does not like recipient"
DATA = "failed on DATA command"
MESSAGE = "failed after I sent the message"
HARD = "500 5.3.0 Error: command failed"
SOFT = "450 4.3.0 Error: command failed"


def outcomes(home: RemoteHome, *options: str, text: bytes = TEXT, jobs: int = JOBS) -> list[tuple[str, str, str]]:
    """Run jobs to smtp-sink one after the other; return (letter, scope, text) of each."""
    with SmtpSink(*options) as sink:
        home.route_all_to(sink.port)
        path = home.message(text)
        with RemoteDaemon(home) as daemon:
            reports = [daemon.deliver(path, b"to@b.example") for _ in range(jobs)]
            assert daemon.end() == (0, b"")
        came = [message.content for message in sink.messages()]
    found = [(report.verdicts[0][0], report.scope, report.verdicts[0][1]) for report in reports]
    # What it refuses at the message's end has come, too.
    at_the_end = any(option.startswith(".") for option in options)
    assert came == [text] * (jobs if at_the_end else [letter for letter, _, _ in found].count(b"K"))
    return [(letter.decode(), scope.decode(), text.decode()) for letter, scope, text in found]


REFUSALS = [
    ("CONNECT", "Z", "h", GREETING),
    ("EHLO,HELO", "Z", "h", NAME),
    ("MAIL", "D", "m", SENDER),
    ("RCPT", "D", "m", RECIPIENT),
    ("DATA", "D", "m", DATA),
    (".", "D", "m", MESSAGE),
]


@pytest.mark.parametrize(("command", "letter", "scope", "stage"), REFUSALS)
def test_a_command_refused_for_good(home: RemoteHome, command: str, letter: str, scope: str, stage: str) -> None:
    for found in outcomes(home, "-f", command):
        assert found[:2] == (letter, scope)
        assert stage in found[2]
        assert HARD in found[2]


@pytest.mark.parametrize(("command", "letter", "scope", "stage"), REFUSALS)
def test_a_command_refused_for_now(home: RemoteHome, command: str, letter: str, scope: str, stage: str) -> None:
    for found in outcomes(home, "-r", command):
        assert found[:2] == ("Z", scope)
        assert stage in found[2]
        assert SOFT in found[2]


@pytest.mark.parametrize("command", ["EHLO", "HELO", "VRFY", "NOOP", "RSET", "QUIT"])
def test_a_refusal_of_what_a_delivery_can_do_without_loses_nothing(home: RemoteHome, command: str) -> None:
    assert [found[:2] for found in outcomes(home, "-f", command)] == [("K", "m")] * JOBS


@pytest.mark.parametrize("refusal", ["-f", "-r", "-q", "-Q"])
def test_a_refusal_of_rset_after_a_refused_recipient_costs_a_new_connection_only(
    home: RemoteHome, refusal: str
) -> None:
    # Where every RCPT is refused, DATA is too; each job after the first begins with RSET, and has its own answer.
    for found in outcomes(home, "-f", "RCPT", refusal, "RSET"):
        assert found[:2] == ("D", "m")
        assert RECIPIENT in found[2]


@pytest.mark.parametrize(
    ("command", "scope", "stage"),
    [
        ("CONNECT", "h", "greeting"),
        ("EHLO,HELO", "h", "HELO"),
        ("MAIL", "m", "MAIL"),
        ("RCPT", "m", "RCPT"),
        ("DATA", "m", "DATA"),
        (".", "m", "end of message"),
    ],
)
def test_a_connection_that_ends_at_a_command(home: RemoteHome, command: str, scope: str, stage: str) -> None:
    for found in outcomes(home, "-q", command):
        assert found[:2] == ("Z", scope)
        assert f"At {stage}: it closed the connection" in found[2]
        assert ("Possible duplicate" in found[2]) == (stage == "end of message")


@pytest.mark.parametrize("command", ["EHLO", "QUIT", "NOOP"])
def test_a_connection_that_ends_where_a_delivery_can_go_on_without_it(home: RemoteHome, command: str) -> None:
    assert [found[:2] for found in outcomes(home, "-q", command)] == [("K", "m")] * JOBS


@pytest.mark.parametrize(
    ("command", "scope", "stage"),
    [
        ("CONNECT", "h", GREETING),
        ("EHLO", "h", NAME),
        ("MAIL", "h", SENDER),
        ("RCPT", "m", RECIPIENT),
        ("DATA", "m", DATA),
        (".", "m", MESSAGE),
    ],
)
def test_421_at_a_command(home: RemoteHome, command: str, scope: str, stage: str) -> None:
    for found in outcomes(home, "-Q", command):
        assert found[:2] == ("Z", scope)
        assert stage in found[2]
        assert "Remote host said: 421 " in found[2]


@pytest.mark.parametrize(
    ("command", "scope"),
    [("CONNECT", "h"), ("EHLO", "h"), ("MAIL", "m"), ("RCPT", "m"), ("DATA", "m"), (".", "m")],
)
def test_a_delay_beyond_the_timeout(home: RemoteHome, command: str, scope: str) -> None:
    home.control("timeoutremote", str(TIMEOUT))
    begun = time.monotonic()
    # With pipelining, smtp-sink goes on to the next command while it delays one.
    [found] = outcomes(home, "-p", "-W", f"{command}:60", jobs=1)
    assert time.monotonic() - begun < 10 * TIMEOUT
    stage = {"CONNECT": "greeting", ".": "end of message"}.get(command, command)
    assert found[:2] == ("Z", scope)
    assert f"At {stage}: no answer in time" in found[2]


def test_a_delay_that_is_shorter_than_the_timeout_is_waited_for(home: RemoteHome) -> None:
    begun = time.monotonic()
    [found] = outcomes(home, "-p", "-w", "1", jobs=1)
    assert found[:2] == ("K", "m")
    assert time.monotonic() - begun >= 1


def test_a_delay_of_data_beyond_the_timeout(home: RemoteHome) -> None:
    home.control("timeoutremote", str(TIMEOUT))
    [found] = outcomes(home, "-p", "-w", "60", jobs=1)
    assert found[:2] == ("Z", "m")
    assert "At DATA: no answer in time" in found[2]


MODES = [("-8",), ("-p",), ("-e",), ("-P",), ("-E", "-N", "-a"), ("-T", "1000"), ("-8", "-p"), ("-h", "other.example")]


@pytest.mark.parametrize("options", MODES, ids=" ".join)
def test_a_server_that_can_do_less_gets_the_same_message(home: RemoteHome, options: tuple[str, ...]) -> None:
    assert [found[:2] for found in outcomes(home, *options)] == [("K", "m")] * JOBS
