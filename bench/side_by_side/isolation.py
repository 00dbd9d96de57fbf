"""Namespaces of its own for a bench: what it starts, mounts and binds ends with it, however it ends.

The bench runs a second time, as the first process of a new PID namespace, with its own mounts and a network that has
only a loopback interface. When that process ends, the kernel kills all others of the namespace and removes its mounts,
and no port was ever taken on the machine. `setpriv` has it killed also if the first one is.

The directory of the bench appears in there at a path that every account may walk to, since Postfix's daemons must.
"""

import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

from processes import family
from support.tools import need, need_private_mounts

MARK = "QUEUE_BENCH_PLACE"
_SIOCSIFFLAGS = 0x8914
_UP_AND_RUNNING = 0x41
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_isolated(directory: str) -> int:
    """Run this program again in namespaces of its own, with a new directory below `directory`; return its exit code."""
    need_private_mounts()
    place = tempfile.mkdtemp(prefix="queue-bench-", dir=directory)
    try:
        os.chmod(place, 0o711)
        namespaces = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
        words = [need("setpriv"), "--pdeathsig", "KILL", need("unshare"), *namespaces, sys.executable, *sys.argv]
        process = subprocess.Popen(words, env={**os.environ, MARK: place})
        for number in _STOPPING:
            # A terminal sends Ctrl-C to both; a signal to this process alone is handed on.
            signal.signal(number, lambda number, frame: _hand_on(process, number))
        code = process.wait()
        return 128 - code if code < 0 else code
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _hand_on(process: "subprocess.Popen[bytes]", number: int) -> None:
    for pid in family(process.pid)[1:2]:
        os.kill(pid, number)


def enter() -> Path | None:
    """Return the directory of the bench, where this is its second run; None in the first."""
    place = os.environ.pop(MARK, "")
    if not place:
        return None
    _leave_init()
    for number in _STOPPING:
        signal.signal(number, _stop)
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _UP_AND_RUNNING))
    used = {
        parent for path in (__file__, sys.executable) for parent in (*Path(path).parents, *Path(path).resolve().parents)
    }
    visible = next(path for path in map(Path, ("/mnt", "/media", "/srv")) if path not in used)
    _mount("--bind", place, str(visible))
    memory = visible / "tmpfs"
    memory.mkdir()
    # Memory is taken as it is filled. Without nr_inodes a million messages of three files would not fit.
    _mount("-t", "tmpfs", "-o", "size=95%,nr_inodes=0,mode=711", "queue-bench", str(memory))
    (visible / "disk").mkdir(0o711)
    tempfile.tempdir = str(memory)  # So what helpers put into temporary files is gone with the rest.
    return visible


def _leave_init() -> None:
    """Go on as a child of the first process of the namespace, which waits for whatever lost its parent."""
    child = os.fork()
    if not child:
        return
    for number in _STOPPING:
        signal.signal(number, lambda number, frame: os.kill(child, number))
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(128 - code if code < 0 else code)


def _mount(*words: str) -> None:
    subprocess.run([need("mount"), *words], check=True)


def _stop(number: int, frame: FrameType | None) -> None:
    """End by an exception, so that all is cleaned up, which no second signal may interrupt."""
    for each in _STOPPING:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)
