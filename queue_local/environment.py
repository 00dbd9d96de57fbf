"""The environment of a program in a .qmail file (qmail-command(8)); it contains nothing else. Pure.

Nothing is quoted: addresses contain whatever a remote sender has put there.
"""

from queue_local.headers import HeaderLines
from queue_wire.mailbox import Mailbox

_PATH = b"/usr/local/bin:/usr/bin:/bin"


class Site:
    """Where the suite is installed: its home, and the directory of its programs, which is last in PATH."""

    __slots__ = ("home", "programs")

    def __init__(self, home: str, programs: str) -> None:
        self.home = home
        self.programs = programs


def make_environment(
    site: Site,
    mailbox: Mailbox,
    sender: bytes,
    new_sender: bytes,
    recipient: tuple[bytes, bytes],
    default: bytes | None,
    lines: HeaderLines,
) -> dict[bytes, bytes]:
    """Return the environment. `recipient` is (local part, domain); `default` is that of QmailFile."""
    local, host = recipient
    account = mailbox.account
    found = {
        b"SENDER": sender,
        b"NEWSENDER": new_sender,
        b"RECIPIENT": b"%s@%s" % recipient,
        b"LOCAL": local,
        b"HOST": host,
        b"USER": _encode(account.name),
        b"LOGNAME": _encode(account.name),
        b"HOME": _encode(account.home),
        b"SHELL": b"/bin/sh",
        # Last, because the directory may contain a python3 that a user's program does not mean.
        b"PATH": _PATH + b":" + _encode(site.programs),
        b"QUEUE_HOME": _encode(site.home),
        b"RPLINE": lines.return_path,
        b"DTLINE": lines.delivered_to,
        b"UFLINE": lines.from_line,
    }
    for number in (2, 3, 4):
        # HOST2 is HOST up to its last dot, HOST3 is HOST2 up to its last dot; a host without a dot is kept.
        head, dot, _ = host.rpartition(b".")
        host = head if dot else host
        found[b"HOST%d" % number] = host
    rest = mailbox.extension
    found[b"EXT"] = rest
    for number in (2, 3, 4):
        rest = rest.partition(b"-")[2]
        found[b"EXT%d" % number] = rest
    if default is not None:
        found[b"DEFAULT"] = default
    return found


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
