"""What SMTP has to know of a message is found once for all of its deliveries, and never stalls the others."""

import asyncio
import errno
import gc
import os
import time
from pathlib import Path

import pytest

from queue_remote.message.file import CHUNK, Message, open_message
from queue_remote.message.message_scan import Facts, Scans


class Looks:
    """os.pread, which counts its calls, and fails while `failing`."""

    def __init__(self) -> None:
        self.count = 0
        self.failing = False
        self._pread = os.pread

    def __call__(self, descriptor: int, count: int, offset: int) -> bytes:
        self.count += 1
        if self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._pread(descriptor, count, offset)


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    counting = Looks()
    monkeypatch.setattr(os, "pread", counting)
    return counting


def opened(path: Path) -> Message:
    return Message(os.open(path, os.O_RDONLY))


def test_fifty_deliveries_of_a_large_message_scan_it_once(tmp_path: Path, looks: Looks) -> None:
    path = tmp_path / "message"
    path.write_bytes(b"Subject: x\n\n" + b"x" * (10 * CHUNK) + b"\xe9")

    async def run() -> None:
        scans = Scans(lines=True)
        messages = [opened(path) for _ in range(50)]
        found = await asyncio.gather(*[scans.find(message) for message in messages])
        assert found == [Facts(True, long_lines=True, wire_size=path.stat().st_size + 4)] * 50
        again = opened(path)
        assert await scans.find(again) == found[0]
        assert 11 <= looks.count <= 12
        for message in (*messages, again):
            assert message.read().startswith(b"Subject")
            message.close()

    asyncio.run(run())


def test_another_message_with_the_same_inode_is_looked_at_again(tmp_path: Path) -> None:
    path = tmp_path / "message"

    async def run() -> None:
        scans = Scans(lines=False)
        for tail, expected in ((b"x", False), (b"\xe9", True)):
            path.write_bytes(b"Subject: x\n\n" + b"x" * CHUNK + tail)
            os.utime(path, ns=(0, int(expected)))
            message = opened(path)
            assert (await scans.find(message)).eight_bit is expected
            message.close()

    asyncio.run(run())


def test_a_small_message_is_read_once_for_its_facts_and_its_sending(tmp_path: Path, looks: Looks) -> None:
    path = tmp_path / "message"
    path.write_bytes(b"Subject: x\n\n\xe9\n")
    message = opened(path)
    assert asyncio.run(Scans(lines=False).find(message)) == Facts(True, wire_size=17)
    path.write_bytes(b"changed")
    message.put_ahead(b"DKIM-Signature: y\n")
    assert message.read() == b"DKIM-Signature: y\nSubject: x\n\n\xe9\n"
    assert message.ended
    message.close()
    assert looks.count == 1


def test_a_scan_that_failed_is_done_again(tmp_path: Path, looks: Looks) -> None:
    path = tmp_path / "message"
    path.write_bytes(b"x" * (CHUNK + 1))

    async def run() -> None:
        scans = Scans(lines=False)
        broken, good = opened(path), opened(path)
        looks.failing = True
        with pytest.raises(OSError, match="Input/output error"):
            await scans.find(broken)
        broken.close()
        looks.failing = False
        assert await scans.find(good) == Facts(wire_size=CHUNK + 3)
        good.close()

    asyncio.run(run())


def test_the_event_loop_turns_while_a_large_message_is_scanned(tmp_path: Path) -> None:
    path = tmp_path / "message"
    path.write_bytes(b"line of text\n" * 4_000_000)

    async def run() -> None:
        message = open_message(str(path))
        scan = asyncio.create_task(Scans(lines=True).find(message))
        longest, turns, last = 0.0, 0, time.thread_time()
        while not scan.done():
            await asyncio.sleep(0)
            longest, turns, last = max(longest, time.thread_time() - last), turns + 1, time.thread_time()
        assert turns > 500
        assert longest < 0.05
        message.close()

    # To look through all that the tests of this process hold is no part of the scan's work.
    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()
