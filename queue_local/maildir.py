"""Delivers one message into one maildir (maildir(5)). Only complete messages appear in new/.

Steps: write tmp/NAME, fsync it, link it to new/NAME, fsync new/, unlink tmp/NAME. A crash before the last fsync may
lose or leave the file: the queue still has the message, and delivers it again. A crash after it leaves at worst a
second name in tmp/, which mail readers remove. Every failure is Temporary, and leaves no file that this process can
remove.
"""

import itertools
import os
import time

from queue_base.durable import Commit, write_all
from queue_base.errors import Temporary, reason

_CHUNK = 1 << 18
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_counter = itertools.count(1)


def unique_name(now_ns: int, pid: int, counter: int, host: str) -> str:
    """Return a unique file name: `TIME.MmicrosPpidQcounter.host`.

    `now_ns` is nanoseconds since the epoch. `/` and `:` of the host become `\\057` and `\\072`.
    """
    seconds, rest = divmod(now_ns, 1_000_000_000)
    safe = host.replace("/", "\\057").replace(":", "\\072")
    return f"{seconds}.M{rest // 1000}P{pid}Q{counter}.{safe}"


def deliver_maildir(path: str, head: bytes, message: int) -> None:
    """Put `head` and the open file `message`, from its start, into the maildir `path` (it ends in `/`)."""
    if not os.path.isdir(path):
        raise Temporary("Unable to chdir to maildir. (#4.2.1)")
    name = unique_name(time.time_ns(), os.getpid(), next(_counter), os.uname().nodename)
    tmp, new = f"{path}tmp/{name}", f"{path}new/{name}"
    try:
        handle = os.open(tmp, _NEW, 0o600)
        commit = Commit()
        try:
            commit.contents(tmp, handle)
            _write(handle, head, message)
            _publish(commit, tmp, new)
        finally:
            commit.forget()
            _remove(tmp)
    except OSError as error:
        raise Temporary(f"Temporary error on maildir delivery: {path}: {reason(error)}. (#4.3.0)") from error


def _write(handle: int, head: bytes, message: int) -> None:
    write_all(handle, head)
    offset = 0
    while data := _read(message, offset):
        write_all(handle, data)
        offset += len(data)


def _read(message: int, offset: int) -> bytes:
    try:
        return os.pread(message, _CHUNK, offset)
    except OSError as error:
        raise Temporary(f"Unable to read message: {reason(error)}. (#4.3.0)") from error


def _publish(commit: Commit, tmp: str, new: str) -> None:
    # This also closes the file: some network file systems write only then, and report errors of writing.
    commit.sync()
    commit.link(tmp, new)
    try:
        commit.sync()
    except OSError:
        # The message is delivered again, because this copy may not be durable. Keeping it would make two.
        _remove(new)
        raise


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # It does not exist, or stays in tmp/, where it does no harm.
