"""Runs of mail on demand whose domain has a rate: they wait, keep no other run waiting, and give way to orders."""

import errno
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queue_base.daemon.clock import Clock, ClockSpan, keep_spans, read_spans
from queue_base.daemon.disk_thread import DiskThread
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from queue_ondemand import domain_times, run_limits
from queue_ondemand import keeper as keeper_module
from queue_ondemand.domain_store import DomainStore
from queue_ondemand.keeper import Keeper
from queue_ondemand.ondemand_files import OnDemandFiles
from queue_ondemand.remote_link import RemoteLink
from queue_wire.admin.ondemand_socket import (
    DELETE,
    FLUSH,
    HOLDS,
    LATER,
    ORDERS,
    RUNNING,
    STARTED,
    RunAnswer,
    RunRequest,
)
from queue_wire.files.cluster import StoredRecipient
from queue_wire.files.stored_order import DELETE_STORED, ORDER_LIFETIME, StoredOrder, pack_order
from queue_wire.pipes.framing import NetstringReader
from queue_wire.pipes.job import Job, unpack_job
from queue_wire.pipes.report import MESSAGE_SCOPE, SUCCESS, Report, pack_report
from support.queues.home import make_home
from support.queues.queued import put_mess, store_on_demand
from support.queues.stored_mail import order_about_all

DOMAIN = b"customer.example"
DEADLINE = 30.0


class World:
    """A keeper, whose jobs the test answers."""

    def __init__(self, home: Home, rate: bytes, limits: bytes = b"") -> None:
        self.home = home
        self.answers_jobs = True
        Path(home.control, "ondemand").write_bytes(b"customer.example:etrn probe never\nother.example:etrn\n")
        Path(home.control, "destinationrate").write_bytes(rate)
        Path(home.control, "destinationlimits").write_bytes(limits)
        self._ours, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)
        self._reports, self._report = os.pipe()
        self._jobs = NetstringReader()
        self.jobs: list[Job] = []
        self.answers: list[RunAnswer] = []
        self.put: list[bytes] = []
        self.disk = DiskThread()
        self.link = RemoteLink(self._ours.fileno(), self._reports)
        self.keeper = Keeper(
            home, open_layout(home.queue), DomainStore(home.queue), OnDemandFiles(home), self.disk, self.link,
            self.put.append,
        )  # fmt: skip

    def close(self) -> None:
        self.link._socket.close()
        self._ours.close()
        self._theirs.close()
        os.close(self._reports)
        os.close(self._report)

    def turn(self) -> None:
        """Make a turn of the loop, and answer all jobs with success."""
        self.link.flush()
        try:
            self._jobs.feed(self._theirs.recv(65536))
        except BlockingIOError:
            pass
        while (payload := self._jobs.next()) is not None:
            job = unpack_job(payload)
            self.jobs.append(job)
            if not self.answers_jobs:
                continue
            os.write(self._report, pack_report(Report(job.number, MESSAGE_SCOPE, [(SUCCESS, b"ok")])))
        poll = select.poll()
        self.disk.prepare(poll, time.monotonic())
        poll.register(self._reports, select.POLLIN)
        ready = dict(poll.poll(10))
        now = time.monotonic()
        for report in self.link.read(ready):
            self.keeper.take_report(report, now)
        self.disk.run(ready, now)
        self.keeper.wake(now)

    def until(self, what: Callable[[], object]) -> None:
        """Make turns until something is true."""
        end = time.monotonic() + DEADLINE
        while not what():
            assert time.monotonic() < end, f"in vain, after {self.jobs}"
            self.turn()

    def ask(self, command: bytes, name: bytes = DOMAIN) -> bytes:
        answer = self.keeper.answer(RunRequest(command, name, b""), self.answers.append) or self.answers.pop()
        return answer.word

    @property
    def waits(self) -> bool:
        """Whether the run of the domain waits for its limits."""
        return DOMAIN in self.keeper._limited

    def stored(self, domain: bytes = DOMAIN) -> bool:
        return Path(self.home.queue, "ondemand", domain.decode()).exists()


def pending(home: Home) -> list[tuple[int, StoredRecipient]]:
    """Return what is stored for the domain and not done, with the numbers of the clusters."""
    found = DomainStore(home.queue)
    return [(number, each.stored) for number in found.clusters(DOMAIN) for each in found.read(DOMAIN, number).pending]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = make_home(tmp_path / "home")
    store_on_demand(found, DOMAIN, [[b"u%d@customer.example" % number] for number in range(3)])
    store_on_demand(found, b"other.example", [[b"u@other.example"]])
    return found


@pytest.fixture
def world(home: Home) -> Iterator[World]:
    found = World(home, b"customer.example:2/3600\n")
    yield found
    found.close()


def test_a_run_over_its_rate_waits_and_keeps_no_other_waiting(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_module, "RUNS_MAX", 1)
    assert world.ask(FLUSH) == world.ask(FLUSH, b"other.example") == STARTED
    world.until(lambda: world.waits and not world.stored(b"other.example"))
    assert [job.recipients[0] for job in world.jobs if job.nexthop == DOMAIN] == [
        b"u0@customer.example", b"u1@customer.example"
    ]  # fmt: skip
    when = min(time for time in world.keeper.next_times() if time is not None)
    assert when > time.monotonic(), "the loop waits for the run, and does not turn for it all the time"


def test_a_run_goes_on_by_itself_in_its_order(home: Home) -> None:
    found = World(home, b"customer.example:2/1\n")
    assert found.ask(FLUSH) == STARTED
    found.until(lambda: not found.stored())
    assert [job.recipients[0] for job in found.jobs] == [b"u%d@customer.example" % number for number in range(3)]
    found.close()


def test_an_order_about_a_domain_whose_run_waits_is_carried_out(world: World) -> None:
    assert world.ask(FLUSH) == STARTED
    world.until(lambda: world.waits)
    assert world.ask(DELETE) in (STARTED, RUNNING)
    world.until(lambda: world.ask(DELETE) == STARTED or not world.stored())
    world.until(lambda: not world.stored())
    assert len(world.jobs) == 2


def test_an_order_that_came_while_a_delivery_was_under_way_is_carried_out_once_its_run_waits(
    world: World, home: Home
) -> None:
    assert world.ask(FLUSH) == STARTED
    world.until(lambda: world.keeper._sent)
    orders = Path(home.queue, "ondemand/customer.example/order")
    orders.mkdir(0o2750)
    (orders / "1").write_bytes(order_about_all(home, DOMAIN, DELETE_STORED))
    assert world.ask(ORDERS) == RUNNING
    world.until(lambda: not world.stored())
    assert len(world.jobs) == 2


def test_mail_that_is_stored_before_an_order_is_carried_out_is_not_in_it(world: World, home: Home) -> None:
    assert world.ask(FLUSH) == STARTED
    world.until(lambda: world.keeper._sent)
    orders = Path(home.queue, "ondemand/customer.example/order")
    orders.mkdir(0o2750)
    (orders / "1").write_bytes(order_about_all(home, DOMAIN, DELETE_STORED))
    store_on_demand(home, DOMAIN, [[b"new@customer.example"]])
    world.keeper._store._domains[DOMAIN].clusters.append(2)  # As if this store had stored it.
    assert world.ask(ORDERS) == RUNNING
    world.until(lambda: not any(orders.iterdir()))
    world.until(lambda: not world.disk.busy)
    left = [each.recipient for _, each in pending(home)]
    assert left == [b"new@customer.example"]


def test_what_is_no_order_is_named_and_the_next_order_is_carried_out(
    world: World, home: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    orders = Path(home.queue, "ondemand/customer.example/order")
    orders.mkdir(0o2750)
    (orders / "0").write_bytes(b"delete\n\nall\n")
    os.mkfifo(orders / "1")
    (orders / "2").mkdir()
    (orders / "3").symlink_to("nowhere")
    (orders / "4").write_bytes(order_about_all(home, DOMAIN, DELETE_STORED))
    world.ask(ORDERS)
    world.until(lambda: not (orders / "4").exists())
    world.ask(ORDERS)
    world.until(lambda: not world.disk.busy)
    assert not pending(home) and sorted(os.listdir(orders)) == ["0", "1", "2", "3"]
    told = capfd.readouterr().err
    assert [told.count(f"alert: {orders}/{name} is no order and is passed by: ") for name in "0123"] == [1] * 4


def test_an_order_of_yesterday_is_removed_with_an_alert_and_takes_nothing(
    world: World, home: Home, capfd: pytest.CaptureFixture[str]
) -> None:
    order = Path(home.queue, "ondemand/customer.example/order/1")
    order.parent.mkdir(0o2750)
    order.write_bytes(order_about_all(home, DOMAIN, DELETE_STORED))
    os.utime(order, (time.time(), time.time() - ORDER_LIFETIME - 1))
    world.ask(ORDERS)
    world.until(lambda: not order.exists())
    world.until(lambda: not world.disk.busy)
    assert len(pending(home)) == 3
    assert "the order to delete stored mail could not be carried out in full within a day" in capfd.readouterr().err


def test_an_order_that_failed_for_now_is_carried_out_soon_after_without_another_run(
    world: World, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(domain_times, "ORDER_FIRST", 0.2)
    write, refused = os.pwrite, list[int]()

    def full(handle: int, data: bytes, offset: int) -> int:
        if len(refused) < 3:
            refused.append(offset)
            raise OSError(errno.EIO, "Input/output error")
        return write(handle, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    order = Path(home.queue, "ondemand/customer.example/order/1")
    order.parent.mkdir(0o2750)
    order.write_bytes(order_about_all(home, DOMAIN, DELETE_STORED))
    world.ask(ORDERS)
    world.until(lambda: not world.stored())
    assert len(refused) == 3


def test_the_age_of_an_order_does_not_count_by_a_clock_that_was_set(world: World, home: Home) -> None:
    set_ago, given_ago, behind = 10.0, 20.0, 2.0 * ORDER_LIFETIME
    boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    offset = time.time() - boot
    spans = [
        ClockSpan(offset - behind, -float("inf"), boot - set_ago), ClockSpan(offset, boot - set_ago, float("inf")),
    ]  # fmt: skip
    keep_spans(f"{home.queue}/lock/clock", spans)
    order = Path(home.queue, "ondemand/customer.example/order/1")
    order.parent.mkdir(0o2750)
    order.write_bytes(order_about_all(home, DOMAIN, DELETE_STORED))
    os.utime(order, (time.time(), time.time() - behind - given_ago))
    world.keeper._clock = Clock(earlier=read_spans(f"{home.queue}/lock/clock"))
    world.ask(ORDERS)
    world.until(lambda: not world.stored())


def test_a_hold_that_came_while_a_delivery_was_under_way_ends_its_run_once_it_waits(world: World, home: Home) -> None:
    assert world.ask(FLUSH) == STARTED
    world.until(lambda: world.keeper._sent)
    hold = Path(home.queue, "ondemand/customer.example/hold")
    hold.mkdir(0o2750)
    (hold / "all").write_text("moving\n")
    assert world.ask(HOLDS) == RUNNING
    world.until(lambda: DOMAIN not in world.keeper._runs)
    assert world.ask(FLUSH) == LATER and len(world.jobs) == 2


def test_a_run_that_waits_for_a_place_takes_it_when_an_attempt_ends(home: Home) -> None:
    found = World(home, b"", b"customer.example concurrency=1\n")
    found.answers_jobs = False
    layout = open_layout(home.queue)
    number = put_mess(layout, b"x\n")
    path = os.path.relpath(layout.mess(number), layout.queue).encode()
    job = Job(7, path, b"a@example.org", DOMAIN, [b"new@customer.example"])
    found.keeper.take_job(job, time.monotonic())
    assert found.ask(FLUSH) == STARTED
    found.until(lambda: found.waits)
    report = Report(1, MESSAGE_SCOPE, [(SUCCESS, b"ok")])
    found.keeper.take_report(report, time.monotonic())
    # As queue-send does, which gives the next job as soon as it has the report.
    found.keeper.wake(time.monotonic())
    found.keeper.take_job(job._replace(number=8), time.monotonic())
    assert found.keeper._sent and not found.keeper._attempts
    found.until(lambda: any(b"stored for customer.example" in each for each in found.put))
    found.close()


def test_many_runs_that_wait_have_no_records_in_memory_and_go_on_where_they_were(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "LOADED_MAX", 0)
    found = World(home, b"customer.example:1/1\n")
    assert found.ask(FLUSH) == STARTED
    found.until(lambda: found.waits)
    assert found.keeper._limited[DOMAIN].unloaded
    found.until(lambda: not found.stored())
    assert [job.recipients[0] for job in found.jobs] == [b"u%d@customer.example" % number for number in range(3)]
    assert sum(b"started" in line for line in found.put) == 1
    found.close()


def test_a_hold_ends_a_run_that_waits(world: World, home: Home) -> None:
    assert world.ask(FLUSH) == STARTED
    world.until(lambda: world.waits)
    hold = Path(home.queue, "ondemand/customer.example/hold")
    hold.mkdir(0o2750)
    (hold / "all").write_text("moving\n")
    world.ask(HOLDS)
    world.until(lambda: not world.disk.busy and DOMAIN not in world.keeper._runs)
    assert world.ask(FLUSH) == LATER and len(world.jobs) == 2


def test_new_mail_that_a_run_leaves_no_place_for_is_stored_and_a_run_follows(
    world: World, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_limits, "LOOK_AGAIN", 0.05)
    monkeypatch.setattr(keeper_module, "LOOK_AGAIN", 0.05)
    layout = open_layout(home.queue)
    assert world.ask(FLUSH) == STARTED
    world.until(lambda: world.waits)
    number = put_mess(layout, b"x\n")
    path = os.path.relpath(layout.mess(number), layout.queue).encode()
    world.keeper.take_job(Job(7, path, b"a@example.org", DOMAIN, [b"new@customer.example"]), time.monotonic())
    world.until(lambda: any(b"stored for customer.example" in each for each in world.put))
    assert len(world.jobs) == 2
    # The limit is lifted: what waits is delivered, and what was stored meanwhile by another run.
    Path(home.control, "destinationrate").unlink()
    world.until(lambda: not world.stored())
    assert [job.recipients[0] for job in world.jobs][2:] == [b"u2@customer.example", b"new@customer.example"]


def test_what_expires_while_a_run_waits_for_its_rate_is_returned(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_limits, "LOOK_AGAIN", 0.05)
    found = World(home, b"customer.example:1/3600\n")
    assert found.ask(FLUSH) == STARTED
    found.until(lambda: found.waits)
    Path(home.control, "ondemand").write_bytes(b"customer.example:etrn probe never expire 1\n")
    for number in (1, 2):
        found.until(lambda: found.keeper.returns)
        [process] = found.keeper.returns
        assert process.group is not None
        assert [stored.recipient for stored, _ in process.group.recipients] == [b"u%d@customer.example" % number]
        os.waitpid(process.pid, 0)
        if process.pidfd is not None:
            os.close(process.pidfd)
        found.keeper.reap(process, 0)  # As if the bounce was queued.
    found.until(lambda: not found.stored())
    assert len(found.jobs) == 1
    found.close()


def test_very_many_orders_whose_mail_is_gone_end_one_after_the_other(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "RUNS_MAX", 1)
    found = World(home, b"")
    found.answers_jobs = False
    assert found.ask(FLUSH) == STARTED
    found.until(lambda: found.jobs)
    count = sys.getrecursionlimit() // 4
    orders = [Path(home.queue, f"ondemand/gone{number}.example/order/1") for number in range(count)]
    for order in orders:
        order.parent.mkdir(0o2750, parents=True)
        order.write_bytes(pack_order(StoredOrder(DELETE_STORED)))
        found.ask(ORDERS, os.fsencode(order.parts[-3]))
    found.until(lambda: len(found.keeper._waiting) == count)
    found.answers_jobs = True
    found.keeper.take_report(Report(found.jobs[0].number, MESSAGE_SCOPE, [(SUCCESS, b"ok")]), time.monotonic())
    found.until(lambda: not found.keeper._runs and not found.stored())
    found.until(lambda: not found.disk.busy)
    assert not any(map(Path.exists, orders))
    found.close()
