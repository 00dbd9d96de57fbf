"""queue-remote and a real Postfix as receiver: sizes, pipelining, TLS, and what postscreen thinks of our manners."""

import itertools

import pytest

from queue_wire.pipes.report import MESSAGE_SCOPE
from support.processes.remote_daemon import RemoteHome
from support.servers.postfix_services import POSTSCREEN, SIZE_LIMIT, SMTPD, TEXT, Services, deliver, letters

pytest_plugins = ["support.servers.peer_services"]
pytestmark = pytest.mark.together  # They share a Postfix.
MB = 1024 * 1024
SERVICES = {
    "strict": [
        SMTPD,
        "smtpd_forbid_unauth_pipelining=yes",
        "smtpd_data_restrictions=reject_unauth_pipelining",
        "strict_rfc821_envelopes=yes",
        "smtpd_helo_required=yes",
        "smtpd_helo_restrictions=reject_invalid_helo_hostname,reject_non_fqdn_helo_hostname",
    ],
    "lockstep": [
        SMTPD,
        "smtpd_discard_ehlo_keywords=pipelining",
        "smtpd_forbid_unauth_pipelining=yes",
        "smtpd_data_restrictions=reject_unauth_pipelining",
    ],
    "bare": [
        SMTPD,
        "smtpd_discard_ehlo_keywords=pipelining,size,etrn,8bitmime,dsn,enhancedstatuscodes,starttls,smtputf8,vrfy",
    ],
    "screened": [POSTSCREEN, "postscreen_greet_action=enforce", "postscreen_greet_wait=2s"],
    "searched": [
        POSTSCREEN,
        "postscreen_greet_wait=1s",
        "postscreen_greet_action=enforce",
        "postscreen_pipelining_enable=yes",
        "postscreen_pipelining_action=enforce",
        "postscreen_non_smtp_command_enable=yes",
        "postscreen_bare_newline_enable=yes",
        "postscreen_bare_newline_action=enforce",
        "postscreen_cache_map=",
    ],
}


def test_a_message_of_25_megabytes_arrives_as_it_is(peer_home: RemoteHome, services: Services) -> None:
    lines = [b".", b"", b"a line", b"x" * 900, b"..", b"From here on"]
    body = b"\n".join(itertools.islice(itertools.cycle(lines), 25 * MB * len(lines) // 924))
    text = b"Subject: large\n\n" + body[: 25 * MB] + b"\n"
    [report] = deliver(peer_home, services.postfix.port, text=text)
    assert letters(report) == b"K"
    [stored] = services.postfix.wait_for(1)
    assert stored.content == text


def test_a_message_over_its_size_limit_is_refused_before_it_is_sent(
    peer_home: RemoteHome, services: Services
) -> None:
    before = services.postfix.log()
    size = SIZE_LIMIT + 1
    [report] = deliver(peer_home, services.postfix.port, text=b"x" * (size - 2) + b"\n")
    assert report.scope == MESSAGE_SCOPE
    [(letter, text)] = report.verdicts
    assert letter == b"D"
    assert b"127.0.0.1 takes no message over %d bytes; this one has %d. (#5.3.4)" % (SIZE_LIMIT, size) in text
    # smtpd counts the commands of a session as it ends: there was no MAIL to refuse.
    assert " mail=" not in services.log_since(before)


def test_a_message_over_a_limit_that_is_not_announced_fails_at_its_end(
    peer_home: RemoteHome, services: Services
) -> None:
    [report] = deliver(peer_home, services.ports["bare"], text=(b"x" * 99 + b"\n") * (SIZE_LIMIT // 100 + 1000))
    assert (report.scope, letters(report)) == (MESSAGE_SCOPE, b"D")
    assert b"failed after I sent the message" in report.verdicts[0][1]
    assert b"552 " in report.verdicts[0][1]
    assert services.postfix.settle() == []


@pytest.mark.parametrize("service", ["strict", "lockstep", "bare"])
def test_ten_messages_on_one_connection_with_and_without_pipelining(
    peer_home: RemoteHome, services: Services, service: str
) -> None:
    before = services.postfix.log()
    reports = deliver(peer_home, services.ports[service], b"one@b.example", b"two@b.example", times=10)
    assert [letters(report) for report in reports] == [b"KK"] * 10
    stored = services.postfix.wait_for(20)
    assert {message.content for message in stored} == {TEXT}
    assert sorted(message.recipient for message in stored) == [b"one@b.example"] * 10 + [b"two@b.example"] * 10
    log = services.log_since(before)
    assert log.count(" connect from ") == 1
    assert "improper command pipelining" not in log


def test_it_says_quit_and_no_command_too_many(peer_home: RemoteHome, services: Services) -> None:
    before = services.postfix.log()
    deliver(peer_home, services.postfix.port, times=3)
    services.postfix.wait_for(3)
    log = services.log_since(before)
    assert "ehlo=2 starttls=1 mail=3 rcpt=3 data=3 quit=1 commands=13" in log


def test_starttls_is_used_with_a_certificate_that_nobody_vouches_for(
    peer_home: RemoteHome, services: Services
) -> None:
    before = services.postfix.log()
    [report] = deliver(peer_home, services.postfix.port)
    assert letters(report) == b"K"
    services.postfix.wait_for(1)
    assert "TLS connection established from " in services.log_since(before)


def test_postscreen_sees_nobody_who_talks_before_the_greeting(peer_home: RemoteHome, services: Services) -> None:
    before = services.postfix.log()
    [report] = deliver(peer_home, services.ports["screened"])
    assert letters(report) == b"K"
    services.postfix.wait_for(1)
    log = services.log_since(before, "PASS NEW [127.0.0.1]", "disconnect from ")
    assert "PREGREET" not in log


def test_postscreens_deep_tests_find_nothing_and_its_450_defers(peer_home: RemoteHome, services: Services) -> None:
    # It cannot hand a session over after those tests, so it asks who passes to come again.
    before = services.postfix.log()
    [report] = deliver(peer_home, services.ports["searched"])
    assert (report.scope, letters(report)) == (MESSAGE_SCOPE, b"Z")
    assert b"450 4.3.2 Service currently unavailable" in report.verdicts[0][1]
    # The two lines have no fixed order, and a look at the port when Postfix started has a DISCONNECT, too.
    log = services.log_since(before, "PASS NEW [127.0.0.1]", "DISCONNECT [127.0.0.1]")
    for offence in ("PREGREET", "COMMAND PIPELINING", "NON-SMTP COMMAND", "BARE NEWLINE"):
        assert offence not in log
