"""The notices of queue_send.notify.delay by themselves: what happens to a message while its notice is on its way."""

import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from queue_base.daemon.clock import Clock
from queue_base.daemon.disk_thread import DiskThread
from queue_base.durable import Commit
from queue_base.home import Home
from queue_base.queue.hold_marks import set_birth
from queue_base.queue.layout import open_layout
from queue_send.config import ConfigFiles
from queue_send.counters import Counters
from queue_send.disk_retry import DiskRetry
from queue_send.events import Events
from queue_send.log import Log
from queue_send.loop import Shutdown, TimeBudget
from queue_send.messages.announced import Announced
from queue_send.messages.message_files import Store
from queue_send.messages.transitions import MessageEvent
from queue_send.notify import delay as module
from queue_send.notify.delay import DelayNotifier
from queue_send.scheduler.model import Attempt
from queue_send.shared_parts import SharedParts
from support.processes.forked import BIN
from support.queues.home import make_home
from support.queues.queued import classified_message, injected

HOUR = 3600


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    # Programs of the suite are looked for beside the one that runs, which is pytest here.
    monkeypatch.setattr(sys, "argv", [str(BIN / "queue-send")])
    made = make_home(tmp_path / "home", split=3)
    Path(made.control, "delaywarning").write_text("4h\n")
    return made


class Place:
    """A DelayNotifier with a store, and what it did; `ended` are messages that may end."""

    def __init__(self, home: Home) -> None:
        reader, writer = os.pipe()
        self._reader = reader
        self._home = home
        self.logger = Log(writer)
        self.layout = open_layout(home.queue)
        config, shutdown = ConfigFiles(home, self.logger), Shutdown(self.logger)
        self.store = Store(self.layout, Announced(self.layout, self.logger, config, shutdown, lambda command: None))
        self.events = Events()
        parts = SharedParts(
            self.store, self.logger, Clock(), config, DiskThread(), DiskRetry(self.logger), TimeBudget(), shutdown,
            self.events, Counters(),
        )  # fmt: skip
        self.delays = DelayNotifier(home, parts)
        self.ended: list[int] = []

    def attempt(self, message: int, sender: bytes = b"a@example.org") -> Attempt:
        birth = self.store.load(message)[1]
        return Attempt(message, sender, birth, birth + 604800)

    def turn(self) -> None:
        """One turn of the loop."""
        poll = select.poll()
        wait = self.delays.prepare(poll, time.time())
        self.delays.run(dict(poll.poll(min(wait, 0.05) * 1000)), time.time())
        while self.events:
            self.ended.append(self.events.popleft().message)

    def turn_until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end
            self.turn()

    def log(self) -> list[str]:
        self.logger.run({1: select.POLLOUT}, time.time())
        self.logger.finish()
        os.set_blocking(self._reader, False)
        try:
            return os.read(self._reader, 65536).decode().splitlines()
        except BlockingIOError:
            return []

    def injected(self) -> list[bytes]:
        return [data for _, data in injected(self._home)]


def old_message(home: Home, age: float = 5 * HOUR) -> int:
    return classified_message(home, remote=[b"b@c"], birth=time.time() - age)


def test_a_message_that_is_held_before_its_notice_is_composed_makes_none(home: Home) -> None:
    place, message = Place(home), old_message(home)
    place.delays.deferred(place.attempt(message), time.time())
    assert place.delays.holds(message)
    place.store.records.step(MessageEvent.MARKED, message)
    place.turn_until(lambda: not place.delays.holds(message))
    assert place.injected() == [] and place.log() == []


def test_a_message_with_a_new_birth_before_its_notice_is_composed_makes_none(home: Home) -> None:
    place, message = Place(home), old_message(home)
    place.delays.deferred(place.attempt(message), time.time())
    set_birth(place.layout, message, int(time.time() * 1_000_000), Commit())
    place.turn_until(lambda: not place.delays.holds(message))
    assert place.injected() == []


def test_a_message_that_is_told_of_and_then_born_again_is_told_of_at_its_next_age(home: Home) -> None:
    place, message = Place(home), old_message(home)
    for age in (5 * HOUR, 0):
        place.delays.deferred(place.attempt(message), time.time() + age)
        place.turn_until(lambda: not place.delays.holds(message))
        set_birth(place.layout, message, int(time.time() * 1_000_000), Commit())
    assert len(place.injected()) == 1
    later = time.time() + 5 * HOUR
    place.delays.deferred(place.attempt(message), later)
    assert place.delays.holds(message)


def test_a_message_whose_recipients_are_all_done_meanwhile_makes_no_notice(home: Home) -> None:
    place, message = Place(home), old_message(home)
    place.delays.deferred(place.attempt(message), time.time())
    place.store.mark_done(message, "remote", [0])
    place.turn_until(lambda: not place.delays.holds(message))
    assert place.injected() == []


def test_a_message_may_not_end_while_queue_enqueue_has_its_notice_and_ends_after_that(home: Home) -> None:
    place, message = Place(home), old_message(home)
    place.delays.deferred(place.attempt(message), time.time())
    place.turn_until(lambda: place.delays.busy)
    assert not place.delays.release(message) and not place.delays.release(message)
    assert place.ended == []
    place.turn_until(lambda: bool(place.ended))
    assert place.ended == [message] and place.delays.release(message)
    assert [line.split()[:3] for line in place.log()] == [["delay", "msg", str(message)]]


def test_a_message_that_ends_before_its_notice_is_composed_makes_none_nor_does_the_next_of_its_number(
    home: Home,
) -> None:
    place, message = Place(home), old_message(home)
    place.delays.deferred(place.attempt(message), time.time())
    assert place.delays.release(message)
    for _ in range(3):
        place.turn()
    assert place.injected() == [] and not place.delays.busy


def test_no_more_messages_wait_for_their_notice_than_the_limit(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    place, messages = Place(home), [old_message(home) for _ in range(3)]
    for message in messages:
        place.delays.deferred(place.attempt(message), time.time())
    assert [place.delays.holds(message) for message in messages] == [True, True, False]
    place.turn_until(lambda: not any(map(place.delays.holds, messages)))
    place.delays.deferred(place.attempt(messages[2]), time.time())
    assert place.delays.holds(messages[2])


def test_texts_are_kept_within_their_limit_and_given_back(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TEXTS_MAX", 1000)
    place, one, two = Place(home), old_message(home), old_message(home)
    attempts = [place.attempt(one), place.attempt(two)]
    now = time.time()
    place.delays.keep_text(attempts[0], b"b@c", b"x" * 2000, now)
    place.delays.keep_text(attempts[1], b"b@c", b"Remote host said: 451 second\n", now)
    for attempt in attempts:
        place.delays.deferred(attempt, now)
        place.turn_until(lambda: not place.delays.holds(one) and not place.delays.holds(two))
    assert [b"451 second" in notice for notice in place.injected()] == [False, False]
    third = old_message(home)
    place.delays.keep_text(place.attempt(third), b"b@c", b"Remote host said: 451 third\n", now)
    place.delays.deferred(place.attempt(third), now)
    place.turn_until(lambda: not place.delays.holds(third))
    assert sum(b"451 third" in notice for notice in place.injected()) == 1
