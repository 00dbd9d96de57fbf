"""Makes users/cdb from users/assign, atomically and durably (qmail-newu(8))."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from queue_admin.home.maker import Maker
from queue_admin.home.tree import unable_to
from queue_admin.system_accounts import myself
from queue_base.cdb import make_cdb
from queue_base.errors import Permanent
from queue_base.home import Home
from queue_base.safe_open import READ_DIRECTORY, open_given, read_given
from queue_base.users import starter_of, why_not_trusted
from queue_wire.control.assign import shown_key, unpack_assign, unpack_record
from queue_wire.format_error import FormatError, wrong_in

# As qmail-newu makes it: readable for everybody.
CDB_MODE = 0o644


class UsersBuild(NamedTuple):
    """A users/cdb that was made: its path, the number of assignments, and those to uid 0, as `=local` or `+loc`."""

    path: str
    assignments: int
    to_root: list[bytes]


def build_users(home: Home) -> UsersBuild:
    """Replace users/cdb. Raises Permanent, with the line of users/assign that is wrong, or Temporary.

    The old file stays until the new one is durable, and if anything fails.
    """
    assign, path = f"{home.users}/assign", f"{home.users}/cdb"
    with _locked(home.users):
        _check_trusted(home, assign)
        with unable_to("read", assign):
            data = read_given(assign)
        try:
            records = unpack_assign(data)
            made = make_cdb(records)
        except FormatError as error:
            raise Permanent(f"unable to build {path}: {wrong_in(assign, error)}; nothing has changed") from error
        maker = Maker(myself())
        maker.replace(path, made, CDB_MODE)
        with unable_to("sync", home.users):
            maker.commit.sync()
    to_root = [shown_key(key) for key, data in records[:-1] if not unpack_record(data, b"").uid]
    return UsersBuild(path, len(records) - 1, to_root)


def _check_trusted(home: Home, assign: str) -> None:
    """Raise Permanent if another user could change users/assign, since queue-local would not trust users/cdb then."""
    starter = starter_of(home)
    for path in (home.users, assign):
        with unable_to("read", path):
            why = why_not_trusted(os.stat(path), starter)
        if why:
            raise Permanent(f"unable to use {path}: {why}; nothing has changed")


@contextmanager
def _locked(users: str) -> Iterator[None]:
    """Wait until no other build runs, since all use the same temporary name."""
    with unable_to("open", users):
        handle = open_given(users, READ_DIRECTORY)
    try:
        with unable_to("lock", users):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
