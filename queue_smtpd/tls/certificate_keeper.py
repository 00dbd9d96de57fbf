"""A process that stays root to read the certificates and keys anew, for a server that has given up root's rights.

The server sends one end of a new pair of sockets to the keeper, which writes what it has read there, and closes it. The
keeper takes nothing else from the server: control/smtpdcert says which files it reads. It ends when the last process of
the server has ended.

    b"" or why control/smtpdcert cannot be used, then for each of its lines: key, paths, data, fault    netstrings
"""

import os
import signal
import socket
from contextlib import suppress

from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_base.server_certificates import PemFiles, PemReader, read_pem_files
from queue_wire.format_error import FormatError
from queue_wire.pipes.framing import NetstringReader, pack_netstring

_ANSWER_SECONDS = 5.0
_PATIENCE = 15.0
_ANSWER_MAX = 64 << 20


def start_keeper(home: Home) -> PemReader:
    """Start the process, as root; return what asks it. Call it before there are threads and event loops."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        try:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            # The server's sockets are not for the keeper.
            os.closerange(3, theirs.fileno())
            os.closerange(theirs.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
            _keep(home, theirs)
        finally:
            os._exit(0)
    theirs.close()
    return lambda: ask_keeper(ours)


def ask_keeper(keeper: socket.socket) -> list[PemFiles]:
    """Return what read_pem_files returns or raises."""
    ours, theirs = socket.socketpair()
    with ours:
        try:
            with theirs:
                ours.settimeout(_PATIENCE)
                socket.send_fds(keeper, [b"?"], [theirs.fileno()], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            data = b""
            while len(data) <= _ANSWER_MAX and (piece := ours.recv(1 << 16)):
                data += piece
            return unpack_answer(data)
        except (OSError, FormatError) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise Temporary(
                f"unable to read the certificates: the process that reads them as root does not answer: {why}; "
                "restart queue-smtpd"
            ) from error


def pack_answer(home: Home) -> bytes:
    """Read the certificates; return the answer."""
    try:
        files = read_pem_files(home)
    except Temporary as error:
        return pack_netstring(str(error).encode("utf-8", "surrogateescape"))
    fields = [b""]
    for each in files:
        texts = [text.encode("utf-8", "surrogateescape") for text in (each.paths, each.fault)]
        fields += [each.key, texts[0], each.data, texts[1]]
    return b"".join([pack_netstring(field) for field in fields])


def unpack_answer(data: bytes) -> list[PemFiles]:
    """Return the files in an answer. Raises Temporary of read_pem_files, and FormatError."""
    reader = NetstringReader(_ANSWER_MAX)
    reader.feed(data)
    fields = []
    while (field := reader.next()) is not None:
        fields.append(field)
    if len(fields) % 4 != 1:
        raise FormatError("no complete answer")
    if fields[0]:
        raise Temporary(fields[0].decode("utf-8", "surrogateescape"))
    found = []
    for start in range(1, len(fields), 4):
        key, paths, pem, fault = fields[start : start + 4]
        found.append(
            PemFiles(key, paths.decode("utf-8", "surrogateescape"), pem, fault.decode("utf-8", "surrogateescape"))
        )
    return found


def _keep(home: Home, server: socket.socket) -> None:
    while True:
        data, descriptors, _, _ = socket.recv_fds(server, 16, 1)
        if not data:
            return
        for descriptor in descriptors:
            with suppress(OSError), socket.socket(fileno=descriptor) as asked:
                asked.settimeout(_ANSWER_SECONDS)
                asked.sendall(pack_answer(home))
