"""In-flow control made visible: programs with other limits, a slow queue-todo, a small disk, a disk that is short."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from queue_base.home import Home
from support.processes.forked import BIN
from support.queues.home import make_home
from support.tools import need

# No disk has that much room.
TOO_MUCH = "1000000T\n"
_MOUNT = 'mount -t tmpfs -o "$1" tmpfs "$2" && echo mounted && exec cat'


def patched_programs(top: Path, **code: str) -> Path:
    """Copy bin/ to a new directory, where the programs named (queue_todo=...) run some code first; return it."""
    directory = top / "bin"
    shutil.copytree(BIN, directory)
    for name, text in code.items():
        path = directory / name.replace("_", "-")
        # They end with sys.exit(main(...)) or os._exit(main(...)).
        start, call, rest = re.split(r"^(sys\.exit|os\._exit)(?=\()", path.read_text(), flags=re.MULTILINE)
        path.write_text(f"{start}{text}\n{call}{rest}")
    return directory


class SlowTodo:
    """Programs whose queue-todo classifies a group of `group` messages in `pace` seconds, or faster after `hurry`."""

    def __init__(self, top: Path, *, group: int, pace: float, slow_after: float, refuse_after: float) -> None:
        self._pace = top / "pace"
        self._pace.write_text(f"{pace}")
        self.programs = patched_programs(
            top,
            queue_todo=f"""
import os, time
import queue_todo.backpressure as backpressure
import queue_todo.pipeline as pipeline
backpressure.SLOW_AFTER, backpressure.REFUSE_AFTER, pipeline.GROUP = {slow_after}, {refuse_after}, {group}
real = os.open
def slowly(path, flags, *more, **named):
    # An envelope: a message takes its part of the time.
    if flags & os.O_NONBLOCK and "/todo/" in str(path):
        with open({str(self._pace)!r}) as pace:
            time.sleep(float(pace.read()) / {group})
    return real(path, flags, *more, **named)
os.open = slowly
""",
        )

    def hurry(self) -> None:
        """Let it classify as fast as it can."""
        fresh = self._pace.with_name("fresh")
        fresh.write_text("0")
        fresh.rename(self._pace)


def set_least(home: Home, text: str | None) -> None:
    """Write control/queueminfree, or remove it."""
    path = Path(home.control, "queueminfree")
    if text is None:
        path.unlink()
    else:
        path.with_name("fresh").write_text(text)
        path.with_name("fresh").rename(path)


@contextmanager
def small_disk(top: Path, options: str) -> Iterator[Home]:
    """A home on a tmpfs of its own, in a private mount namespace; it is reached through /proc."""
    top.mkdir()
    holder = subprocess.Popen(
        [need("unshare"), "--mount", "--propagation", "private", "sh", "-c", _MOUNT, "sh", options, str(top)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"mounted\n"
        yield make_home(Path(f"/proc/{holder.pid}/root{top}/home"), split=3)
    finally:
        holder.communicate(timeout=30)


def free_bytes(home: Home) -> int:
    """Return how many bytes are free on the queue's disk."""
    found = os.statvfs(home.queue)
    return found.f_bavail * found.f_frsize


