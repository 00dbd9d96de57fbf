"""Messages to the supervisor: sd_notify(3) of systemd, and s6's notification-fd.

systemd names a datagram socket in NOTIFY_SOCKET. s6 gives a descriptor, whose number its script `run` puts in
QUEUE_NOTIFY_FD; a newline there means that the service is up. Without either, nothing is sent. A message that cannot be
sent is lost: no mail waits for a supervisor.
"""

import os
import socket
import time

SOCKET = "NOTIFY_SOCKET"
DESCRIPTOR = "QUEUE_NOTIFY_FD"


def take_variables() -> dict[str, str]:
    """Remove the variables from the environment, so that programs of users do not inherit them, and return them."""
    return {name: os.environ.pop(name) for name in (SOCKET, DESCRIPTOR) if name in os.environ}


class Supervisor:
    """The link to the supervisor of this process."""

    def __init__(self, variables: dict[str, str]) -> None:
        self._address = variables.get(SOCKET, "")
        self._descriptor = -1
        number = variables.get(DESCRIPTOR, "")
        if number.isdigit() and len(number) <= 4:
            try:
                os.set_inheritable(int(number), False)
                self._descriptor = int(number)
            except OSError:
                pass  # It was closed.
        self._socket: socket.socket | None = None
        if self._address[:1] in ("/", "@"):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)

    @property
    def wants_status(self) -> bool:
        """Whether the supervisor shows a status."""
        return self._socket is not None

    def ready(self, status: str) -> None:
        """Tell that all is up, or that a reload is over."""
        self._send(f"READY=1\nSTATUS={status}")
        if self._descriptor >= 0:
            try:
                os.write(self._descriptor, b"\n")
            except OSError:
                pass
            os.close(self._descriptor)
            self._descriptor = -1

    def reloading(self) -> None:
        """Tell that a reload begins; `ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        """Tell that the exit begins."""
        self._send(f"STOPPING=1\nSTATUS={status}")

    def status(self, status: str) -> None:
        """Tell how things are; it is sent as one line."""
        self._send(f"STATUS={' '.join(status.splitlines())}")

    def _send(self, message: str) -> None:
        if self._socket is not None:
            address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
            try:
                self._socket.sendto(message.encode("utf-8", "backslashreplace"), address)
            except OSError:
                pass
