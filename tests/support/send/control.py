"""queuectl run on a home, and lock/control spoken to directly."""

import os
import socket
import subprocess
from pathlib import Path

from queue_base.home import Home
from queue_base.queue.hold_marks import birth_of
from queue_base.queue.layout import open_layout
from queue_wire.admin.socket import TOTALS, Request, Response, pack_request, unpack_response
from queue_wire.ids import pack_long_id
from queue_wire.pipes.framing import NetstringReader
from support.processes.forked import BIN, can_fork, fork_piped
from support.processes.suite import program, wait_until


def queuectl(home: Home, *words: str, programs: Path = BIN) -> subprocess.CompletedProcess[str]:
    """Run queuectl to its end."""
    if programs == BIN and can_fork("queuectl"):
        process = fork_piped("queuectl", [str(BIN / "queuectl"), "--home", home.path, *words])
        output, errors = (each.decode() for each in process.communicate(60))
        return subprocess.CompletedProcess(words, process.wait(), output, errors)
    return subprocess.run(
        [*program("queuectl", programs), "--home", home.path, *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def order(home: Home, *words: str, programs: Path = BIN) -> str:
    """Run a command that must succeed; return what it printed."""
    done = queuectl(home, *words, programs=programs)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")


def long_id(home: Home, message: int) -> str:
    """Return a message's long id."""
    birth = birth_of(open_layout(home.queue), message)
    assert birth is not None
    return pack_long_id(message, birth)


def file(home: Home, kind: str, message: int) -> Path:
    """Return the path of a message's file."""
    layout = open_layout(home.queue)
    return Path(layout.bounce(message) if kind == "bounce" else layout.hashed(kind, message))


def files(home: Home) -> list[str]:
    """Return every file of queue/ but those of intake/ and lock/, marks and stamp."""
    top = Path(home.queue)
    found = [path.relative_to(top) for path in top.rglob("*") if not path.is_dir()]
    return sorted(str(path) for path in found if path.parts[0] not in ("intake", "lock", "marks", "stamp"))


class Client:
    """A connection to lock/control, or to the socket of counts."""

    def __init__(self, home: Home, only_counts: bool = False) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        path = home.counts if only_counts else f"{home.queue}/lock/control"
        directory = os.open(os.path.dirname(path), os.O_PATH)
        self.socket.connect(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
        os.close(directory)
        self._reader = NetstringReader()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, request: Request) -> None:
        """Send a request."""
        self.socket.sendall(pack_request(request))

    def reply(self) -> Response | None:
        """Return the next reply, None at the end of the connection."""
        while (payload := self._reader.next()) is None:
            data = self.socket.recv(65536)
            if not data:
                return None
            self._reader.feed(data)
        return unpack_response(payload)

    def ask(self, request: Request) -> Response | None:
        """Send a request; return its reply."""
        self.send(request)
        return self.reply()


def wait_for_backlog(home: Home) -> None:
    """Return once queue-send has read its backlog: from then on mail is new only by its notice."""
    with Client(home) as client:
        wait_until(lambda: (reply := client.ask(Request(TOTALS, b"", []))) and reply.touched, why="the backlog")
