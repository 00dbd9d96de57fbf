"""Ports for servers that bind one themselves, some time after it was chosen.

They are not among those that the kernel hands out to whoever asks for any, as the tests beside this one do all the
time (ip_local_port_range), so nobody takes them meanwhile.
"""

import contextlib
import secrets
import socket
from collections.abc import Iterator

# From where Linux hands them out if nobody has changed it.
_END = 32768
_BEGIN = 10000


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port that nobody has now, neither TCP nor UDP."""
    while True:
        port = _BEGIN + secrets.randbelow(_END - _BEGIN)
        with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagram:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                stream.bind((address, port))
                datagram.bind((address, port))
            except OSError:
                continue
        return port


def free_ports(*names: str) -> dict[str, int]:
    """Return a port of 127.0.0.1 for each name, all different."""
    found: dict[str, int] = {}
    while len(set(found.values())) < len(names):
        found = {name: free_port() for name in names}
    return found


@contextlib.contextmanager
def refusing_port() -> Iterator[int]:
    """Give a port that is taken and at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])
