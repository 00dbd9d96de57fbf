"""Makes users/cdb from users/assign, whole or not at all, and durably (qmail-newu(8))."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from queue_admin.accounts import myself
from queue_admin.make import Maker, naming
from queue_base.cdb import make_cdb
from queue_base.durable import read_file
from queue_base.errors import Permanent
from queue_base.home import Home
from queue_base.users import why_not_trusted
from queue_base.whose import starter_of
from queue_wire.control.assign import shown_key, unpack_assign, unpack_record
from queue_wire.format_error import FormatError, wrong_in

# qmail-newu's: anybody may read who gets whose mail.
CDB_MODE = 0o644


class Built:
    """What was made: the path, the number of assignments, and those to uid 0, as `=local` or `+loc`."""

    __slots__ = ("count", "path", "to_root")

    def __init__(self, path: str, count: int, to_root: list[bytes]) -> None:
        self.path = path
        self.count = count
        self.to_root = to_root


def build_users(home: Home) -> Built:
    """Make users/cdb anew. Raises Permanent, with the line of users/assign that is wrong, or Temporary.

    What was there before stays until the new file is safe, and where anything goes wrong.
    """
    assign, path = f"{home.users}/assign", f"{home.users}/cdb"
    with _alone(home.users):
        _check_trusted(home, assign)
        with naming("read", assign):
            data = read_file(assign)
        try:
            records = unpack_assign(data)
            made = make_cdb(records)
        except FormatError as error:
            raise Permanent(f"unable to build {path}: {wrong_in(assign, error)}; nothing has changed") from error
        maker = Maker(myself())
        maker.replace(path, made, CDB_MODE)
        with naming("sync", home.users):
            maker.commit.sync()
    to_root = [shown_key(key) for key, data in records[:-1] if not unpack_record(data, b"").uid]
    return Built(path, len(records) - 1, to_root)


def _check_trusted(home: Home, assign: str) -> None:
    """Raise Permanent where somebody else could say who delivers as whom; queue-local would not believe the result."""
    starter = starter_of(home)
    for path in (home.users, assign):
        with naming("read", path):
            why = why_not_trusted(os.stat(path), starter)
        if why:
            raise Permanent(f"unable to use {path}: {why}; nothing has changed")


@contextmanager
def _alone(users: str) -> Iterator[None]:
    """Wait for another build to end: two at once would use the same name for what is not yet whole."""
    with naming("open", users):
        handle = os.open(users, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with naming("lock", users):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
