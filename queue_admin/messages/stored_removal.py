"""Deletes what is stored for a domain while neither queue-send nor queue-ondemand runs. It needs no room on the disk.

It leaves what a crash of queue-ondemand may leave while it removes mail (queue_ondemand.domain_store): its next start
goes on. The caller holds sendmutex.
"""

import os

from queue_base.durable import Commit, read_file
from queue_base.home import Home
from queue_base.queue.hold_marks import remove_stored_mark
from queue_wire.files.cluster import CLUSTER_MAX, DONE, SUFFIX, cluster_number, link_name, unpack_cluster
from queue_wire.files.stored_order import StoredOrder


def remove_stored(home: Home, domain: bytes, order: StoredOrder) -> None:
    """Delete what an order takes, durably. Raises OSError."""
    place = f"{home.queue}/ondemand/{domain.decode()}"
    numbers = sorted(number for name in os.listdir(place) if (number := cluster_number(name)))
    for number in numbers:
        path = f"{place}/{number}{SUFFIX}"
        cluster = unpack_cluster(read_file(path, CLUSTER_MAX))
        taken, needed = list[int](), set[str]()
        gone: set[str] = set()
        for record in cluster.pending:
            stored = record.stored
            if order.takes(stored.long_id, stored.recipient, number, cluster.seed, record.offset):
                taken.append(record.offset)
                gone.add(stored.long_id)
            else:
                needed.add(stored.long_id)
        if not taken:
            continue
        _mark(path, taken)
        commit = Commit()
        for long_id in gone - needed:
            remove_stored_mark(place, numbers, number, long_id)
            commit.unlink(f"{place}/mess/{link_name(number, long_id)}")
        commit.sync()
        if not needed:
            os.unlink(path)


def _mark(path: str, offsets: list[int]) -> None:
    """Mark records done, durably: their messages are removed after that."""
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        for offset in offsets:
            os.pwrite(handle, DONE, offset)
        os.fsync(handle)
    finally:
        os.close(handle)
