"""Imports an alias file into alias/: reads what is there, and writes and removes .qmail files of ours.

Each file is replaced whole, with the owner of alias/. New files are durable before old ones are removed, so an import
that is interrupted leaves each address with its old or its new file, and can be run again. alias/ belongs to another
account, so nothing in it is followed. Raises Permanent, Temporary.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from queue_admin.aliases.alias_file import ADDRESS, Alias, Fault
from queue_admin.aliases.qmail_plan import PREFIX, AliasChanges, file_name, includes, is_ours
from queue_admin.home.maker import Maker
from queue_admin.home.modes import CONTROL_FILE_MODE
from queue_admin.home.tree import Tree, unable_to
from queue_admin.printable import visible
from queue_base.accounts import Owner
from queue_base.errors import reason
from queue_base.home import Home
from queue_base.safe_open import open_below, read_given
from queue_base.users import look_up_mailbox, starter_of
from queue_wire.dotqmail import qmail_names

# Postfix and qmail both want mail for these addresses to reach a person.
WANTED = (b"postmaster", b"mailer-daemon", b"root")
_INCLUDE_MAX = 1 << 20


@contextmanager
def locked_aliases(home: Home) -> Iterator[Tree]:
    """Open alias/, and wait until no other import runs."""
    with Tree(home.alias) as tree:
        with unable_to("lock", home.alias):
            fcntl.flock(tree.handle, fcntl.LOCK_EX)
        yield tree


def read_includes(aliases: list[Alias]) -> dict[bytes, bytes | str]:
    """Return for each included file its contents, or why it cannot be read."""
    found: dict[bytes, bytes | str] = {}
    for path in includes(aliases):
        try:
            # What it has is published: nothing is read by a link of the user whose file it may be.
            found[path] = read_given(os.fsdecode(path), _INCLUDE_MAX)
        except OSError as error:
            found[path] = reason(error)
    return found


def divide_by_account(home: Home, aliases: list[Alias]) -> tuple[list[Alias], list[Fault]]:
    """Return the entries whose mail a file in alias/ decides, and a fault for each that an account has.

    An account's own name comes first, also where the alias file has an entry for it. An entry that only names its own
    account is dropped: that is what happens anyway.
    """
    ours: list[Alias] = []
    faults: list[Fault] = []
    starter = starter_of(home)
    for alias in aliases:
        mailbox = look_up_mailbox(home, alias.name, starter)
        names = qmail_names(mailbox.dash, mailbox.extension)
        if os.path.realpath(mailbox.account.home) == os.path.realpath(home.alias) and names[0] == file_name(alias.name):
            ours.append(alias)
        elif [(target.kind, target.argument.lower()) for target in alias.targets] != [(ADDRESS, alias.name)]:
            path = os.path.join(os.fsencode(mailbox.account.home), names[0])
            who = visible(os.fsencode(mailbox.account.name))
            faults.append(Fault(alias.line, alias.name, f"its mail is account {who}'s: write {visible(path)}"))
    return ours, faults


def read_aliases(tree: Tree, planned: dict[bytes, bytes], source: bytes) -> dict[bytes, bytes | None]:
    """Return {name: contents} of the .qmail files in alias/ that are planned or ours; None is no regular file."""
    found: dict[bytes, bytes | None] = {}
    with unable_to("read", tree.path):
        names = [os.fsencode(name) for name in os.listdir(tree.handle)]
    for name in sorted(names):
        if not name.startswith(PREFIX):
            continue
        data = _read(tree, os.fsdecode(name))
        if name in planned or (data is not None and is_ours(data, source)):
            found[name] = data
    return found


def _read(tree: Tree, name: str) -> bytes | None:
    """Return the contents of a file, None if it is no regular file that can be opened."""
    try:
        handle = open_below(tree.handle, name)
    except OSError as error:
        if error.errno in (None, errno.ELOOP, errno.ENOENT, errno.ENXIO):
            return None
        with unable_to("read", f"{tree.path}/{name}"):
            raise
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        with open(handle, "rb", closefd=False) as file:
            # A file that is longer is none of ours.
            return file.read(_INCLUDE_MAX + 1)
    finally:
        os.close(handle)


def change_aliases(tree: Tree, changes: AliasChanges, step: Callable[[int], None]) -> None:
    """Write and remove files in alias/, durably; call `step(1)` after each file that is written."""
    with unable_to("look at", tree.path):
        above = os.fstat(tree.handle)
    maker = Maker(Owner(above.st_uid, above.st_gid), tree=tree)
    for name, data in changes.write.items():
        maker.replace(f"{tree.path}/{os.fsdecode(name)}", data, CONTROL_FILE_MODE)
        step(1)
    if changes.write:
        tree.sync()
    for name in changes.remove:
        with unable_to("remove", f"{tree.path}/{os.fsdecode(name)}"):
            tree.unlink(os.fsdecode(name))
    if changes.remove:
        tree.sync()


def addresses_of_nobody(home: Home, planned: dict[bytes, bytes]) -> list[bytes]:
    """Return those of WANTED whose mail would bounce."""
    starter = starter_of(home)
    found = []
    for name in WANTED:
        mailbox = look_up_mailbox(home, name, starter)
        names = qmail_names(mailbox.dash, mailbox.extension)
        home_directory = os.fsencode(mailbox.account.home)
        there = any(os.path.exists(os.path.join(home_directory, each)) for each in names)
        if mailbox.dash and not there and not planned.keys() & set(names):
            found.append(name)
    return found
