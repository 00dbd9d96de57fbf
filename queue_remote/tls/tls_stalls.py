"""Servers that offer STARTTLS and then fall silent, or say 421, remembered so that not every connection is in vain.

Where TLS is optional, they are spoken to in clear for a while, as after a handshake that has failed.
"""

import time

REMEMBERED_SECONDS = 3600.0
SERVERS_MAX = 1000


class TlsStalls:
    """The servers, by address and port, and when each may be asked for TLS again."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, int], float] = {}

    def add(self, address: str, port: int) -> None:
        """Remember a server."""
        self._until.pop((address, port), None)
        while len(self._until) >= SERVERS_MAX:
            del self._until[next(iter(self._until))]
        self._until[address, port] = time.monotonic() + REMEMBERED_SECONDS

    def knows(self, address: str, port: int) -> bool:
        """Return whether a server is remembered."""
        return self._until.get((address, port), 0.0) > time.monotonic()
