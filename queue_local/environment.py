"""What a program in a .qmail file finds in its environment (qmail-command(8)), and nothing else. Pure.

None of it is quoted: addresses hold whatever a stranger has put there.
"""

from queue_wire.mailbox import Mailbox

_PATH = b"/usr/local/bin:/usr/bin:/bin"


class Lines:
    """The lines of one delivery, each with its newline: From_, Return-Path and Delivered-To."""

    __slots__ = ("delivered_to", "from_line", "return_path")

    def __init__(self, from_line: bytes, return_path: bytes, delivered_to: bytes) -> None:
        self.from_line = from_line
        self.return_path = return_path
        self.delivered_to = delivered_to


class Site:
    """Where the suite is: its home, and the directory of its programs, which comes last in PATH."""

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
    lines: Lines,
) -> dict[bytes, bytes]:
    """Return the environment. `recipient` is (local part, domain); `default` is qmailfile.QmailFile's."""
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
        # Last: beside them may be a python3, which is not the one that a user's program means.
        b"PATH": _PATH + b":" + _encode(site.programs),
        b"QUEUE_HOME": _encode(site.home),
        b"RPLINE": lines.return_path,
        b"DTLINE": lines.delivered_to,
        b"UFLINE": lines.from_line,
    }
    for number in (2, 3, 4):
        # HOST2 is what is before HOST's last dot, and so on; a host without a dot stays.
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
