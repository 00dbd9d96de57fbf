"""Measures the rate of batches, their syncs, and the memory of a large one."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from disk import in_memory
from processes import NOTHING, resident, wait_for_usage
from queue_base.home import Home
from queue_base.queue.layout import open_layout
from support.inject.packing import pack_bsmtp, pack_pair, quote_mbox
from support.queues.home import make_home
from syncs import read_syncs, sync_trace_command

ROOT = Path(__file__).resolve().parents[2]
FORMATS = ("mbox", "mboxo", "bsmtp", "netstring")
SENDER = b"ann@example.org"
BODY = b"A line of an ordinary message, of some length.\n" * 40


_ONE_SYNCFS = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import queue_base.durable as durable
def sync_handles(files, directories=()):
    for handle, _ in [*files, *directories][:1]:
        durable.sync_filesystem(handle)
durable.sync_handles = sync_handles
from queue_inject.main import main
sys.exit(main(sys.argv))
"""
_DIRTY = """
import os, sys
piece = os.urandom(1 << 20)
while True:
    with open(sys.argv[1], "wb", buffering=0) as file:
        for _ in range(int(sys.argv[2])):
            file.write(piece)
"""


def letter(number: int) -> bytes:
    """Return a message of 2 kB."""
    head = b"From: Ann <%s>\nTo: Bob <bob%d@example.net>\nSubject: number %d\n" % (SENDER, number, number)
    return head + b"Date: Fri, 20 Nov 2026 10:00:00 +0000\nMessage-ID: <%d@example.org>\n\n" % number + BODY


def packed(form: str, number: int) -> bytes:
    """Return the message as a batch of a format has it."""
    if form.startswith("mbox"):
        return quote_mbox(letter(number), rd=form == "mbox")
    return (pack_bsmtp if form == "bsmtp" else pack_pair)(SENDER, [b"bob%d@example.net" % number], letter(number))


@contextlib.contextmanager
def new_home(top: Path) -> Iterator[Home]:
    """Give a new home in a directory; on tmpfs it is removed at the end.

    On a disk it stays until all is measured: ext4 looks through the inodes that were removed in the last seconds
    for each new file, which would be the next home's cost.
    """
    path = Path(tempfile.mkdtemp(prefix="home-", dir=top)) / "home"
    try:
        yield make_home(path)
    finally:
        if in_memory(top):
            shutil.rmtree(path.parent, ignore_errors=True)


def command(home: Home, form: str, reference: bool = False) -> list[str]:
    program = ["-c", _ONE_SYNCFS] if reference else [str(ROOT / "bin/queue-inject")]
    return [sys.executable, *program, "--home", home.path, "--batch", form]


@contextlib.contextmanager
def dirty_data(top: Path, megabytes: int) -> Iterator[None]:
    """Let another process write this many megabytes to the disk again and again, without a sync."""
    path = top / "dirty"
    process = subprocess.Popen([sys.executable, "-c", _DIRTY, str(path), str(megabytes)])
    try:
        while not path.exists() or path.stat().st_size < megabytes << 18:
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()
        path.unlink(missing_ok=True)


def rate(top: Path, batch: Path, form: str, count: int, reference: bool = False) -> tuple[float, float]:
    """Return messages a second, and microseconds of CPU a message, of a batch in a file.

    The reference is the same batch where each wait for the disk is one syncfs.
    """
    with new_home(top) as home, batch.open("rb") as data:
        begin = time.perf_counter()
        process = subprocess.Popen(command(home, form, reference), stdin=data, stdout=subprocess.DEVNULL)
        used = wait_for_usage(process)
        return count / (time.perf_counter() - begin), used.cpu / count * 1e6


def rate_together(top: Path, batch: Path, form: str, count: int, batches: int) -> tuple[float, float]:
    """Return messages a second, and microseconds of CPU a message, of so many batches at once into one queue."""
    with new_home(top) as home:
        begin = time.perf_counter()
        running = []
        for _ in range(batches):
            with batch.open("rb") as data:
                running.append(subprocess.Popen(command(home, form), stdin=data, stdout=subprocess.DEVNULL))
        used = sum(map(wait_for_usage, running), NOTHING)
        return batches * count / (time.perf_counter() - begin), used.cpu / (batches * count) * 1e6


def count_syncs(top: Path, batch: Path, form: str, trace: Path) -> tuple[int, int]:
    """Return how many fsyncs of files and directories, and how many syncs of all of a disk, a batch makes."""
    with new_home(top) as home, batch.open("rb") as data:
        words = sync_trace_command(trace, command(home, form))
        subprocess.run(words, stdin=data, stdout=subprocess.DEVNULL, check=True)
    return read_syncs(trace)


def peak_memory(top: Path, form: str, count: int) -> tuple[int, int]:
    """Return the RSS, in kB, of a batch after a twentieth of its messages, and its peak at the end.

    What is queued is removed as it comes, since it is on tmpfs.
    """
    with new_home(top) as home:
        process = subprocess.Popen(command(home, form), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert process.stdin is not None
        over = threading.Event()
        remover = threading.Thread(target=_remove, args=(home, over))
        remover.start()
        early = 0
        with process.stdin as pipe:
            for number in range(count):
                pipe.write(packed(form, number))
                if number == count // 20:
                    pipe.flush()
                    early = resident(process.pid, peak=True) >> 10
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        over.set()
        remover.join()
        assert process.returncode == 0, process.returncode
        return early, usage.ru_maxrss


def _remove(home: Home, over: threading.Event) -> None:
    layout = open_layout(home.queue)
    while not over.wait(0.1):
        for directory in layout.directories("todo"):
            for name in os.listdir(directory):
                os.unlink(f"{directory}/{name}")
                os.unlink(layout.mess(int(name)))
