"""What is remembered for greylisting: one file of SQLite, which several processes share.

It is used by one thread. An error of SQLite is raised as it is; nothing but memory of attempts is lost with the file. A
triplet is kept as a hash, so nobody reads there who writes to whom.

If the file was removed or replaced, `moved` says so: what is written to the old one is lost. The last process that
closes it removes the new one's log, because SQLite knows it by its name; then the file is to be opened again, too.
"""

import hashlib
import os
import sqlite3
from contextlib import suppress

from queue_smtpd.strangers.greylisting import KnownNetwork, Triplet, judge_attempt
from queue_wire.address import address_key
from queue_wire.control.strangers.greylist import GreylistRules

# Seconds to wait for another process, and the rows that are removed at once, so that none waits long.
BUSY_SECONDS = 2.0
_CHUNK = 1000
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS triplets (key BLOB PRIMARY KEY, first INTEGER, last INTEGER, passed INTEGER)"
    " WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS triplets_by_age ON triplets (passed, last)",
    "CREATE TABLE IF NOT EXISTS networks (key TEXT PRIMARY KEY, passes INTEGER, last INTEGER) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS networks_by_age ON networks (last)",
)


class GreylistStore:
    """The file. Raises sqlite3.Error."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._database = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            for statement in _SCHEMA:
                self._database.execute(statement)
            self._files = self._identify()
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def moved(self) -> bool:
        """Return whether the file, or its log, is not the one that is open. Raises OSError."""
        return self._identify() != self._files

    def close_moved(self) -> None:
        """Close the file, which was removed or replaced. Its log goes with it: it is none of the new file's."""
        self._database.close()
        with suppress(FileNotFoundError):
            if os.stat(f"{self._path}-wal").st_ino == self._files[1]:
                os.unlink(f"{self._path}-wal")
                os.unlink(f"{self._path}-shm")

    def _identify(self) -> tuple[tuple[int, int] | None, int | None]:
        """Return what the file is, and its log; None for one that is not there."""
        file = log = None
        with suppress(FileNotFoundError):
            found = os.stat(self._path)
            file = found.st_dev, found.st_ino
        with suppress(FileNotFoundError):
            log = os.stat(f"{self._path}-wal").st_ino
        return file, log

    def judge(self, network: str, sender: bytes, recipient: bytes, now: int, rules: GreylistRules) -> int:
        """Note an attempt; return how many seconds its client has to wait, 0 if it may pass."""
        key = hashlib.blake2b(
            b"\0".join((network.encode(), address_key(sender), address_key(recipient))), digest_size=16
        ).digest()
        database = self._database
        # Otherwise another process could write between the reading and the writing.
        database.execute("BEGIN IMMEDIATE")
        try:
            row = database.execute("SELECT first, last, passed FROM triplets WHERE key = ?", (key,)).fetchone()
            triplet = None if row is None else Triplet(row[0], row[1], bool(row[2]))
            row = database.execute("SELECT passes, last FROM networks WHERE key = ?", (network,)).fetchone()
            verdict = judge_attempt(triplet, None if row is None else KnownNetwork(*row), now, rules)
            if verdict.triplet is not None:
                database.execute("REPLACE INTO triplets VALUES (?, ?, ?, ?)", (key, *verdict.triplet))
            if verdict.network is not None:
                database.execute("REPLACE INTO networks VALUES (?, ?, ?)", (network, *verdict.network))
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")
        return verdict.wait

    def clean(self, now: int, rules: GreylistRules) -> None:
        """Forget what has expired, and the oldest of what is too much: first those that have not passed."""
        self._remove("triplets", "passed = 0 AND last < ?", now - rules.window)
        self._remove("triplets", "passed = 1 AND last < ?", now - rules.expiry)
        self._remove("networks", "last < ?", now - rules.expiry)
        for table, order in (("triplets", "passed, last"), ("networks", "last")):
            (count,) = self._database.execute(f"SELECT count(*) FROM {table}").fetchone()
            excess = count - rules.rows
            while excess > 0:
                self._database.execute(
                    f"DELETE FROM {table} WHERE key IN (SELECT key FROM {table} ORDER BY {order} LIMIT ?)",
                    (min(excess, _CHUNK),),
                )
                excess -= _CHUNK

    def _remove(self, table: str, where: str, before: int) -> None:
        statement = f"DELETE FROM {table} WHERE key IN (SELECT key FROM {table} WHERE {where} LIMIT {_CHUNK})"
        while self._database.execute(statement, (before,)).rowcount == _CHUNK:
            pass
