"""The certificates of the server: files in PEM, and the TLS contexts made of them, chosen by name (SNI).

`read_pem_files` reads what control/smtpdcert names. It needs the rights to read the keys, so root calls it, directly or
in a process of its own (queue_smtpd.tls.certificate_keeper). `take` makes contexts; of a file that cannot be used any
more the last one stays. A file of a key that everybody may read is not used.
"""

import hashlib
import os
import ssl
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from queue_base.bounded_tls import BoundedContext
from queue_base.control import read_value
from queue_base.errors import reason
from queue_base.home import Home
from queue_base.secret_files import find_open_mode
from queue_wire.control.hostmap import find_key
from queue_wire.control.registry import SMTPDCERT

FILE_MAX = 1 << 20
_BEGIN_KEY = b"PRIVATE KEY-----"
_BEGIN_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"


class PemFiles(NamedTuple):
    """The files of a line of control/smtpdcert. `fault` is why they cannot be used, empty if they were read."""

    key: bytes
    paths: str
    data: bytes = b""
    fault: str = ""

    def __repr__(self) -> str:
        # A key must not be shown in a traceback or a log.
        return f"PemFiles({self.key!r}, {self.paths!r}, ***, {self.fault!r})"


# What reads the files, with root's rights or without. It raises Temporary.
PemReader = Callable[[], list[PemFiles]]


def read_pem_files(home: Home) -> list[PemFiles]:
    """Return the files of each line of control/smtpdcert; none without it. Raises Temporary, naming that."""
    return read_named_files(home, read_value(home, SMTPDCERT))


def read_named_files(home: Home, lines: Mapping[bytes, Sequence[bytes]]) -> list[PemFiles]:
    """Return the files of lines of control/smtpdcert."""
    return [_read_files(key, [os.path.join(home.control, os.fsdecode(path)) for path in paths])
            for key, paths in lines.items()]  # fmt: skip


def make_context(data: bytes) -> ssl.SSLContext:
    """Return a context for servers with the certificate and key in `data`. Raises OSError (ssl.SSLError is one)."""
    if _BEGIN_CERTIFICATE not in data:
        raise OSError("it has no certificate in PEM")
    if _BEGIN_KEY not in data:
        raise OSError("it has no private key in PEM")
    context = BoundedContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could have the server make one handshake after the other.
    context.options |= ssl.OP_NO_RENEGOTIATION
    # OpenSSL sends two tickets in one record after the handshake. libESMTP waits for the second one and hangs, and mail
    # hosts seldom come back to resume a session.
    context.num_tickets = 0
    # OpenSSL's interface for Python reads a chain from a path alone.
    handle = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(handle, data)
        context.load_cert_chain(f"/proc/self/fd/{handle}", password=_no_password)
    finally:
        os.close(handle)
    return context


class ServerCertificates:
    """The contexts by key. `context` is what a connection begins with; it changes to another one by the name asked for.

    `take` may run in another thread than the rest.
    """

    def __init__(self) -> None:
        self._contexts: dict[bytes, tuple[bytes, ssl.SSLContext]] = {}

    @property
    def context(self) -> ssl.SSLContext | None:
        """The context for clients that name no host, None if there is none that can be used."""
        found = self._contexts.get(b"")
        return None if found is None else found[1]

    def take(self, files: list[PemFiles]) -> list[str]:
        """Use these files from now on; return what is wrong with them, a text each, which says what happens next."""
        made: dict[bytes, tuple[bytes, ssl.SSLContext]] = {}
        faults = []
        for each in files:
            old = self._contexts.get(each.key)
            digest = hashlib.sha256(each.data).digest()
            try:
                if each.fault:
                    raise OSError(each.fault)
                made[each.key] = old if old is not None and old[0] == digest else (digest, self._make(each.data))
            except OSError as error:
                if old is not None:
                    made[each.key] = old
                following = "the old certificate stays" if old is not None else "it is not used"
                faults.append(f"unable to use {each.paths}: {_describe(error)}; {following}")
        self._contexts = made
        return faults

    def _make(self, data: bytes) -> ssl.SSLContext:
        context = make_context(data)
        context.sni_callback = self._choose
        return context

    def _choose(self, tls: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Change to the context for a name; the one that was begun with stays if there is none."""
        contexts = self._contexts
        key = find_key(contexts, name.encode("ascii", "replace")) if name else None
        if key is not None:
            tls.context = contexts[key][1]


def _read_files(key: bytes, paths: list[str]) -> PemFiles:
    shown = " ".join(paths)
    data = b""
    for path in paths:
        try:
            data += _read_file(path) + b"\n"
        except OSError as error:
            where = f"{path}: " if len(paths) > 1 else ""
            return PemFiles(key, shown, fault=where + reason(error))
    return PemFiles(key, shown, data)


def _read_file(path: str) -> bytes:
    """Return a file. Links are followed: those who renew certificates replace a link."""
    # A FIFO must not stop the program.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is not a regular file")
        data = file.read(FILE_MAX + 1)
    if len(data) > FILE_MAX:
        raise OSError(f"it has more than {FILE_MAX} bytes")
    if _BEGIN_KEY in data and (fault := find_open_mode(found)) is not None:
        raise OSError(f"a key is in it, and {fault}")
    return data


def _no_password() -> str:
    # Otherwise OpenSSL would ask on the terminal.
    raise OSError("its key is encrypted, and nobody is there to ask for the password")


def _describe(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        # Python has None for it where OpenSSL gives no reason.
        text: str | None = getattr(error, "reason", None)
        return text.lower().replace("_", " ") if text else "it is not PEM, or is damaged"
    return reason(error)
