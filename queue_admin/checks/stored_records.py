"""What is wrong with the mail that is stored for on-demand domains. Reads only.

A queue may be live: what looks wrong is looked at again, since a record may just be appended or delivered. A link comes
before its record, and may outlive it for a while, so one that no record needs counts only when it is old.
"""

import os
import stat
import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from queue_admin.checks.findings import FileFacts, Finding, judge_owner
from queue_admin.checks.message_paths import is_regular, look_at
from queue_admin.home.modes import ONDEMAND, ONDEMAND_MODES, ONDEMAND_ORDERS
from queue_base.durable import read_file
from queue_base.errors import reason
from queue_wire.control.ondemand import is_domain_name
from queue_wire.files.cluster import (
    CLUSTER_MAX,
    NEW_SUFFIX,
    SUFFIX,
    cluster_number,
    link_name,
    unpack_cluster,
    unpack_link_name,
)
from queue_wire.files.stored_order import HOLD_DIRECTORY, ORDER_MAX, WHOLE, unpack_order
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_long_id

SETTLE = 0.1  # Seconds after which what looked wrong is looked at again.
LINK_AGE = 3600.0  # Seconds after which a link that no record needs is left over.

_Owner = tuple[int, int]


class _Look(NamedTuple):
    """What a look at a cluster found: the links that are missing, each with the number of its recipients, those that
    any of its records has needed, and whether it ends with a record. `trouble` says why it cannot be read.
    """

    missing: Counter[str]
    named: set[str]
    whole: bool = True
    trouble: str = ""


def check_stored(queue: str, owner: _Owner | None = None, now: float | None = None) -> Iterator[Finding]:
    """Yield clusters whose end is no record, messages that are missing or that no record needs, and what is not as
    queue-ondemand makes it. Raises OSError. Without `owner`, owners and modes are not looked at.
    """
    now = time.time() if now is None else now
    yield from _check_mode(queue, ONDEMAND, owner, "")
    for domain in _names(f"{queue}/{ONDEMAND}"):
        place = f"{ONDEMAND}/{domain}"
        found = look_at(f"{queue}/{place}")
        if not is_domain_name(os.fsencode(domain)) or found is None or not stat.S_ISDIR(found.st_mode):
            if found is not None:
                yield Finding("stray", place, "is not the directory of a domain")
            continue
        yield from _check_domain(queue, place, owner, now)


def _check_domain(queue: str, place: str, owner: _Owner | None, now: float) -> Iterator[Finding]:
    yield from _check_mode(queue, place, owner, "")
    named: set[str] = set()
    names = _names(f"{queue}/{place}")
    for number in sorted(number for name in names if (number := cluster_number(name))):
        path = f"{place}/{number}{SUFFIX}"
        found = look_at(f"{queue}/{path}")
        if found is not None and not stat.S_ISREG(found.st_mode):
            yield Finding("kind", path, "is not a regular file")
            continue
        yield from _check_mode(queue, path, owner, SUFFIX)
        if not _look(queue, place, number).whole:
            time.sleep(SETTLE)
        seen = _look(queue, place, number)
        named |= seen.named
        if seen.trouble:
            yield Finding("stored", path, f"cannot be read: {seen.trouble}")
        elif not seen.whole:
            yield Finding("stored", path, "has something at its end that is no record")
        for name, recipients in seen.missing.items():
            wait = "1 recipient waits" if recipients == 1 else f"{recipients} recipients wait"
            yield Finding("stored", f"{place}/mess/{name}", f"is missing, and {wait} for it")
    for name in names:
        if cluster_number(name) is None and name not in ("mess", *ONDEMAND_ORDERS) and not name.endswith(NEW_SUFFIX):
            yield Finding("stray", f"{place}/{name}", "is no file of a domain")
    for below in ONDEMAND_ORDERS:
        yield from _check_mode(queue, f"{place}/{below}", owner, "")
        for name in _names(f"{queue}/{place}/{below}"):
            if not _is_ordered(queue, f"{place}/{below}/{name}", below):
                yield Finding("stray", f"{place}/{below}/{name}", "is no mark and no order")
    yield from _check_links(queue, f"{place}/mess", named, owner, now)


def _is_ordered(queue: str, path: str, below: str) -> bool:
    """Return whether a file is a mark on what is stored or an order about it, or is gone. Raises OSError."""
    found, name = look_at(f"{queue}/{path}"), os.path.basename(path)
    if found is None:
        return True
    if not stat.S_ISREG(found.st_mode):
        return False
    if below == HOLD_DIRECTORY:
        return name == WHOLE or _is_long_id(name)
    try:
        unpack_order(read_file(f"{queue}/{path}", ORDER_MAX))
    except FileNotFoundError:
        return True
    except (FormatError, OSError):
        return False
    return True


def _is_long_id(name: str) -> bool:
    try:
        return unpack_long_id(name)[1] is not None
    except FormatError:
        return False


def _check_links(queue: str, place: str, named: set[str], owner: _Owner | None, now: float) -> Iterator[Finding]:
    yield from _check_mode(queue, place, owner, "")
    for name in _names(f"{queue}/{place}"):
        path = f"{place}/{name}"
        found = look_at(f"{queue}/{path}")
        if found is None:
            continue
        if unpack_link_name(name) is None:
            yield Finding("stray", path, "is not the name of a stored message")
        elif not stat.S_ISREG(found.st_mode):
            if name not in named:  # Else its recipients wait for it.
                yield Finding("kind", path, "is not a regular file")
        else:
            yield from _check_mode(queue, path, owner, "mess")
            if name not in named and found.st_ctime < now - LINK_AGE:
                yield Finding("stored", path, "is a message that no record needs")


def _check_mode(queue: str, path: str, owner: _Owner | None, kind: str) -> Iterator[Finding]:
    found = None if owner is None else look_at(f"{queue}/{path}")
    if found is not None and owner is not None:
        facts = FileFacts(found.st_ino, found.st_mode, found.st_uid, found.st_gid, found.st_mtime, found.st_ctime)
        for verdict in judge_owner(path, facts, owner, ONDEMAND_MODES[kind]):
            yield Finding(verdict.code, path, verdict.what)


def _look(queue: str, place: str, number: int) -> _Look:
    """Return what is found, without what is missing only because it was delivered meanwhile."""
    seen = _read(queue, place, number)
    if seen.missing:
        # Those that were delivered meanwhile are done now.
        again = _read(queue, place, number)
        seen = again._replace(missing=seen.missing & again.missing)
    return seen


def _read(queue: str, place: str, number: int) -> _Look:
    """Return what a cluster says. One that is gone is in order."""
    try:
        data = read_file(f"{queue}/{place}/{number}{SUFFIX}", CLUSTER_MAX)
    except FileNotFoundError:
        return _Look(Counter(), set())
    except OSError as error:
        return _Look(Counter(), set(), False, reason(error))
    cluster = unpack_cluster(data)
    waiting = Counter(link_name(number, record.stored.long_id) for record in cluster.pending)
    missing = Counter({name: count for name, count in waiting.items() if not is_link(f"{queue}/{place}/mess/{name}")})
    named = {link_name(number, record.stored.long_id) for record in cluster.records}
    return _Look(missing, named, cluster.end == len(data))


def is_link(path: str) -> bool:
    """Return whether a stored message has its file."""
    return is_regular(look_at(path))


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
