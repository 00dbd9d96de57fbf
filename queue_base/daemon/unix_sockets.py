"""Unix sockets below queue/, in a directory of their own: daemons listen there, and every user may connect.

The directory belongs to the queue's owner and has mode 0711, so nobody else can put another socket in its place. It is
not lock/, where only the daemons may go. The kernel says which user has connected.

The sockets of queue-smtpd, which may write nowhere, have abstract names (queue_wire.admin.smtpd_status).

A Unix socket also carries descriptors (SCM_RIGHTS): each comes with a byte of the stream, and not after it.

The path of a socket has at most 107 bytes. By the descriptor of its directory it is always short enough.
"""

import array
import os
import socket
import stat
import struct

from queue_wire.pipes.qmtp import SOCKET_DIRECTORY_MODE

SOCKET_MODE = 0o666
DESCRIPTORS_MAX = 4
_INT = struct.Struct("i")
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


def status_prefix(run: str) -> str:
    """Return what the names of the status sockets of a home's queue-smtpd begin with; `run` is its directory.

    Raises OSError.
    """
    found = os.stat(run)
    return f"queue-smtpd/{found.st_dev:x}-{found.st_ino:x}/"


def listen_abstract(name: str, backlog: int) -> socket.socket:
    """Return a listening socket with an abstract name. Raises OSError."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        listening.bind(b"\0" + name.encode())
        listening.listen(backlog)
    except OSError:
        listening.close()
        raise
    return listening


def find_abstract(prefix: str) -> list[str]:
    """Return the abstract names with this prefix that are listened on, of whatever user's. Raises OSError."""
    found = []
    with open("/proc/net/unix", "rb") as sockets:
        for line in sockets:
            # proc_net(5): Num RefCount Protocol Flags Type St Inode Path; __SO_ACCEPTCON is 0x10000.
            words = line.rstrip(b"\n").split(b" ", 7)
            if len(words) == 8 and words[7].lstrip().startswith(b"@" + prefix.encode()) and words[3] == b"00010000":
                found.append(words[7].lstrip()[1:].decode("utf-8", "replace"))
    return found


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return pid and uid of who has made, or listens for, a connection. Raises OSError."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return pid, uid & 0xFFFFFFFF


def send_with_descriptor(connection: socket.socket, data: bytes, descriptor: int) -> int:
    """Send a descriptor with the first byte of data; return how many bytes were sent. Raises OSError."""
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))
    return connection.sendmsg([data], [rights])


def receive_with_descriptors(connection: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """Return data, empty at its end, and the descriptors that came with it. Raises OSError.

    They are not inherited. Of more than DESCRIPTORS_MAX in one message, the kernel closes the others.
    """
    room = socket.CMSG_SPACE(DESCRIPTORS_MAX * _INT.size)
    data, control, _, _ = connection.recvmsg(most, room, socket.MSG_CMSG_CLOEXEC)
    found: list[int] = []
    for level, kind, rights in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found += [number for (number,) in _INT.iter_unpack(rights[: len(rights) - len(rights) % _INT.size])]
    return data, found


def is_stream(descriptor: int) -> bool:
    """Return whether a descriptor, which somebody else has sent, is that of a connected Unix stream socket."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return False
    with socket.socket(fileno=os.dup(descriptor)) as found:
        try:
            found.getpeername()
        except OSError:
            return False
        return (found.family, found.type) == (socket.AF_UNIX, socket.SOCK_STREAM)


def accept_with_uid(listening: socket.socket) -> tuple[socket.socket, int]:
    """Return a new connection and the uid of who has made it. Raises OSError; BlockingIOError if there is none."""
    connection, _ = listening.accept()
    try:
        return connection, peer_of(connection)[1]
    except OSError:
        connection.close()
        raise
