"""What queue-ondemand's loop does in one turn stays short, however many domains have stored mail."""

import os
import select
import socket
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.daemon.clock import Clock, ClockSpan
from queue_base.daemon.disk_thread import DiskThread
from queue_base.queue.layout import open_layout
from queue_ondemand.domain_run import DomainRun
from queue_ondemand.domain_store import DomainStore, StoreRequest
from queue_ondemand.domain_times import Wake
from queue_ondemand.keeper import REVERSALS_A_USER, REVERSALS_MAX, RUNS_MAX, Keeper
from queue_ondemand.ondemand_files import OnDemandFiles
from queue_ondemand.remote_link import RemoteLink
from queue_wire.admin.ondemand_socket import (
    ATRN,
    ETRN,
    FLUSH,
    LATER,
    NO_LINE,
    STARTED,
    UNKNOWN,
    WHEN,
    RunAnswer,
    RunRequest,
)
from queue_wire.files.cluster import ClusterRecord, StoredRecipient
from support.queues.home import make_home

DOMAINS = 3000


@pytest.fixture
def remote() -> Iterator[RemoteLink]:
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    with ours, theirs:
        link = RemoteLink(ours.fileno(), reader)
        yield link
        link._socket.close()
    os.close(reader)
    os.close(writer)


def make_keeper(
    path: Path, remote: RemoteLink, domains: int, lines: list[bytes], control: bytes | None = None
) -> Iterator[Keeper]:
    """Yield a Keeper with mail for `domains` domains d0.example, d1.example, ...; `lines` gets what it says.

    `control`: the bytes of control/ondemand, None for a line for each domain.
    """
    home = make_home(path / "home")
    layout = open_layout(home.queue)
    Path(home.queue, "mess", "0", "1").write_bytes(b"x")
    if control is None:
        control = b"".join(b"d%d.example:etrn\n" % number for number in range(domains))
    Path(home.control, "ondemand").write_bytes(control)
    store = DomainStore(home.queue)
    requests = []
    for number in range(domains):
        stored = StoredRecipient(1, 1_700_000_000_000_000, 1, b"", b"a@b", 0)
        requests.append(StoreRequest(b"d%d.example" % number, "mess/0/1", [stored], 0))
    for place in range(0, domains, 100):
        assert not any(store.append(requests[place : place + 100]))
    disk = DiskThread()
    yield Keeper(home, layout, store, OnDemandFiles(home), disk, remote, lines.append)
    while disk.busy:
        poll = select.poll()
        disk.prepare(poll, 0.0)
        disk.run(dict(poll.poll(60_000)), 0.0)


def ignore(answer: RunAnswer) -> None:
    """Not to be called: the answer comes at once."""
    raise AssertionError(answer)


def turns(keeper: Keeper) -> list[float]:
    """Have a Keeper do what it has to do at once, and return the seconds of CPU of each turn."""
    spent = []
    while keeper.has_steps:
        begun = time.thread_time()
        keeper.wake(0.0)
        spent.append(time.thread_time() - begun)
    return spent


def test_a_request_for_very_many_domains_takes_many_short_turns(tmp_path: Path, remote: RemoteLink) -> None:
    lines: list[bytes] = []
    for keeper in make_keeper(tmp_path, remote, DOMAINS, lines):
        turns(keeper)
        answers: list[RunAnswer] = []
        begun = time.thread_time()
        assert keeper.answer(RunRequest(ETRN, b"@example", b"192.0.2.1"), answers.append) is None
        first = time.thread_time() - begun
        spent = turns(keeper)

        assert [answer.word for answer in answers] == [STARTED]
        assert len(lines) == RUNS_MAX and len(spent) > 2
        assert first + statistics.median(spent) < 0.02
        assert keeper.answer(RunRequest(ETRN, b"@example.net", b"192.0.2.1"), answers.append) is None
        turns(keeper)
        assert answers[1].word == UNKNOWN


def test_a_domain_is_asked_for_by_its_u_labels_its_a_labels_and_with_a_final_dot(
    tmp_path: Path, remote: RemoteLink
) -> None:
    control = "bücher.example:etrn\n".encode()
    for keeper in make_keeper(tmp_path, remote, 0, [], control):
        stored = StoredRecipient(1, 1_700_000_000_000_000, 1, b"", b"a@b", 0)
        assert keeper._store.append([StoreRequest(b"xn--bcher-kva.example", "mess/0/1", [stored], 0)]) == [None]
        turns(keeper)
        for name in ("xn--bcher-kva.example", "BÜCHER.example", "#bücher.example."):
            answer = keeper.answer(RunRequest(WHEN, name.encode()), ignore)
            assert answer is not None and answer.word == LATER, name


def test_a_user_has_a_share_of_the_places_for_hosts_that_ask_with_atrn(tmp_path: Path, remote: RemoteLink) -> None:
    lines: list[bytes] = []
    control = b"".join(b"d%d.example:atrn\n" % number for number in range(REVERSALS_MAX + 1))
    for keeper in make_keeper(tmp_path, remote, REVERSALS_MAX + 1, lines, control):
        turns(keeper)
        users = [b"joe"] * (REVERSALS_A_USER + 1) + [b"u%d" % each for each in range(REVERSALS_MAX - REVERSALS_A_USER)]
        words = []
        for number, user in enumerate(users):
            request = RunRequest(ATRN, b"d%d.example" % number, b"192.0.2.1", user)
            words.append(keeper.turn(request, os.open(os.devnull, os.O_RDONLY), ignore).word)
        assert words.pop(REVERSALS_A_USER) == LATER
        assert words == [STARTED] * REVERSALS_MAX
    for _, descriptor in remote._passed:
        os.close(descriptor)


def test_very_many_domains_whose_time_has_come_take_many_short_turns(tmp_path: Path, remote: RemoteLink) -> None:
    for keeper in make_keeper(tmp_path, remote, DOMAINS, []):
        turns(keeper)
        for number in range(DOMAINS):
            keeper.times.set(b"d%d.example" % number, Wake.PROBE, 1.0)
        count = 0
        while (when := keeper.times.next_time()) is not None and when <= 1.0:
            keeper.wake(1.0)
            count += 1
        assert count > 1


def test_very_many_runs_that_wait_for_a_place_and_are_over_their_limits_then_wait_for_these(
    tmp_path: Path, remote: RemoteLink
) -> None:
    stored = StoredRecipient(1, time.time_ns() // 1000, 1, b"", b"a@b", 0)
    for keeper in make_keeper(tmp_path, remote, 1, []):
        Path(tmp_path, "home", "control", "ondemand").write_text(
            "".join(f"d{number}.example:etrn\n" for number in range(DOMAINS))
        )
        Path(tmp_path, "home", "control", "destinationrate").write_text(".example:1/3600\n")
        keeper.reread()
        keeper._apply_limits(0.0)
        for number in range(DOMAINS):
            domain = b"d%d.example" % number
            keeper._run_limits.begin(domain, is_run=True)
            keeper._run_limits.end(domain, is_run=True)
            run = keeper._runs[domain] = DomainRun(domain, b"etrn", [1], lambda birth: False)
            run.next_cluster()
            run.load([ClusterRecord(39, False, stored)])
            keeper._waiting.append(run)
        keeper._start_waiting()
        turns(keeper)
        assert len(keeper._limited) == DOMAINS and not keeper._waiting and not keeper._begun
        # A look at the limits takes no place.
        keeper._begun = RUNS_MAX
        keeper._resume(b"d7.example", time.monotonic())
        assert b"d7.example" in keeper._limited and not keeper._waiting


def test_a_file_that_was_faulty_and_has_no_line_any_more_is_noticed(
    tmp_path: Path, remote: RemoteLink, capfd: pytest.CaptureFixture[str]
) -> None:
    for keeper in make_keeper(tmp_path, remote, 1, [], b"d0.example:fetch\n"):
        turns(keeper)
        assert keeper.times.has(b"d0.example", Wake.PROBE)
        Path(tmp_path, "home", "control", "ondemand").unlink()
        keeper.reread()
        turns(keeper)
        assert "has no line for d0.example; " in capfd.readouterr().err
        assert not keeper.times.has(b"d0.example", Wake.PROBE)


def test_mail_of_a_domain_without_a_line_stays_stored_and_one_alert_says_so(
    tmp_path: Path, remote: RemoteLink, capfd: pytest.CaptureFixture[str]
) -> None:
    lines: list[bytes] = []
    for keeper in make_keeper(tmp_path, remote, 6, lines):
        turns(keeper)
        assert not capfd.readouterr().err
        Path(tmp_path, "home", "control", "ondemand").write_text("d0.example:etrn\nd1.example:etrn\n")
        keeper.reread()
        turns(keeper)
        assert "alert: control/ondemand has no line for d2.example, d3.example, d4.example and 1 more; " in (
            capfd.readouterr().err
        )
        assert keeper.times.has(b"d0.example", Wake.PROBE)
        assert not keeper.times.has(b"d2.example", Wake.PROBE) and keeper.times.has(b"d2.example", Wake.EXPIRY)
        for command in (ETRN, FLUSH, WHEN):
            answer = keeper.answer(RunRequest(command, b"d2.example"), ignore)
            assert answer == RunAnswer(UNKNOWN, NO_LINE)
        assert not lines, "nothing is sent"
        keeper.reread()
        turns(keeper)
        assert "alert" not in capfd.readouterr().err

        Path(tmp_path, "home", "control", "ondemand").write_text("d2.example:etrn\n")
        keeper.reread()
        turns(keeper)
        assert keeper.times.has(b"d2.example", Wake.PROBE)
        assert "alert: control/ondemand has no line for d0.example, d1.example; " in capfd.readouterr().err


def test_a_run_ends_when_the_line_of_its_domain_is_removed(tmp_path: Path, remote: RemoteLink) -> None:
    lines: list[bytes] = []
    for keeper in make_keeper(tmp_path, remote, 1, lines):
        turns(keeper)
        answer = keeper.answer(RunRequest(FLUSH, b"d0.example"), ignore)
        assert answer is not None and answer.word == STARTED
        Path(tmp_path, "home", "control", "ondemand").write_text("other.example:etrn\n")
        keeper.reread()
    assert [b"started: flush" in lines[0], b"ended: delivered 0 failed 0 deferred 1" in lines[-1]] == [True, True]


@pytest.mark.parametrize("since", ["before", "after"])
def test_a_clock_that_is_set_ahead_lets_no_stored_mail_expire(tmp_path: Path, remote: RemoteLink, since: str) -> None:
    """It is set after the start of queue-ondemand, or before it while queue-send has noted what it was."""
    true, ahead = time.time(), 100 * 86400
    clocks = [true]
    young, old = [int((true - days * 86400) * 1_000_000) for days in (1, 50)]
    spans = [ClockSpan(true - time.clock_gettime(time.CLOCK_BOOTTIME), -float("inf"), float("inf"))]
    for keeper in make_keeper(tmp_path, remote, 1, []):
        if since == "before":
            clocks[0] = true + ahead
        keeper._clock = Clock(lambda: clocks[0], earlier=spans)
        found = []
        for now in (true + ahead, true, true - ahead):
            clocks[0] = now
            keeper._clock.look()
            found += [keeper._has_expired(b"d0.example", birth) for birth in (young, old)]
        assert found == [False, True] * 3
