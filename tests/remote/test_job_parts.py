"""Which mail goes the same way: it shares a connection, and a job whose recipients do not is several."""


import pytest

from queue_base.home import Home
from queue_remote.job_parts import JobPart, PartOutcome, choose_options, join_outcomes, split_job
from queue_remote.message.conversions import Conversions
from queue_remote.setup import Setup, read_setup
from queue_remote.tls.mta_sts import StsCache
from queue_wire.pipes.job import Job
from queue_wire.pipes.report import HOST_SCOPE, MESSAGE_SCOPE, Report
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.smtp.raw_server import Peer, RawServer
from support.servers.smtp.smtp_server import SmtpServer

TEXT = b"Subject: hello\n\nA message.\n"
RECIPIENTS = [b"one@b.example", b"two@c.example", b"three@B.example", b"four@d.example"]


pytestmark = pytest.mark.home(connectionidle="20")


def job(*recipients: bytes) -> Job:
    return Job(7, b"mess/0/23", b"from@a.example", recipients[0].rpartition(b"@")[2], list(recipients))


def setup_of(home: RemoteHome, routes: str = "") -> Setup:
    home.control("smtproutes", routes)
    return read_setup(Home(str(home.path)), StsCache(), Conversions())


def test_mail_that_one_relay_takes_shares_a_connection_whatever_its_domain(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.route_all_to(server.port)
        with RemoteDaemon(home) as daemon:
            for domain in (b"b.example", b"c.example", b"d.example"):
                assert daemon.deliver(home.message(TEXT), b"to@" + domain).verdicts[0][0] == b"K"
    assert server.connections == 1


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("tlspolicy", "c.example:none"),
        ("smtpauth", "c.example:user:secret"),
        ("helohost", "c.example:other.example.org"),
        ("outgoingip", "c.example:127.0.0.2"),
    ],
)
def test_a_line_for_one_domain_gives_it_connections_of_its_own(home: RemoteHome, file: str, line: str) -> None:
    home.control(file, line)
    (home.path / "control" / file).chmod(0o600)
    parts = split_job(setup_of(home, ":relay.example"), job(*RECIPIENTS))
    assert [(part.nexthop, part.numbers) for part in parts] == [(b"b.example", [0, 2, 3]), (b"c.example", [1])]


def test_each_goes_by_its_own_route_and_the_verdicts_are_in_the_jobs_order(home: RemoteHome) -> None:
    with SmtpServer() as first, SmtpServer() as second:
        second.recipient_answers["two@c.example"] = "550 nobody"
        home.control("smtproutes", f":127.0.0.1:{first.port}\nc.example:127.0.0.1:{second.port}")
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), *RECIPIENTS)
    assert report.scope == MESSAGE_SCOPE
    assert [letter for letter, _ in report.verdicts] == [b"K", b"D", b"K", b"K"]
    [taken] = first.received
    assert taken.recipients == ["one@b.example", "three@B.example", "four@d.example"]
    assert second.received == []
    assert second.connections == 1


def test_a_host_that_is_away_costs_only_its_own_recipients(home: RemoteHome) -> None:
    with SmtpServer() as server:
        home.control("smtproutes", f":127.0.0.1:{server.port}\nc.example:127.0.0.1:1")
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), *RECIPIENTS)
    assert report.scope == MESSAGE_SCOPE
    assert [letter for letter, _ in report.verdicts] == [b"K", b"Z", b"K", b"K"]
    assert server.connections == 1


def test_without_routes_each_domain_goes_by_itself(home: RemoteHome) -> None:
    parts = split_job(setup_of(home), job(*RECIPIENTS))
    assert [(part.nexthop, part.numbers) for part in parts] == [
        (b"b.example", [0, 2]),
        (b"c.example", [1]),
        (b"d.example", [3]),
    ]
    assert [part.recipients for part in parts] == [[RECIPIENTS[0], RECIPIENTS[2]], [RECIPIENTS[1]], [RECIPIENTS[3]]]


@pytest.mark.parametrize("line", ["", "d.example"])
def test_those_who_go_the_same_way_stay_together(home: RemoteHome, line: str) -> None:
    whole = job(*RECIPIENTS)
    setup = setup_of(home, f":relay.example\n{line}:RELAY.example:25")
    options = choose_options(setup, whole.sender, whole.nexthop)
    assert split_job(setup, whole) == [JobPart(whole.nexthop, options, whole.recipients, [0, 1, 2, 3])]


def test_a_relay_that_is_a_domain_too_is_another_way(home: RemoteHome) -> None:
    parts = split_job(setup_of(home, "b.example:relay.example"), job(b"one@b.example", b"two@relay.example"))
    assert [part.numbers for part in parts] == [[0], [1]]


@pytest.mark.parametrize(("scopes", "whole"), [("hh", HOST_SCOPE), ("hm", MESSAGE_SCOPE), ("mm", MESSAGE_SCOPE)])
def test_the_report_is_about_the_host_only_where_no_host_was_there(
    home: RemoteHome, scopes: str, whole: bytes
) -> None:
    asked = job(b"one@b.example", b"two@c.example", b"three@b.example")
    parts = split_job(setup_of(home), asked)
    first, second = (scope.encode() for scope in scopes)
    outcomes = [PartOutcome(first, [(b"Z", b"x"), (b"Z", b"y")]), PartOutcome(second, [(b"D", b"z")])]
    report = join_outcomes(asked, list(zip(parts, outcomes, strict=True)))
    route = b"b.example c.example" if whole == HOST_SCOPE else b""
    assert report == Report(7, whole, [(b"Z", b"x"), (b"D", b"z"), (b"Z", b"y")], route)


@pytest.mark.parametrize("routes", [":127.0.0.1:1", "b.example:127.0.0.1:1\nc.example:127.0.0.1:1"])
def test_a_report_on_a_host_names_the_relays_that_were_tried(home: RemoteHome, routes: str) -> None:
    home.control("smtproutes", routes)
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(home.message(TEXT), b"one@b.example", b"two@c.example")
    assert (report.scope, report.route) == (HOST_SCOPE, b"127.0.0.1:1")


def test_a_report_on_a_host_names_the_servers_of_a_local_route(home: RemoteHome) -> None:
    home.control("localroutes", "b.example:lmtp:/nowhere/socket")
    with RemoteDaemon(home) as daemon:
        report = daemon.deliver(home.message(TEXT), b"one@b.example", nexthop=b"one@b.example")
    assert (report.scope, report.route) == (HOST_SCOPE, b"lmtp:/nowhere/socket")


def test_ways_that_hang_one_after_the_other_have_one_limit_in_all(home: RemoteHome) -> None:
    """No further way is begun once the job has taken timeoutconnect and timeoutremote; who is left out is deferred."""

    def hang(peer: Peer) -> None:
        peer.wait_for_end()

    home.control("timeoutconnect", "1")
    home.control("timeoutremote", "1")
    domains = [b"%d.example" % number for number in range(8)]
    with RawServer(hang, address="0.0.0.0") as server:
        routes = [f"{name.decode()}:127.0.0.{number + 1}:{server.port}" for number, name in enumerate(domains)]
        home.control("smtproutes", "\n".join(routes))
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(TEXT), *[b"to@" + domain for domain in domains])
    assert [letter for letter, _ in report.verdicts] == [b"Z"] * 8
    left = [text for _, text in report.verdicts if text.startswith(b"Not tried yet: ")]
    assert 1 <= server.connections <= 4
    assert len(left) == 8 - server.connections


def test_which_way_comes_first_is_a_matter_of_chance(home: RemoteHome) -> None:
    """Otherwise those behind a way that hangs would never be tried, as long as queue-send takes them for one job."""
    heard: list[bytes] = []

    def refuse(peer: Peer) -> None:
        peer.greet()
        peer.hear()
        peer.say(b"250 ok")
        heard.append(peer.hear())
        peer.say(b"550 no")
        peer.wait_for_end()

    with RawServer(refuse, address="0.0.0.0") as server:
        home.control("smtproutes", f"a.example:127.0.0.1:{server.port}\nb.example:127.0.0.2:{server.port}")
        home.control("connectionmessages", "1")
        with RemoteDaemon(home) as daemon:
            path = home.message(TEXT)
            for _ in range(200):
                daemon.deliver(path, b"to@a.example", b"to@b.example")
                if len(set(heard[::2])) == 2:
                    break
    assert len(set(heard[::2])) == 2
