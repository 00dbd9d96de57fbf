"""Which user an address belongs to: by users/cdb, by passwd, or alias/ (qmail-lspawn(8), qmail-getpw(8)).

`joe` is the user joe with an empty extension. `joe-list-x` is the user joe-list-x, else joe-list, else joe, with the
part after the dash as extension. Any other address belongs to alias/, with all of it as extension. Names are looked up
in lower case and only if they have less than 32 bytes. The functions are pure except for the lookups that they are
given.
"""

from collections.abc import Callable
from typing import NamedTuple

NAME_MAX = 31
# The source of a mailbox.
ASSIGNED = "users/cdb"
PASSWD = "passwd"
ALIAS = "alias"


class Account(NamedTuple):
    """The account that a delivery runs as. `home` is its home directory, an absolute path."""

    name: str
    uid: int
    gid: int
    home: str


class Mailbox(NamedTuple):
    """An account, and the dash (usually empty or `-`) and extension that select the .qmail file in its home.

    `source` is ASSIGNED, PASSWD or ALIAS. `key` is the `=local` or `+loc` of the assignment.
    """

    account: Account
    dash: bytes
    extension: bytes
    source: str = PASSWD
    key: bytes = b""


def _nobody(local: bytes) -> Mailbox | None:
    return None


def find_mailbox(
    local: bytes,
    lookup: Callable[[bytes], Account | None],
    alias: Callable[[], Account],
    assigned: Callable[[bytes], Mailbox | None] = _nobody,
) -> Mailbox:
    """Return the mailbox of a local part.

    `assigned` returns the mailbox from users/cdb, or None. `lookup` returns the account of a name in lower case, or
    None if no such user receives mail. `alias` returns the account of alias/. Their exceptions are not caught.
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
    """Return the possible (user name, dash, extension) of a local part, the longest name first."""
    found = [(local.lower(), b"", b"")]
    end = local.rfind(b"-")
    while end >= 0:
        found.append((local[:end].lower(), b"-", local[end + 1 :]))
        end = local.rfind(b"-", 0, end)
    return [parts for parts in found if 0 < len(parts[0]) <= NAME_MAX]
