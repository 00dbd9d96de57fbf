"""sendmail -bs: SMTP on descriptors 0 and 1, with a mail program of this host, or under inetd. queue-smtpd serves it.

If descriptor 0 is a connection of the network, queue-smtpd takes this process's place, and the client is a stranger, as
under tcpserver. Otherwise the client is the user who runs this, and may send to everybody. A mail program mostly has a
pipe for each direction, and queue-smtpd needs one socket, so bytes are copied between them.
"""

import os
import socket
import subprocess
import threading

from queue_base.daemon.processes import command
from queue_base.daemon.signals import keep_children
from queue_base.durable import write_all
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_inject.sendmail.exit_codes import TEMPORARY
from queue_inject.source import guard_descriptors

_CHUNK = 65536


def serve_smtp(home: Home) -> int:
    """Serve the client on descriptors 0 and 1 to its end; return the exit code. Raises QueueTrouble, Temporary."""
    guard_descriptors(needed=2)
    keep_children()
    words = command("queue-smtpd", home)
    try:
        if _is_of_network(0):
            os.execv(words[0], words)
        ours, theirs = socket.socketpair()
        with theirs:
            # Where stderr is the connection, its log goes to syslog: the mail program would show it to its user.
            end = theirs.fileno()
            child = subprocess.Popen([*words, "--local"], stdin=end, stdout=end, stderr=end)
    except OSError as error:
        raise Temporary(f"unable to run {words[1]}: {reason(error)}; try again") from error
    with ours:
        # The client may go on while this thread waits in read(2); exit does not wait for it.
        try:
            threading.Thread(target=_copy_commands, args=(ours,), daemon=True).start()
        except RuntimeError as error:
            raise Temporary(f"unable to serve the client: {error}; try again") from error
        try:
            while data := ours.recv(_CHUNK):
                write_all(1, data)
        except OSError:
            pass  # The client reads no more, or queue-smtpd was killed: its exit code says so.
    return 0 if child.wait() == 0 else TEMPORARY


def _is_of_network(descriptor: int) -> bool:
    try:
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            return connection.family in (socket.AF_INET, socket.AF_INET6)
    except OSError:
        # It is no socket.
        return False


def _copy_commands(server: socket.socket) -> None:
    """Copy descriptor 0 to the server, to its end."""
    try:
        while data := os.read(0, _CHUNK):
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # The session is over.
