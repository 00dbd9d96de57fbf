"""queue-send with several queue-remotes: which of them gets a job, and that all limits are those of the sum."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.daemon.processes import remote_pipes
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_send.delivery.delivery_daemon import DeliveryDaemon, choose_daemon
from queue_send.scheduler.model import Attempt, Entry
from queue_wire.pipes.job import Job
from support.processes.suite import program
from support.queues.queued import classified_message
from support.send.control import wait_for_backlog
from support.send.scripted_send import ScriptedSend

NEXTHOPS = [b"d%d.example" % number for number in range(20)]
SENTENCE = "control/processesremote is %d now; it is used at the next start"


@pytest.fixture(name="daemons")
def fixture_daemons() -> Iterator[list[DeliveryDaemon]]:
    """Return three daemons that take two jobs each."""
    pipes = [(*os.pipe(), *os.pipe()) for _ in range(3)]
    daemons = [DeliveryDaemon("queue-remote", jobs, reports) for _, jobs, reports, _ in pipes]
    for daemon in daemons:
        daemon.capacity = 2
    yield daemons
    for pipe in pipes:
        for descriptor in pipe:
            os.close(descriptor)


def start(daemon: DeliveryDaemon, *numbers: int) -> None:
    for number in numbers:
        daemon.start(number, Entry(Attempt(1, b"", 0, 0), b"a.example", []), b"1:x,")


def test_the_pipes_of_the_first_queue_remote_are_always_the_same_and_no_two_share_one() -> None:
    assert remote_pipes(1) == [(5, 6)]
    found = [descriptor for pipes in remote_pipes(16) for descriptor in pipes]
    assert found[:6] == [5, 6, 16, 17, 18, 19]
    assert len(set(found)) == 32 and max(found) < 64


def test_a_hosts_jobs_go_to_one_daemon_and_each_daemon_has_hosts(daemons: list[DeliveryDaemon]) -> None:
    chosen = [choose_daemon(daemons, host) for host in NEXTHOPS]
    assert chosen == [choose_daemon(daemons, host) for host in NEXTHOPS]
    assert min(chosen.count(daemon) for daemon in daemons) >= 3
    # It depends on nothing that differs from run to run.
    assert [daemons.index(daemon) for daemon in chosen[:6]] == [0, 2, 1, 0, 0, 0]


def test_the_next_daemon_takes_the_jobs_of_one_that_is_full(daemons: list[DeliveryDaemon]) -> None:
    first = choose_daemon(daemons, b"d0.example")
    start(first, 1, 2)
    second = choose_daemon(daemons, b"d0.example")
    start(second, 3, 4)
    third = choose_daemon(daemons, b"d0.example")
    assert {id(first), id(second), id(third)} == set(map(id, daemons))
    del first.in_flight[1]
    assert choose_daemon(daemons, b"d0.example") is first


def test_a_daemon_that_does_not_read_its_jobs_is_full(daemons: list[DeliveryDaemon]) -> None:
    first = choose_daemon(daemons, b"d0.example")
    first.capacity = 2000
    first.start(1, Entry(Attempt(1, b"", 0, 0), b"d0.example", []), b"x" * (1 << 20))
    first.write(last=False)
    assert first.full is (first.unwritten >= 1 << 20) is False
    first.start(2, Entry(Attempt(1, b"", 0, 0), b"d0.example", []), b"x" * (1 << 17))
    first.write(last=False)
    assert first.full and choose_daemon(daemons, b"d0.example") is not first


def arrive(home: Home, send: ScriptedSend, nexthops: list[bytes]) -> list[int]:
    """Let queue-todo tell of a message for each of these nexthops; return the messages."""
    send.fence()
    wait_for_backlog(home)  # It would read an info/ file that is not written yet, and park the message.
    # Each is of another submitter: one alone has no more than two thirds of the places for hosts nobody knows.
    messages = [
        classified_message(home, remote=[b"a@" + nexthop], sender=b"s%d@example.org" % number)
        for number, nexthop in enumerate(nexthops)
    ]
    for message in messages:
        send.todo.classified(message)
    send.fence()
    return messages


def taken(send: ScriptedSend) -> list[list[Job]]:
    """Return the jobs that each queue-remote has got since the last call."""
    send.fence()
    return [remote.jobs() for remote in send.remotes]


def test_mail_goes_by_both_and_that_of_a_nexthop_by_one_of_them(home: Home) -> None:
    with ScriptedSend(home, remotes=2) as send:
        messages = arrive(home, send, NEXTHOPS * 2)
        jobs = taken(send)
        by = [{job.nexthop for job in each} for each in jobs]
        assert by[0] | by[1] == set(NEXTHOPS) and not by[0] & by[1]
        assert min(map(len, by)) >= 5
        # Delivery numbers are unique, and count from 1.
        assert sorted(job.number for each in jobs for job in each) == list(range(1, len(messages) + 1))
        for remote, each in zip(send.remotes, jobs, strict=True):
            for job in each:
                remote.report(job, b"Kok")
        assert sorted(send.clean.removed() for _ in messages) == sorted(messages)
        send.wait_for("status: local 0/10 remote 0/250", times=2)


@pytest.mark.home(concurrencyremote="3")
def test_concurrencyremote_is_the_limit_of_all_together(home: Home) -> None:
    with ScriptedSend(home, remotes=2) as send:
        arrive(home, send, NEXTHOPS)
        jobs = taken(send)
        assert sum(map(len, jobs)) == 3
        [(remote, job), *_] = [(send.remotes[n], job) for n in range(2) for job in jobs[n]]
        remote.report(job, b"Kok")
        send.clean.removed()
        assert sum(map(len, taken(send))) == 1
        Path(home.control, "concurrencyremote").write_text("5\n")
        send.signal(signal.SIGHUP)
        # The last quarter is kept for nexthops that are known to be quick.
        send.wait_for("status: local 0/10 remote 4/5")
        assert sum(map(len, taken(send))) == 1


@pytest.mark.home(concurrencyremote="6", destinationinitial="20")
def test_one_nexthop_may_use_all_of_concurrencyremote(home: Home) -> None:
    with ScriptedSend(home, remotes=2) as send:
        arrive(home, send, [b"hot.example"] * 20)
        # But for the quarter that is kept for nexthops that are known to be quick.
        assert sorted(len(each) for each in taken(send)) == [0, 5]


@pytest.mark.home(destinationlimits="hot.example concurrency=2 initial=2\n")
def test_the_limits_of_a_nexthop_hold(home: Home) -> None:
    with ScriptedSend(home, remotes=2) as send:
        arrive(home, send, [b"hot.example"] * 8 + [b"other.example"])
        jobs = taken(send)
        hot = [job for each in jobs for job in each if job.nexthop == b"hot.example"]
        assert len(hot) == 2
        remote = next(send.remotes[n] for n in range(2) if hot[0] in jobs[n])
        for count in range(2, 8):
            remote.report(hot.pop(0), b"Kok")
            send.clean.removed()
            send.wait_for(r"delivery \d+: success: ok/?", times=count - 1)
            [job] = [job for each in taken(send) for job in each]
            hot.append(job)


@pytest.mark.home(
    smtproutes=":relay.example:2525",
    destinationlimits="\n".join(name.decode() + " concurrency=2" for name in NEXTHOPS) + "\n",
)
def test_the_mail_of_one_relay_goes_by_one_of_them_also_for_domains_with_limits_of_their_own(home: Home) -> None:
    with ScriptedSend(home, remotes=4) as send:
        arrive(home, send, [*NEXTHOPS, b"without.a.line"])
        assert sorted(map(len, taken(send))) == [0, 0, 0, 20]  # destinationconcurrency holds for the relay.


def test_nothing_starts_before_all_have_greeted(home: Home) -> None:
    with ScriptedSend(home, remotes=2, ready=False) as send:
        send.remotes[0].ready()
        arrive(home, send, NEXTHOPS)
        assert taken(send) == [[], []]
        send.remotes[1].ready()
        send.wait_for(r"status: local 0/10 remote 20/250")
        assert all(taken(send))


def test_the_jobs_of_one_that_is_full_go_to_the_other(home: Home) -> None:
    with ScriptedSend(home, remotes=2, ready=False) as send:
        send.remotes[0].ready(1)
        send.remotes[1].ready(100)
        arrive(home, send, NEXTHOPS)
        assert [len(each) for each in taken(send)] == [1, 19]


def test_all_of_them_together_take_as_many_jobs_as_each_says(home: Home) -> None:
    with ScriptedSend(home, remotes=2, ready=False) as send:
        send.remotes[0].ready(2)
        send.remotes[1].ready(3)
        arrive(home, send, NEXTHOPS)
        assert [len(each) for each in taken(send)] == [2, 3]


def test_a_report_on_the_job_of_another_one_is_out_of_range(home: Home) -> None:
    with ScriptedSend(home, remotes=2) as send:
        [message] = arrive(home, send, [b"d0.example"])
        mine = next(n for n, each in enumerate(taken(send)) if each)
        job = Job(1, b"", b"", b"", [b"a@d0.example"])
        send.remotes[1 - mine].report(job, b"Dno")
        send.wait_for("warning: internal error: delivery report out of range")
        send.remotes[mine].report(job, b"Kok")
        assert send.clean.removed() == message


@pytest.mark.parametrize("lost", [0, 1])
def test_the_loss_of_one_ends_the_run_when_the_jobs_of_the_others_have_ended(home: Home, lost: int) -> None:
    with ScriptedSend(home, remotes=2) as send:
        messages = arrive(home, send, NEXTHOPS)
        jobs = taken(send)
        send.remotes[lost].die()
        send.wait_for(r"alert: oh no! lost queue-remote connection! dying\.\.\.")
        send.todo.classified(classified_message(home, remote=[b"a@late.example"]))
        send.fence()
        for job in jobs[1 - lost]:
            assert send.remotes[1 - lost].silent
            send.remotes[1 - lost].report(job, b"Kok")
        done = {send.clean.asked() for _ in jobs[1 - lost]}
        assert send.wait() == 111
        assert len(send.found("alert: oh no! lost .*")) == 1
        assert send.lines[-1] == "status: exiting"
    left = {message for message in messages if Path(open_layout(home.queue).hashed("remote", message)).exists()}
    assert left.isdisjoint(done) and len(left) == len(jobs[lost])
    for message in left:
        assert Path(open_layout(home.queue).hashed("remote", message)).read_bytes().startswith(b"Ta@")


def test_reports_without_framing_are_the_loss_of_one(home: Home) -> None:
    with ScriptedSend(home, remotes=2) as send:
        messages = arrive(home, send, NEXTHOPS)
        jobs = taken(send)
        send.remotes[1].send(b"nonsense")
        send.wait_for(r"alert: oh no! lost queue-remote connection! dying\.\.\.")
        for job in jobs[0]:
            send.remotes[0].report(job, b"Kok")
        assert {send.clean.asked() for _ in jobs[0]} < set(messages)
        assert send.wait() == 111


def test_after_term_the_jobs_of_all_are_waited_for(home: Home) -> None:
    with ScriptedSend(home, remotes=2) as send:
        arrive(home, send, NEXTHOPS)
        jobs = taken(send)
        send.signal(signal.SIGTERM)
        for remote, each in zip(send.remotes, jobs, strict=True):
            send.wait_for(r"status: local 0/10 remote \d+/250 exitasap")
            for job in each:
                remote.report(job, b"Kok")
        assert send.wait() == 0
        assert send.lines[-2:] == ["status: local 0/10 remote 0/250 exitasap", "status: exiting"]


def test_reports_of_one_that_never_ends_do_not_delay_those_of_the_other(home: Home) -> None:
    with ScriptedSend(home, remotes=2) as send:
        arrive(home, send, NEXTHOPS)
        jobs = taken(send)
        # Each turn takes some of these, and none of them is a job's.
        flood = b"10:9999\0m\0Kok," * 3000
        for number in (0, 1):
            send.remotes[number].send(flood)
            send.remotes[1 - number].report(jobs[1 - number][0], b"Kok")
            send.clean.removed()
            assert len(send.found("warning: internal error: delivery report out of range")) < 3000 * (number + 1)
            send.wait_for("warning: internal error: delivery report out of range", times=3000 * (number + 1))


def test_another_number_of_queue_remotes_is_used_at_the_next_start_and_hup_says_so(home: Home) -> None:
    Path(home.control, "processesremote").write_text("2\n")
    with ScriptedSend(home, remotes=2) as send:
        send.fence()
        send.signal(signal.SIGHUP)
        send.fence()
        Path(home.control, "processesremote").write_text("3\n")
        send.signal(signal.SIGHUP)
        send.wait_for("warning: " + SENTENCE % 3)
        assert not send.found("warning: " + SENTENCE % 2)


@pytest.mark.parametrize("words", [["--remotes"], ["--remotes", "0"], ["--remotes", "17"], ["--remotes", "2", "3"]])
def test_a_wrong_number_of_queue_remotes_is_a_usage_error(home: Home, words: list[str]) -> None:
    done = subprocess.run(
        [*program("queue-send"), "--home", home.path, *words], capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 100
    assert b"usage: queue-send [--home HOME] [--queue NAME] [--remotes N]" in done.stderr


def test_the_pipes_of_all_queue_remotes_must_be_there(home: Home) -> None:
    words = [*program("queue-send"), "--home", home.path, "--remotes", "2"]
    # Descriptors 3 to 13 are there, 14 and 15 are not.
    script = "import os, sys\nfor n in range(3, 14): os.dup2(0, n)\nos.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run(
        [words[0], "-c", script, *words], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 100
    assert b"unable to use descriptor 14: not open" in done.stderr
