"""A server in the place of queue-intake, which does what a test says with one connection."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from queue_base.home import Home
from support.processes.suite import DEADLINE as SECONDS


@contextmanager
def server(home: Home, serve: Callable[[socket.socket], None]) -> Iterator[None]:
    """Listen in the place of queue-intake, and let `serve` have one connection."""
    Path(home.queue, "intake").mkdir(exist_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{home.queue}/intake/socket")
    listener.listen(1)
    listener.settimeout(SECONDS)

    def run_server() -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.settimeout(SECONDS)
            serve(connection)

    thread = threading.Thread(target=run_server)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(SECONDS)
