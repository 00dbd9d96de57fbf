"""The loop of watch, with a clock of its own and work that only says what it would do."""

import io
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.errors import Failure, Permanent, Temporary
from queue_report.lake.build import Order, Summary
from queue_report.lake.lake import LaterLake
from queue_report.watch import lake_work
from queue_report.watch.clock import SystemClock, Wish
from queue_report.watch.lake_work import LakeWork
from queue_report.watch.memory import give_back, parse_size, resident
from queue_report.watch.watch import IDLE, Watch, Work
from support.spark.runner import InProcess


class FakeClock:
    """A clock that goes on when somebody waits; wishes come at their times."""

    def __init__(self, until: float, wishes: dict[float, Wish] | None = None) -> None:
        self.time = 0.0
        self.wishes = dict(wishes or {}) | {until: Wish.STOP}

    def now(self) -> float:
        return self.time

    def wait(self, until: float) -> Wish:
        first = min(self.wishes)
        if first <= max(until, self.time):
            self.time = max(self.time, first)
            return self.wishes.pop(first)
        self.time = max(self.time, until)
        return Wish.TIME


class FakeWork:
    """Work of some seconds a batch; `failures` come instead of a batch's result, in order."""

    def __init__(self, clock: FakeClock, lines: int = 10, takes: float = 0.5) -> None:
        self.clock, self.lines, self.takes = clock, lines, takes
        self.failures: list[Failure | None] = []
        self.page_failure: Failure | None = None
        self.begun: list[float] = []
        self.tidied = self.pages = self.ended = 0
        self.session_used: float | None = None
        self.excess = 0
        self.tidy_summary = Summary(compacted=7, expired=2)

    def build(self, tidy: bool) -> Summary:
        if tidy:
            self.tidied += 1
            return self.tidy_summary
        self.begun.append(self.clock.time)
        self.clock.time += self.takes
        failure = self.failures.pop(0) if self.failures else None
        if failure:
            raise failure
        lines = {"new": self.lines - 1, "quarantine": 1} if self.lines else {}
        return Summary(1, 100, lines, 1, {"messages": 3}) if lines else Summary()

    def write_page(self) -> bool:
        self.pages += 1
        if self.page_failure:
            raise self.page_failure
        return True

    def used(self) -> float | None:
        return self.session_used

    def let_go(self) -> None:
        self.session_used = None
        self.ended += 1

    def memory(self) -> int:
        return self.excess


def run(clock: FakeClock, work: FakeWork) -> list[str]:
    checked: Work = work
    out = io.StringIO()
    try:
        assert not Watch(checked, clock, 60.0, out).run()
    finally:
        work.said = out.getvalue().splitlines()  # type: ignore[attr-defined]
    return out.getvalue().splitlines()


def test_a_batch_begins_every_minute_and_is_a_line() -> None:
    clock = FakeClock(150.0)
    work = FakeWork(clock)
    assert run(clock, work) == [
        "batch 1: 10 lines of 1 queue, 3 rows, 1 quarantined, 0.50 s",
        "page: written, 0.00 s",
        "batch 2: 10 lines of 1 queue, 3 rows, 1 quarantined, 0.50 s",
        "page: written, 0.00 s",
        "batch 3: 10 lines of 1 queue, 3 rows, 1 quarantined, 0.50 s",
        "page: written, 0.00 s",
        "status: exiting",
    ]
    assert work.begun == [0.0, 60.0, 120.0] and work.ended == 1


def test_a_batch_that_takes_too_long_says_what_was_skipped() -> None:
    clock = FakeClock(200.0)
    work = FakeWork(clock, lines=0, takes=130.0)
    assert run(clock, work)[0] == "batch 1: nothing new, 130.00 s; it took longer than every 60 s: 2 skipped"
    assert work.begun == [0.0, 180.0]


def test_a_hangup_asks_for_a_batch_now_and_for_no_other() -> None:
    clock = FakeClock(130.0, {30.0: Wish.BATCH})
    work = FakeWork(clock)
    run(clock, work)
    assert work.begun == [0.0, 30.0, 60.0, 120.0]


def test_temporary_trouble_is_one_line_and_a_growing_pause() -> None:
    clock = FakeClock(600.0)
    work = FakeWork(clock, lines=0)
    full = Temporary("unable to build lake /srv/lake: no space left on device; it is as it was")
    work.failures = [full, full, full, None]
    said = run(clock, work)
    assert said[0] == f"warning: {full}; trying again in 60 s"
    assert [line.rsplit(" in ")[1] for line in said[:3]] == ["60 s", "120 s", "240 s"]
    assert said[3].startswith("batch 4: ") and work.begun[:5] == [0.0, 60.0, 180.0, 420.0, 480.0]


def test_a_hangup_ends_the_pause() -> None:
    clock = FakeClock(200.0, {90.0: Wish.BATCH})
    work = FakeWork(clock, lines=0)
    work.failures = [Temporary("x"), Temporary("x")]
    run(clock, work)
    assert work.begun == [0.0, 60.0, 90.0, 120.0, 180.0]


def test_permanent_trouble_at_the_start_ends_it_and_the_session() -> None:
    clock = FakeClock(600.0)
    work = FakeWork(clock)
    work.failures = [Temporary("busy"), Permanent("unable to read logs /logs: they are syslog's")]
    with pytest.raises(Permanent, match="syslog"):
        run(clock, work)
    assert work.ended == 1 and len(work.begun) == 2


def test_permanent_trouble_after_a_batch_that_succeeded_is_a_warning_and_a_pause() -> None:
    clock = FakeClock(400.0)
    work = FakeWork(clock, lines=0)
    gone = Permanent("unable to read logs /logs: no such file or directory; the lake is as it was")
    work.failures = [None, gone, gone, None]
    said = run(clock, work)
    assert [line for line in said if line.startswith("warning")] == [
        f"warning: {gone}; trying again in 60 s",
        f"warning: {gone}; trying again in 120 s",
    ]
    assert work.begun[:4] == [0.0, 60.0, 120.0, 240.0] and said[-1] == "status: exiting"


def test_a_lake_that_a_later_version_has_written_ends_it_at_any_time() -> None:
    clock = FakeClock(600.0)
    work = FakeWork(clock)
    work.failures = [None, LaterLake("unable to open lake /srv/lake: a later queue-report made it")]
    with pytest.raises(LaterLake):
        run(clock, work)
    assert work.ended == 1


@pytest.mark.parametrize("trouble", [Temporary, Permanent])
def test_trouble_with_the_page_is_a_warning_and_batches_go_on(trouble: type[Failure]) -> None:
    clock = FakeClock(100.0)
    work = FakeWork(clock)
    work.page_failure = trouble("unable to write /var/www/mail.html: permission denied")
    said = run(clock, work)
    assert said[1] == "warning: unable to write /var/www/mail.html: permission denied; page comes later"
    assert said[2].startswith("batch 2: ") and work.pages == 2


def test_the_lake_is_tidied_by_itself() -> None:
    clock = FakeClock(86_400.0)
    work = FakeWork(clock)
    said = run(clock, work)
    assert work.tidied == 6 and "tidy: 7 files put together, 2 expired, 0.00 s" in said


def test_what_the_log_has_while_the_lake_is_tidied_is_told_and_comes_to_the_page() -> None:
    clock = FakeClock(4000.0)
    work = FakeWork(clock, lines=0)
    work.tidy_summary = Summary(1, 100, {"new": 4}, 1, {"messages": 4}, compacted=7, warnings=["h/q/@1.s: damaged"])
    # The first batch reads something, so that there is something to tidy; the others find nothing.
    first, build = [Summary(1, 100, {"new": 9}, 1, {"messages": 9})], work.build
    work.build = lambda tidy: first.pop() if first else build(tidy)  # type: ignore[method-assign]
    said = run(clock, work)
    tidied = said.index("tidy: 4 lines of 1 queue, 4 rows, 7 files put together, 0 expired, 0.00 s")
    assert said[tidied - 1] == "warning: h/q/@1.s: damaged"
    assert said[tidied + 1] == "page: written, 0.00 s" and work.pages == 2


def test_a_session_that_nobody_uses_is_ended() -> None:
    clock = FakeClock(2000.0)
    work = FakeWork(clock, lines=0)
    work.session_used = 30.0
    said = run(clock, work)
    assert f"session: ended, not used for {IDLE:.0f} s" in said
    assert work.begun[:12] == [60.0 * number for number in range(12)]


def test_a_process_that_has_grown_too_large_asks_to_be_started_again() -> None:
    clock = FakeClock(2000.0)
    work = FakeWork(clock)
    work.excess = 300_000_000
    out = io.StringIO()
    assert Watch(work, clock, 60.0, out).run()
    assert out.getvalue().splitlines()[-1] == "restarting: 300 MB too much memory are in use"
    assert work.ended == 1


@pytest.fixture
def clock() -> Iterator[SystemClock]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield SystemClock()
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)


def test_signals_are_wishes_and_a_second_end_is_at_once(clock: SystemClock) -> None:
    assert clock.wait(clock.now() + 0.01) is Wish.TIME
    os.kill(os.getpid(), signal.SIGHUP)
    assert clock.wait(clock.now() + 60) is Wish.BATCH
    assert clock.wait(clock.now() + 0.01) is Wish.TIME
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    began = time.monotonic()
    assert clock.wait(began + 60) is Wish.STOP and time.monotonic() < began + 30
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("text", "size"), [("512m", 512 << 20), ("2g", 2 << 30), ("2GiB", 2 << 30), ("1048576", 1 << 20), ("4kb", 4096)]
)
def test_a_size_is_read_as_people_write_it(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "m", "2x", "-1g", "1.5g", "9" * 30])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        parse_size(text)


def test_memory_is_measured_and_can_be_given_back(tmp_path: Path) -> None:
    assert resident(os.getpid()) > 1 << 20
    give_back()
    assert resident(2**22 + 1) == 0


def test_a_batch_s_warnings_are_said_once_while_they_stay_the_same() -> None:
    class Warns(FakeWork):
        def build(self, tidy: bool) -> Summary:
            done = super().build(tidy)
            done.warnings = ["mx1/q: cannot read @4000.s"] if self.clock.time < 130 else []
            return done

    clock = FakeClock(300.0)
    said = run(clock, Warns(clock, lines=0))
    assert [line for line in said if line.startswith("warning")] == ["warning: mx1/q: cannot read @4000.s"]


class Asked:
    """What a watch asks a session and an engine for."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.settings: dict[str, str] = {}
        self.engine: dict[str, object] = {}
        patch.setattr(lake_work, "Sessions", self._begin)
        patch.setattr("queue_report.reports.choice.open_engine", self._open)

    def _begin(self, master: str | None, settings: dict[str, str]) -> InProcess:
        self.settings = settings
        return InProcess()

    def _open(self, lake: str, **words: object) -> None:
        self.engine = words
        raise Permanent("enough")


def test_a_connect_server_keeps_its_own_heap_however_it_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses a setting that is the server's."""
    asked = Asked(monkeypatch)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    LakeWork(Order("logs", "lake"), None, 2 << 30, None)
    assert asked.settings == {"spark.driver.memory": "1024m"}
    LakeWork(Order("logs", "lake"), None, 2 << 30, "sc://spark.example")
    assert asked.settings == {}
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark.example")
    LakeWork(Order("logs", "lake"), None, 2 << 30, None)
    assert asked.settings == {}


def test_the_page_of_a_lake_in_a_store_is_made_with_the_store_s_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, settings = Asked(monkeypatch), {"spark.queueReport.store.AWS_ENDPOINT_URL": "http://minio.example"}
    with pytest.raises(Permanent, match="enough"):
        LakeWork(Order("logs", "s3://mail", settings=settings), tmp_path / "page.html", 2 << 30, None).write_page()
    assert asked.engine["settings"] == settings
