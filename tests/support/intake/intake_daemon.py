"""A running queue-intake, and a client of it that is written by the specifications alone."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType

from queue_base.home import Home
from support.processes.suite import program, wait_until

SECONDS = 60.0


class IntakeDaemon:
    """A queue-intake whose queue-send is the test; `log` has the lines that it sent.

    `script` is Python that runs before its main, as with its modules' constants; `wrapper` are words before its own.
    """

    def __init__(
        self,
        home: Home,
        *,
        script: str = "",
        wrapper: tuple[str, ...] = (),
        preexec: Callable[[], None] | None = None,
        pass_descriptors: tuple[int, ...] = (),
    ) -> None:
        words = [*program("queue-intake"), "--home", home.path]
        if script:
            code = f"import sys, queue_intake.main as m, queue_intake.client_connection as c; {script}; "
            words = [sys.executable, "-c", code + "sys.exit(m.main(sys.argv))", "--home", home.path]
        self.home = home
        self.log = b""
        self.process = subprocess.Popen(
            [*wrapper, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=preexec,
            pass_fds=pass_descriptors,
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self._stdin, self._stdout, self._stderr = self.process.stdin, self.process.stdout, self.process.stderr
        os.set_blocking(self._stdout.fileno(), False)

    def __enter__(self) -> "IntakeDaemon":
        wait_until(lambda: self._answers() or self.process.poll() is not None, SECONDS, "queue-intake to listen")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait(SECONDS)
        for stream in (self._stdin, self._stdout, self._stderr):
            stream.close()

    def _answers(self) -> bool:
        try:
            Client(self.home).close()
        except OSError:
            return False
        return True

    def said(self, text: bytes) -> bool:
        """Return whether it has sent a line with this text."""
        while data := self._stdout.read(65536):
            self.log += data
        return text in self.log

    def wait_for(self, text: bytes) -> None:
        """Wait until it has sent a line with this text."""
        wait_until(lambda: self.said(text), SECONDS, f"a line with {text!r}")

    def command(self, command: bytes) -> None:
        """Send it a command, as queue-send does."""
        self._stdin.write(command)
        self._stdin.flush()

    def close_input(self) -> None:
        """End its descriptor 0, as the end of queue-send does."""
        self._stdin.close()

    def wait(self) -> int:
        """Wait for its end; return its exit code. Nothing may be on its stderr."""
        code = self.process.wait(SECONDS)
        error = self._stderr.read()
        assert not error, error.decode()
        return code

    def memory(self) -> int:
        """Return its resident memory in bytes."""
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def netstring(data: bytes) -> bytes:
    """Return the netstring of some bytes (cr.yp.to/proto/netstrings.txt)."""
    return str(len(data)).encode() + b":" + data + b","


def qmtp(message: bytes, sender: bytes, recipients: Iterable[bytes], begin: bytes = b"\n") -> bytes:
    """Return a package of QMTP (cr.yp.to/proto/qmtp.txt, section 4)."""
    return netstring(begin + message) + netstring(sender) + netstring(b"".join(map(netstring, recipients)))


def qmqp(message: bytes, sender: bytes, recipients: Iterable[bytes]) -> bytes:
    """Return what a client of QMQP sends (cr.yp.to/proto/qmqp.html)."""
    return netstring(b"".join(map(netstring, [message, sender, *recipients])))


def connect(home: Home) -> socket.socket:
    """Return a connection to the Unix socket of a home."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.settimeout(SECONDS)
    directory = os.open(f"{home.run}/intake", os.O_PATH | os.O_DIRECTORY)
    try:
        found.connect(f"/proc/self/fd/{directory}/socket")
    except OSError:
        found.close()
        raise
    finally:
        os.close(directory)
    return found


class Client:
    """A connection to queue-intake, blocking, with a deadline. Answers are read a netstring at a time."""

    def __init__(self, home: Home | socket.socket) -> None:
        self.socket = connect(home) if isinstance(home, Home) else home
        self._rest = b""

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(data)

    def answer(self) -> bytes:
        """Return the next answer; empty at the end of the connection."""
        while True:
            length, colon, rest = self._rest.partition(b":")
            if colon and len(rest) > int(length):
                assert rest[int(length) : int(length) + 1] == b","
                self._rest = rest[int(length) + 1 :]
                return rest[: int(length)]
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                assert not self._rest, self._rest
                return b""
            self._rest += data

    def answers(self, count: int) -> list[bytes]:
        """Return the next answers."""
        return [self.answer() for _ in range(count)]

    def silent(self, seconds: float) -> bool:
        """Return whether no answer comes for so long, nor the end."""
        self.socket.settimeout(seconds)
        try:
            self._rest += self.socket.recv(65536)
            return False
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(SECONDS)


def ask(home: Home, data: bytes, answers: int = 1) -> list[bytes]:
    """Connect, send bytes, and return so many answers."""
    with Client(home) as client:
        client.send(data)
        return client.answers(answers)


def wait_closed(client: Client, deadline: float = SECONDS) -> float:
    """Wait for the end of a connection; return the seconds that it took."""
    begun = time.monotonic()
    client.socket.settimeout(deadline)
    assert client.answer() == b""
    return time.monotonic() - begun


@contextmanager
def intake_service(home: Home) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the queue-intake in front of several queues, until it listens, and end it with TERM."""
    words = [*program("queue-start"), "--home", home.path, "--intake"]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: _listens(home), SECONDS, "queue-intake to listen")
        yield process
    finally:
        process.terminate()
        assert process.wait(SECONDS) == 0


def _listens(home: Home) -> bool:
    try:
        Client(home).close()
    except OSError:
        return False
    return True
