"""Carries an order to whoever may change messages: queue-send, through lock/control, or we ourselves, with its lock.

Root then becomes the owner of the queue, for good, if it is not by now: what it makes there must be the owner's.
"""

import os
import socket
import time

from queue_admin.offline import Offline
from queue_base.accounts import become, queue_owner
from queue_base.beneath import open_below
from queue_base.errors import Permanent, Temporary, reason
from queue_base.home import Home
from queue_base.layout import Layout
from queue_base.lock import take_sendmutex
from queue_wire.admin.socket import RESPONSE_MOST, Request, Response, pack_request, unpack_response
from queue_wire.format_error import FormatError
from queue_wire.framing import NetstringReader

PATIENCE = 10.0  # Seconds in which a queue-send that starts or ends is waited for.
ANSWER_WAIT = 120.0  # Seconds for one reply: a disk may be slow.


class Peer:
    """queue-send, at the other end of lock/control. Raises Temporary and Permanent."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = NetstringReader(RESPONSE_MOST)

    def ask(self, request: Request) -> Response:
        """Return the reply to a request."""
        try:
            self._connection.sendall(pack_request(request))
            while (payload := self._reader.next()) is None:
                data = self._connection.recv(65536)
                if not data:
                    raise Temporary("unable to reach queue-send: it closed the connection; try again")
                self._reader.feed(data)
            reply = unpack_response(payload)
        except OSError as error:
            raise Temporary(f"unable to reach queue-send: {reason(error)}; try again") from error
        except FormatError as error:
            raise Permanent(f"unable to understand queue-send: {error}; is it of another version?") from error
        if reply.error:
            raise Temporary(f"queue-send refuses: {reply.error.decode('utf-8', 'backslashreplace')}")
        return reply


def reach(home: Home, layout: Layout) -> Peer | Offline:
    """Return who carries out orders now. Raises Temporary where neither works for PATIENCE seconds."""
    end = time.monotonic() + PATIENCE
    while True:
        connection = connect(home)
        if connection is not None:
            return Peer(connection)
        try:
            lock = take_sendmutex(home)
        except Temporary as error:
            if time.monotonic() > end:
                raise Temporary(f"{error}, and does not listen on lock/control; try again") from error
        else:
            owner = queue_owner(home)
            if os.geteuid() == 0 and owner.uid != 0:
                become(owner)
            os.umask(0o027)
            return Offline(layout, lock)
        time.sleep(0.1)


def connect(home: Home, wait: float = ANSWER_WAIT) -> socket.socket | None:
    """Return a connection to queue-send, None where nobody listens; `wait` seconds for each answer.

    Raises Temporary where it may not be used.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(wait)
    try:
        # A socket's path has 107 bytes at the most; a descriptor's is always short enough.
        directory = open_below(home.queue, "lock", os.O_PATH | os.O_DIRECTORY)
        try:
            connection.connect(f"/proc/self/fd/{directory}/control")
        finally:
            os.close(directory)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError as error:
        connection.close()
        raise Temporary(f"unable to use {home.queue}/lock/control: {reason(error)}") from error
    return connection
