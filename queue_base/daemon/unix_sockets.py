"""Unix sockets below queue/, in a directory of their own: daemons listen there, and every user may connect.

The directory belongs to the queue's owner and has mode 0711, so nobody else can put another socket in its place. It is
not lock/, where only the daemons may go. The kernel says which user has connected.

The path of a socket has at most 107 bytes. By the descriptor of its directory it is always short enough.
"""

import os
import socket
import struct

from queue_wire.pipes.qmtp import SOCKET_DIRECTORY_MODE

SOCKET_MODE = 0o666
_CREDENTIALS = struct.Struct("3i")  # unix(7), SO_PEERCRED: pid, uid, gid


def listen_at(path: str, backlog: int) -> socket.socket:
    """Return a listening socket with this path, whose directory is made if need be. Raises OSError."""
    directory_path, name = os.path.split(path)
    try:
        os.mkdir(directory_path, SOCKET_DIRECTORY_MODE)
    except FileExistsError:
        pass
    os.chmod(directory_path, SOCKET_DIRECTORY_MODE)  # Whatever the umask is.
    try:
        os.unlink(path)  # It is that of an earlier run.
    except FileNotFoundError:
        pass
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        directory = os.open(directory_path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            listening.bind(f"/proc/self/fd/{directory}/{name}")
        finally:
            os.close(directory)
        os.chmod(path, SOCKET_MODE)
        listening.listen(backlog)
    except OSError:
        listening.close()
        raise
    return listening


def connect_to(path: str) -> socket.socket:
    """Return a connection to the socket with this path. It never waits. Raises OSError."""
    directory_path, name = os.path.split(path)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        directory = os.open(directory_path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connection.connect(f"/proc/self/fd/{directory}/{name}")
        finally:
            os.close(directory)
    except OSError:
        connection.close()
        raise
    return connection


def accept_with_uid(listening: socket.socket) -> tuple[socket.socket, int]:
    """Return a new connection and the uid of who has made it. Raises OSError; BlockingIOError if there is none."""
    connection, _ = listening.accept()
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        connection.close()
        raise
    return connection, _CREDENTIALS.unpack(found)[1] & 0xFFFFFFFF
