"""One build of a lake at a time: the file LAKE/_lock, which says who has it.

On a local disk it is locked (flock), so that it is free as soon as its owner is dead. Elsewhere the file is there only
while a build runs; one that a dead build left behind is taken over on the same machine, and named on another.
"""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from queue_base.errors import Temporary
from queue_base.safe_open import open_given
from spark.runtime.places import Place

LOCK = "_lock"


@contextmanager
def locked(place: Place) -> Iterator[None]:
    """Have the lake for oneself. Raises Temporary while another build has it, OSError where it cannot be written."""
    if place.local is not None:
        with _locked_here(place, os.path.join(place.local, LOCK)):
            yield
        return
    _take_file(place)
    try:
        yield
    finally:
        place.remove(LOCK)


@contextmanager
def _locked_here(place: Place, path: str) -> Iterator[None]:
    # It is truncated below, and another account may own the lake: what a link leads to is not ours.
    descriptor = open_given(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _busy(place, os.pread(descriptor, 1000, 0), "run this again when it has ended") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _owner(), 0)
        yield
    finally:
        os.close(descriptor)


def _take_file(place: Place) -> None:
    for _ in range(2):
        try:
            place.write(LOCK, _owner(), replace=False)
            return
        except OSError:
            if not place.exists(LOCK):
                raise
        content = place.read(LOCK)
        if not _is_stale(content):
            break
        place.remove(LOCK)
    raise _busy(place, content, f"if that one is dead, remove {place.uri(LOCK)}")


def _owner() -> bytes:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": since}).encode() + b"\n"


def _is_stale(content: bytes) -> bool:
    """Return whether the owner was a process of this machine that is gone."""
    try:
        owner = json.loads(content)
        if owner["host"] != socket.gethostname():
            return False
        os.kill(owner["pid"], 0)
    except ProcessLookupError:
        return True
    except (ValueError, KeyError, TypeError, OSError):
        return False
    return False


def _busy(place: Place, content: bytes, remedy: str) -> Temporary:
    try:
        owner = json.loads(content)
        who = f"process {owner['pid']} on {owner['host']} since {owner['since']}"
    except (ValueError, KeyError, TypeError):
        who = "nobody knows who"
    return Temporary(f"unable to build lake {place.root}: another build has it ({who}); {remedy}")
