"""queue-remote and the refusals of a real Postfix: by recipient, for now, with 421, for too much of something."""

import pytest

from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.postfix_services import SMTPD, TEXT, Services, deliver, letters

pytest_plugins = ["support.servers.peer_services"]
pytestmark = pytest.mark.together  # They share a Postfix.
SERVICES = {
    "choosy": [
        SMTPD,
        "smtpd_recipient_restrictions=check_recipient_access,inline:{{no@b.example=550 5.7.1 not here},"
        "{grey@b.example=451 4.7.1 greylisted; come back in 5 minutes},{gone@b.example=421 4.7.0 go away}},permit",
    ],
    "few": [SMTPD, "smtpd_recipient_limit=3"],
    "short": [
        SMTPD,
        "smtpd_hard_error_limit=4",
        "smtpd_error_sleep_time=0",
        "smtpd_recipient_restrictions=check_recipient_access,inline:{{ok@b.example=OK}},reject",
    ],
    "impatient": [SMTPD, "smtpd_timeout=1s"],
}


def test_each_recipient_has_its_own_verdict(peer_home: RemoteHome, services: Services) -> None:
    who = [b"yes@b.example", b"no@b.example", b"grey@b.example", b"also@b.example"]
    [report] = deliver(peer_home, services.ports["choosy"], *who)
    assert (report.scope, letters(report)) == (MESSAGE_SCOPE, b"KDZK")
    assert b"550 5.7.1 <no@b.example>: Recipient address rejected: not here" in report.verdicts[1][1]
    assert b"451 4.7.1 <grey@b.example>: Recipient address rejected: greylisted" in report.verdicts[2][1]
    stored = services.postfix.wait_for(2)
    assert sorted(message.recipient for message in stored) == [b"also@b.example", b"yes@b.example"]


def test_nobody_accepted_leaves_the_connection_good(peer_home: RemoteHome, services: Services) -> None:
    before = services.postfix.log()
    reports = deliver(peer_home, services.ports["choosy"], b"no@b.example", b"grey@b.example", times=3)
    assert [(report.scope, letters(report)) for report in reports] == [(MESSAGE_SCOPE, b"DZ")] * 3
    assert services.log_since(before).count(" connect from ") == 1
    assert services.postfix.settle() == []


def test_421_to_a_recipient_defers_all_and_the_next_job_connects_anew(
    peer_home: RemoteHome, services: Services
) -> None:
    who = [b"yes@b.example", b"gone@b.example", b"late@b.example"]
    reports = deliver(peer_home, services.ports["choosy"], *who, times=2)
    assert [(report.scope, letters(report)) for report in reports] == [(MESSAGE_SCOPE, b"ZZZ")] * 2
    assert b"421 4.7.0 <gone@b.example>" in reports[0].verdicts[1][1]
    assert services.postfix.settle() == []


def test_too_many_recipients_follow_at_once_in_smaller_groups(peer_home: RemoteHome, services: Services) -> None:
    [report] = deliver(peer_home, services.ports["few"], *[b"to%d@b.example" % number for number in range(5)])
    assert (report.scope, letters(report)) == (MESSAGE_SCOPE, b"KKKKK")
    assert len(services.postfix.wait_for(5)) == 5


def test_too_many_errors_end_the_session_and_lose_nobody(peer_home: RemoteHome, services: Services) -> None:
    who = [b"ok@b.example", *[b"no%d@b.example" % number for number in range(6)]]
    [report] = deliver(peer_home, services.ports["short"], *who)
    assert report.scope == MESSAGE_SCOPE
    assert letters(report)[:1] == b"Z"
    assert set(letters(report)[1:]) <= set(b"DZ")
    assert b"421 4.7.0 " in b"".join(text for _, text in report.verdicts)
    assert services.postfix.settle() == []


def test_an_idle_connection_that_it_closes_costs_nothing(peer_home: RemoteHome, services: Services) -> None:
    peer_home.route_all_to(services.ports["impatient"])
    path = peer_home.message(TEXT)
    with RemoteDaemon(peer_home) as daemon:
        for count in (1, 2):
            before = services.postfix.log()
            assert letters(daemon.deliver(path, b"to@b.example")) == b"K"
            services.postfix.wait_for(count)
            services.log_since(before)
        assert daemon.end() == (0, b"")


def test_a_host_that_is_not_there_is_told_apart(peer_home: RemoteHome) -> None:
    [report] = deliver(peer_home, 1)
    assert (report.scope, letters(report)) == (HOST_SCOPE, b"Z")
