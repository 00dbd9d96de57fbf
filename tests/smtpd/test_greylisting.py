"""Greylisting: who has to wait, what is remembered, in how many rows, and what trouble with the file does."""

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_base.home import Home
from queue_smtpd.processes.log_writer import LogWriter
from queue_smtpd.strangers import greylist_thread
from queue_smtpd.strangers.greylist_store import GreylistStore
from queue_smtpd.strangers.greylist_thread import FILE, Greylist
from queue_smtpd.strangers.greylisting import GreylistVerdict, KnownNetwork, Triplet, judge_attempt
from queue_wire.control.strangers.greylist import GreylistRules, unpack_greylist
from queue_wire.format_error import FormatError

RULES = GreylistRules(delay=300, window=10_000, expiry=100_000, known=2, rows=100)
NOW = 1_000_000


class Lines(LogWriter):
    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, lines: list[bytes]) -> None:
        self.lines += lines


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GreylistStore]:
    store = GreylistStore(str(tmp_path / FILE))
    yield store
    store.close()


def test_a_new_triplet_waits_and_passes_when_the_delay_is_over() -> None:
    first = judge_attempt(None, None, NOW, RULES)
    assert first == GreylistVerdict(300, Triplet(NOW, NOW))
    assert judge_attempt(first.triplet, None, NOW + 100, RULES) == GreylistVerdict(200)
    passed = judge_attempt(first.triplet, None, NOW + 300, RULES)
    assert passed == GreylistVerdict(0, Triplet(NOW, NOW + 300, True), KnownNetwork(1, NOW + 300))
    assert judge_attempt(passed.triplet, passed.network, NOW + 301, RULES) == GreylistVerdict(0)


def test_what_was_not_used_for_long_begins_anew() -> None:
    again = GreylistVerdict(300, Triplet(NOW, NOW))
    assert judge_attempt(Triplet(NOW - RULES.window - 1, NOW - 1), None, NOW, RULES) == again
    assert judge_attempt(Triplet(0, NOW - RULES.expiry - 1, True), None, NOW, RULES) == again
    assert judge_attempt(Triplet(0, NOW - RULES.expiry, True), None, NOW, RULES).wait == 0
    assert judge_attempt(None, KnownNetwork(9, NOW - RULES.expiry - 1), NOW, RULES) == again


def test_a_clock_that_was_set_back_makes_nobody_wait_longer_than_the_delay() -> None:
    assert judge_attempt(Triplet(NOW + 5000, NOW + 5000), None, NOW, RULES) == GreylistVerdict(300, Triplet(NOW, NOW))


def test_a_network_of_which_enough_have_passed_is_known() -> None:
    assert judge_attempt(None, KnownNetwork(1, NOW), NOW, RULES).wait == 300
    assert judge_attempt(None, KnownNetwork(2, NOW), NOW, RULES) == GreylistVerdict(0)
    later = NOW + 90_000
    assert judge_attempt(None, KnownNetwork(2, NOW), later, RULES) == GreylistVerdict(0, None, KnownNetwork(2, later))
    assert judge_attempt(None, KnownNetwork(99, NOW), NOW, RULES._replace(known=0)).wait == 300


@given(st.lists(st.integers(0, 20_000), max_size=30))
def test_whoever_comes_again_within_the_window_passes_and_never_before_the_delay(waits: list[int]) -> None:
    triplet, now, first, passed = None, NOW, None, False
    for wait in waits:
        now += wait
        verdict = judge_attempt(triplet, None, now, RULES)
        assert 0 <= verdict.wait <= RULES.delay
        if passed:
            assert verdict.wait == 0
        elif first is None or now - first > RULES.window:
            first = now
            assert verdict.wait == RULES.delay
        else:
            passed = now - first >= RULES.delay
            assert (verdict.wait == 0) is passed
        triplet = verdict.triplet or triplet


def test_the_file_remembers_triplets_and_networks(store: GreylistStore, tmp_path: Path) -> None:
    def attempt(recipient: bytes, now: int, network: str = "192.0.2.0/24") -> int:
        return store.judge(network, b"A@example.net", recipient, now, RULES)

    assert attempt(b"joe@example.org", NOW) == 300
    assert attempt(b"JOE@example.org.", NOW + 299) == 1
    assert attempt(b"ann@example.org", NOW + 299) == 300
    assert attempt(b"joe@example.org", NOW + 300, "198.51.100.0/24") == 300
    assert attempt(b"joe@example.org", NOW + 300) == 0
    # Another process, or a later one.
    other = GreylistStore(str(tmp_path / FILE))
    assert other.judge("192.0.2.0/24", b"a@example.net", b"ann@example.org", NOW + 600, RULES) == 0
    other.close()
    assert attempt(b"bob@example.org", NOW + 600) == 0
    assert b"example.org" not in (tmp_path / FILE).read_bytes() + (tmp_path / f"{FILE}-wal").read_bytes()


def test_what_has_expired_is_forgotten_and_rows_are_bounded(store: GreylistStore, tmp_path: Path) -> None:
    def rows(table: str) -> int:
        with sqlite3.connect(tmp_path / FILE) as database:
            (count,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
        database.close()
        return int(count)

    store.judge("192.0.2.0/24", b"", b"joe", NOW, RULES)
    assert store.judge("192.0.2.0/24", b"", b"joe", NOW + 300, RULES) == 0
    for number in range(150):
        store.judge(f"10.0.{number}.0/24", b"", b"joe", NOW + 301, RULES)
    assert rows("triplets") == 151
    store.clean(NOW + 302, RULES)
    # The one that has passed is the last to go.
    assert rows("triplets") == RULES.rows
    assert store.judge("192.0.2.0/24", b"", b"joe", NOW + 303, RULES) == 0
    store.clean(NOW + 302 + RULES.window, RULES)
    assert (rows("triplets"), rows("networks")) == (1, 1)
    store.clean(NOW + 304 + RULES.expiry, RULES)
    assert (rows("triplets"), rows("networks")) == (0, 0)


def test_it_is_asked_in_a_thread_and_its_directory_is_made(home: Home) -> None:
    now = float(NOW)
    greylist = Greylist(home, Lines(), lambda: now)
    greylist.configure(RULES)

    async def play() -> None:
        nonlocal now
        assert await greylist.judge("192.0.2.1", b"a@example.net", b"joe@example.org") == 300
        now += 300
        # Another host of the same network.
        assert await greylist.judge("192.0.2.2", b"a@example.net", b"joe@example.org") == 0
        assert await greylist.judge("2001:db8::1", b"a@example.net", b"joe@example.org") == 300

    asyncio.run(play())
    assert os.stat(home.greylist).st_mode & 0o777 == 0o700


def test_a_file_that_cannot_be_used_means_no_greylisting_and_one_alert(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greylist_thread, "REST_SECONDS", 0.0)
    log = Lines()
    os.mkdir(home.greylist)
    file = Path(home.greylist, FILE)
    file.write_bytes(b"This is no database. " * 100)
    greylist = Greylist(home, log)

    async def ask() -> int:
        return await greylist.judge("192.0.2.1", b"", b"joe@example.org")

    assert [asyncio.run(ask()) for _ in range(2)] == [0, 0]
    assert len(log.lines) == 1
    assert log.lines[0].startswith(b"alert: unable to use %s: file is not a database; nobody" % str(file).encode())
    file.unlink()
    assert asyncio.run(ask()) == GreylistRules().delay
    assert len(log.lines) == 1


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_removed_or_replaced_in_use_is_opened_again(home: Home, processes: int, replaced: bool) -> None:
    log = Lines()
    file = Path(home.greylist, FILE)
    all_ = [Greylist(home, log, lambda: NOW) for _ in range(processes)]

    def rows() -> list[tuple[int]]:
        with closing(sqlite3.connect(file)) as database:
            return list(database.execute("SELECT first FROM triplets"))

    async def ask(greylist: Greylist, sender: bytes) -> int:
        return await greylist.judge("192.0.2.1", sender, b"joe@example.org")

    for greylist in all_:
        assert asyncio.run(ask(greylist, b"a@example.net")) == GreylistRules().delay
    assert len(rows()) == 1
    if replaced:
        other = GreylistStore(str(file) + ".new")
        other.judge("198.51.100.0/24", b"", b"", NOW - 5, GreylistRules())
        other.close()
        os.rename(str(file) + ".new", file)
    else:
        file.unlink()
    # A process that closes the old file last may take the new one's log away, once.
    for _ in range(3):
        for number, greylist in enumerate(all_):
            assert asyncio.run(ask(greylist, b"b%d@example.net" % number)) == GreylistRules().delay
    assert sorted(rows()) == [(NOW - 5,)] * replaced + [(NOW,)] * processes
    assert not log.lines


@pytest.mark.parametrize(("seconds", "waits"), [(10.0, [300] * 4), (0.0, [0, 0, 300, 300])])
def test_who_asks_for_more_than_the_thread_keeps_up_with_has_to_wait_unless_it_is_stalled(
    home: Home, monkeypatch: pytest.MonkeyPatch, seconds: float, waits: list[int]
) -> None:
    monkeypatch.setattr(greylist_thread, "PENDING_MAX", 2)
    monkeypatch.setattr(greylist_thread, "STALLED_SECONDS", seconds)
    log = Lines()
    greylist = Greylist(home, log)

    async def play() -> list[int]:
        return await asyncio.gather(*(greylist.judge(f"10.0.{number}.1", b"", b"joe") for number in range(4)))

    assert sorted(asyncio.run(play())) == waits
    assert [b"sqlite: no answer within" in line for line in log.lines] == [True] * (not seconds)


def test_the_lines_of_greylist() -> None:
    assert unpack_greylist(b"") == GreylistRules()
    rules = unpack_greylist(b"# ours\ndelay 1m\nwindow 1d\nexpiry 7d\nknown 0\nrows 5000\n")
    assert rules == GreylistRules(60, 86400, 7 * 86400, 0, 5000)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"delays 5m", "line 2: not one of delay, window"),
        (b"delay", "line 2: not a name and one value"),
        (b"delay 0", "line 2: not a time"),
        (b"delay 3d", "the delay must be shorter than the window"),
        (b"known -1", "line 2: not a number from 0"),
        (b"rows 99", "line 2: not a number from 100"),
        (b"expiry 1d", "line 2: a second line for expiry"),
    ],
)
def test_a_line_of_greylist_that_cannot_be_used_is_named(line: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        unpack_greylist(b"expiry 9d\n" + line + b"\n")
