"""A server that takes fewer recipients a message than there are gets all of them at once, in several transactions."""

import time
from collections import Counter
from collections.abc import Callable

import pytest

from queue_wire.pipes.report import Report
from support.processes.remote_daemon import RemoteDaemon, RemoteHome
from support.servers.smtp.raw_server import Peer, RawServer

FIFTY = [b"to%02d@%s.example" % (number, b"abcde"[number % 5 : number % 5 + 1]) for number in range(50)]
# The reply to a recipient, by those that were accepted before in the same transaction.
Judge = Callable[[bytes, list[bytes]], bytes]


class ChoosyServer:
    """Takes what `judge` accepts, in so many seconds a message.

    `taken` has the recipients of each message, `asked` how often each was tried.
    """

    def __init__(self, judge: Judge, pipelining: bool = True, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self.taken: list[list[bytes]] = []
        self.asked: Counter[bytes] = Counter()
        self._judge = judge
        self._extensions = [b"PIPELINING"] if pipelining else []

    def serve(self, peer: Peer) -> None:
        peer.greet(*self._extensions)
        accepted: list[bytes] = []
        while line := peer.hear():
            if line.startswith(b"RCPT TO:<"):
                recipient = line[9:-1]
                self.asked[recipient] += 1
                reply = self._judge(recipient, accepted)
                if reply.startswith(b"2"):
                    accepted.append(recipient)
                peer.say(reply)
            elif line == b"DATA" and accepted:
                peer.say(b"354 go")
                peer.hear_message()
                self.taken.append(accepted)
                accepted = []
                peer.drip(b"250 taken\r\n", self._seconds)
            elif line == b"DATA":
                peer.say(b"554 nobody")
            elif line == b"QUIT":
                peer.say(b"221 bye")
                return
            else:
                accepted = []
                peer.say(b"250 ok")


def deliver(home: RemoteHome, server: ChoosyServer, times: int = 1) -> Report:
    with RawServer(server.serve) as raw:
        home.route_all_to(raw.port)
        with RemoteDaemon(home) as daemon:
            for _ in range(times):
                report = daemon.deliver(home.message(b"Subject: hello\n\nAll of you.\n"), *FIFTY)
            return report


def at_most(count: int, refusal: bytes) -> Judge:
    return lambda recipient, accepted: b"250 ok" if len(accepted) < count else refusal


@pytest.mark.parametrize("refusal", [b"452 4.5.3 too many", b"452 too many", b"451 4.3.0 one at a time", b"552 many"])
@pytest.mark.parametrize("most", [1, 5])
@pytest.mark.parametrize("pipelining", [True, False])
def test_everybody_gets_a_message_that_may_have_few_recipients(
    home: RemoteHome, most: int, refusal: bytes, pipelining: bool
) -> None:
    server = ChoosyServer(at_most(most, refusal), pipelining)
    report = deliver(home, server)
    assert [letter for letter, _ in report.verdicts] == [b"K"] * 50
    assert sorted(recipient for group in server.taken for recipient in group) == sorted(FIFTY)
    # Smaller groups: nobody is refused twice.
    assert max(server.asked.values()) == 2


def test_the_second_job_on_an_open_connection_does_the_same(home: RemoteHome) -> None:
    server = ChoosyServer(at_most(5, b"452 too many"))
    assert [letter for letter, _ in deliver(home, server, times=2).verdicts] == [b"K"] * 50
    assert len(server.taken) == 20


def test_a_server_that_takes_one_domain_a_message_gets_all(home: RemoteHome) -> None:
    def judge(recipient: bytes, accepted: list[bytes]) -> bytes:
        one = not accepted or accepted[0].rpartition(b"@")[2] == recipient.rpartition(b"@")[2]
        return b"250 ok" if one else b"451 4.3.0 multiple destination domains a transaction are not supported"

    server = ChoosyServer(judge)
    report = deliver(home, server)
    assert [letter for letter, _ in report.verdicts] == [b"K"] * 50
    assert sum(len(group) for group in server.taken) == 50


@pytest.mark.parametrize("refusal", [b"450 4.2.0 greylisted", b"451 4.7.1 come back later", b"452 4.2.2 mailbox full"])
def test_a_recipient_that_is_deferred_for_a_reason_of_its_own_is_tried_once(home: RemoteHome, refusal: bytes) -> None:
    server = ChoosyServer(lambda recipient, accepted: refusal if recipient == FIFTY[7] else b"250 ok")
    report = deliver(home, server)
    assert [letter for letter, _ in report.verdicts] == [b"Z" if to == FIFTY[7] else b"K" for to in FIFTY]
    assert server.asked[FIFTY[7]] == 1


def test_a_server_that_defers_all_but_one_for_a_reason_that_it_does_not_say_is_asked_little_more(
    home: RemoteHome,
) -> None:
    server = ChoosyServer(lambda recipient, accepted: b"250 ok" if recipient == FIFTY[0] else b"451 later")
    report = deliver(home, server)
    assert [letter for letter, _ in report.verdicts] == [b"K"] + [b"Z"] * 49
    assert server.asked.total() == 50 + 3


def test_one_that_is_deferred_among_those_that_are_too_many_does_not_hold_them_up(home: RemoteHome) -> None:
    def judge(recipient: bytes, accepted: list[bytes]) -> bytes:
        return b"451 later" if recipient == FIFTY[7] or accepted else b"250 ok"

    server = ChoosyServer(judge)
    report = deliver(home, server)
    assert [letter for letter, _ in report.verdicts] == [b"Z" if to == FIFTY[7] else b"K" for to in FIFTY]
    assert server.asked[FIFTY[7]] == 2


@pytest.mark.home(timeoutremote="4", timeoutconnect="1")
def test_the_groups_of_a_job_have_its_time(home: RemoteHome) -> None:
    begun = time.monotonic()
    report = deliver(home, ChoosyServer(at_most(1, b"452 too many"), seconds=1.0))
    # 50 seconds, if each group had its own.
    assert time.monotonic() - begun < 25
    taken = [letter for letter, _ in report.verdicts].count(b"K")
    assert 1 <= taken < 50
    assert [letter for letter, _ in report.verdicts] == [b"K"] * taken + [b"Z"] * (50 - taken)


def test_who_has_the_message_is_reported_as_soon_as_a_group_has_it(home: RemoteHome) -> None:
    server = ChoosyServer(at_most(20, b"452 too many"))
    with RawServer(server.serve) as raw:
        home.route_all_to(raw.port)
        with RemoteDaemon(home) as daemon:
            report = daemon.deliver(home.message(b"Subject: hello\n\nAll of you.\n"), *FIFTY)
            found = daemon.partial
    assert [each.number for each in found] == [report.number] * 2
    assert [[place for place, (letter, _) in enumerate(each.verdicts) if letter] for each in found] == [
        list(range(20)), list(range(20, 40))
    ]  # fmt: skip
    assert found[0].verdicts[:20] + found[1].verdicts[20:40] == report.verdicts[:40]
    assert [letter for letter, _ in report.verdicts] == [b"K"] * 50


def test_recipients_of_another_route_do_not_wait_to_be_reported(home: RemoteHome) -> None:
    def refuse(peer: Peer) -> None:
        peer.say(b"421 busy")

    with RawServer(ChoosyServer(at_most(50, b"452")).serve) as one, RawServer(refuse) as two:
        home.control("smtproutes", f"a.example:127.0.0.1:{one.port}\nb.example:127.0.0.1:{two.port}")
        with RemoteDaemon(home) as daemon:
            path = home.message(b"Subject: hello\n\nx\n")
            daemon.deliver(path, b"to@a.example", b"too@a.example")
            assert not daemon.partial
            # The parts go in random order, and after the last one there is the report alone.
            while not daemon.partial:
                report = daemon.deliver(path, b"to@b.example", b"to@a.example")
                assert [letter for letter, _ in report.verdicts] == [b"Z", b"K"]
            assert daemon.partial[0].verdicts == [(b"", b""), report.verdicts[1]]
