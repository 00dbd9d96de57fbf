"""DiskThread: who does the work, and how its results come to the loop."""

import errno
import os
import select
import threading

import pytest

from queue_base.daemon.disk_thread import DiskThread, Result


def no_disk() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def no_memory() -> None:
    raise MemoryError


def deliver(disk: DiskThread) -> None:
    """Turn as a loop does, until all results were delivered."""
    while disk.busy:
        poll = select.poll()
        wait = disk.prepare(poll, 0.0)
        disk.run(dict(poll.poll(min(wait, 60.0) * 1000)), 0.0)


@pytest.mark.parametrize("in_memory", [False, True])
def test_work_is_done_in_order_and_each_result_is_told_in_the_loop(in_memory: bool) -> None:
    disk = DiskThread(in_memory)
    done: list[int] = []
    workers: set[int] = set()
    told: list[Result] = []

    def work(number: int) -> None:
        done.append(number)
        workers.add(threading.get_ident())

    for number in range(3):
        disk.submit(lambda number=number: work(number), told.append)  # type: ignore[misc]
    disk.submit(no_disk, told.append)
    disk.submit(no_memory, told.append, syncs=False)
    assert disk.busy and not told
    deliver(disk)
    assert done == [0, 1, 2] and (workers == {threading.get_ident()}) is in_memory
    assert [result and result.errno for result in told] == [None, None, None, errno.EIO, errno.ENOMEM]
    assert (disk.done, disk.commits) == (5, 4)


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_bug_in_the_work_ends_the_loop(in_memory: bool) -> None:
    disk = DiskThread(in_memory)
    disk.submit(lambda: None.x, lambda result: None)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        deliver(disk)


def test_work_that_a_result_leads_to_is_done_as_well() -> None:
    disk = DiskThread(in_memory=True)
    told: list[Result] = []
    disk.submit(lambda: None, lambda result: disk.submit(no_disk, told.append))
    deliver(disk)
    assert [result and result.errno for result in told] == [errno.EIO]
