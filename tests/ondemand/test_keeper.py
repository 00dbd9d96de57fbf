"""What queue-ondemand's loop does in one turn stays short, however many domains have stored mail."""

import os
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_base.daemon.disk_thread import DiskThread
from queue_base.queue.layout import open_layout
from queue_ondemand.domain_store import DomainStore, StoreRequest
from queue_ondemand.keeper import RUNS_MOST, Keeper
from queue_ondemand.ondemand_files import OnDemandFiles
from queue_ondemand.remote_link import RemoteLink
from queue_wire.admin.ondemand_socket import ETRN, STARTED, RunRequest
from queue_wire.files.cluster import StoredRecipient
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


def test_a_request_for_very_many_domains_takes_one_short_turn(tmp_path: Path, remote: RemoteLink) -> None:
    home = make_home(tmp_path / "home")
    layout = open_layout(home.queue)
    message = Path(home.queue, "mess", "0", "1")
    message.write_bytes(b"x")
    store = DomainStore(home.queue)
    requests = []
    for number in range(DOMAINS):
        stored = StoredRecipient(1, 1_700_000_000_000_000, 1, b"", b"a@b", 0)
        requests.append(StoreRequest(b"d%d.example" % number, "mess/0/1", [stored], 0))
    for place in range(0, DOMAINS, 100):
        assert store.append(requests[place : place + 100]) == [None] * 100
    lines: list[bytes] = []
    disk = DiskThread()
    keeper = Keeper(home, layout, store, OnDemandFiles(home), disk, remote, lines.append)
    begun = time.thread_time()
    assert keeper.answer(RunRequest(ETRN, b"@example", b"192.0.2.1")).word == STARTED
    spent = time.thread_time() - begun
    assert len(lines) == RUNS_MOST
    assert spent < 0.1
    while disk.busy:
        poll = select.poll()
        disk.prepare(poll, 0.0)
        disk.run(dict(poll.poll(60_000)), 0.0)
