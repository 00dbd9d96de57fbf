"""A queue-remote takes jobs of the local channel, too: its places are divided, and none is lost."""

import os
from collections.abc import Iterator

import pytest

from queue_send.delivery.delivery_daemon import DeliveryDaemon, choose_daemon
from queue_send.scheduler.model import Attempt, Entry

ENTRY = Entry(Attempt(1, b"", 0, 0), b"lmtp:/l", [(0, b"a@b")])


@pytest.fixture
def daemon() -> Iterator[DeliveryDaemon]:
    reader, writer = os.pipe()
    made = DeliveryDaemon("queue-remote", writer, reader)
    yield made
    os.close(reader)
    os.close(writer)


def test_remote_mail_leaves_places_for_local_mail(daemon: DeliveryDaemon) -> None:
    assert daemon.full and daemon.full_of_lent
    daemon.capacity = 10
    daemon.keep_places(3)
    for number in range(7):
        assert not daemon.full
        daemon.start(number, ENTRY, b"")
    assert daemon.full
    for number in range(7, 10):
        assert not daemon.full_of_lent
        daemon.start_lent(number, ENTRY, b"")
    assert daemon.full_of_lent
    assert choose_daemon([daemon], b"lmtp:/l", lent=True) is daemon


@pytest.mark.parametrize(("kept", "room"), [(0, 10), (3, 7), (1000, 5)])
def test_at_most_half_of_the_places_are_kept(daemon: DeliveryDaemon, kept: int, room: int) -> None:
    daemon.capacity = 10
    daemon.keep_places(kept)
    for number in range(room):
        assert not daemon.full
        daemon.start(number, ENTRY, b"")
    assert daemon.full


def test_it_never_has_more_jobs_of_both_channels_than_places(daemon: DeliveryDaemon) -> None:
    daemon.capacity = 10
    daemon.keep_places(3)
    for number in range(8):
        assert not daemon.full_of_lent
        daemon.start_lent(number, ENTRY, b"")
    for number in range(8, 10):
        assert not daemon.full
        daemon.start(number, ENTRY, b"")
    assert daemon.full and daemon.full_of_lent
    daemon.keep_places(0)  # The routes were removed, and their jobs still run.
    assert daemon.full
