"""What a peer sent before a connection failed, and nobody has read.

A peer that refuses something and closes the connection while more comes sends its reply and then a RST. A write fails
then, and the event loop gives the connection up with the reply still in the socket's receive buffer. There it can be
read until the socket is closed, which the event loop does after `connection_lost`.
"""

import asyncio
import os

# Far more than any reply that counts.
UNREAD_MAX = 1 << 20
_READ_MAX = 65536


def read_unread(transport: asyncio.BaseTransport | None) -> bytes:
    """Return what is left to read from a transport that has failed; to be called in `connection_lost`."""
    connection = None if transport is None else transport.get_extra_info("socket")
    data = b""
    while connection is not None and len(data) < UNREAD_MAX:
        try:
            piece = os.read(connection.fileno(), _READ_MAX)
        except OSError:
            break  # The end that the event loop knows of, or nothing more.
        if not piece:
            break
        data += piece
    return data
