"""Whose mailbox an address is: an assignment of users/cdb, a user, or alias/ (qmail-lspawn(8), qmail-getpw(8)).

`joe` is the user joe with an empty extension, `joe-list-x` is the user joe-list-x, else joe-list, else
joe, with what follows the dash as extension; everything else is alias/'s, all of it as extension. Only
names under 32 bytes are looked up, in lower case. Pure but for the lookups that it is given.
"""

from collections.abc import Callable

NAME_MAX = 31
# Where a mailbox was found.
ASSIGNED = "users/cdb"
PASSWD = "passwd"
ALIAS = "alias"


class Account:
    """Who a delivery runs as, and where: name, uid, gid, home directory (absolute)."""

    __slots__ = ("gid", "home", "name", "uid")

    def __init__(self, name: str, uid: int, gid: int, home: str) -> None:
        self.name = name
        self.uid = uid
        self.gid = gid
        self.home = home

    def __repr__(self) -> str:
        return f"Account({self.name!r}, {self.uid}, {self.gid}, {self.home!r})"


class Mailbox:
    """An account and what chooses the .qmail file in its home: dash (as a rule empty or `-`) and extension.

    `source` is where it was found, ASSIGNED, PASSWD or ALIAS, and `key` the `=local` or `+loc` of the assignment.
    """

    __slots__ = ("account", "dash", "extension", "key", "source")

    def __init__(
        self, account: Account, dash: bytes, extension: bytes, source: str = PASSWD, key: bytes = b""
    ) -> None:
        self.account = account
        self.dash = dash
        self.extension = extension
        self.source = source
        self.key = key


def _nobody(local: bytes) -> Mailbox | None:
    return None


def find_mailbox(
    local: bytes,
    lookup: Callable[[bytes], Account | None],
    alias: Callable[[], Account],
    assigned: Callable[[bytes], Mailbox | None] = _nobody,
) -> Mailbox:
    """Return the mailbox of a local part.

    `assigned` returns the mailbox that users/cdb gives it, or None; `lookup` the account of a name in lower case, or
    None where no such user takes mail; `alias` the account of alias/. What they raise passes through.
    """
    found = assigned(local)
    if found is not None:
        return found
    for name, dash, extension in break_name(local):
        account = lookup(name)
        if account is not None:
            return Mailbox(account, dash, extension)
    return Mailbox(alias(), b"-", local, ALIAS)


def break_name(local: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Return the (user name, dash, extension) that a local part can mean, the longest name first."""
    found = [(local.lower(), b"", b"")]
    end = local.rfind(b"-")
    while end >= 0:
        found.append((local[:end].lower(), b"-", local[end + 1 :]))
        end = local.rfind(b"-", 0, end)
    return [parts for parts in found if 0 < len(parts[0]) <= NAME_MAX]
