"""What is wrong with the mail that is stored for on-demand domains. Reads only.

A queue may be live: what looks wrong is looked at again, since a record may just be appended or delivered.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator

from queue_admin.checks.findings import Finding
from queue_admin.home.modes import ONDEMAND
from queue_base.durable import read_file
from queue_wire.files.cluster import (
    CLUSTER_MOST,
    SUFFIX,
    StoredRecipient,
    cluster_number,
    link_name,
    unpack_cluster,
)

SETTLE = 0.1  # Seconds after which what looked wrong is looked at again.


def check_stored(queue: str) -> Iterator[Finding]:
    """Yield clusters whose end is no record, and messages that are missing. Raises OSError."""
    for domain in _names(f"{queue}/{ONDEMAND}"):
        place = f"{ONDEMAND}/{domain}"
        for number in sorted(number for name in _names(f"{queue}/{place}") if (number := cluster_number(name))):
            if _look(queue, place, number) is None:
                time.sleep(SETTLE)
            found = _look(queue, place, number)
            if found is None:
                text = "has something at its end that is no record"
                yield Finding("stored", f"{place}/{number}{SUFFIX}", text)
                found = _read(queue, place, number)[0]
            for name, recipients in found.items():
                wait = "1 recipient waits" if recipients == 1 else f"{recipients} recipients wait"
                yield Finding("stored", f"{place}/mess/{name}", f"is missing, and {wait} for it")


def _look(queue: str, place: str, number: int) -> Counter[str] | None:
    """Return the links that are missing, each with the number of its recipients; None if the end is no record."""
    missing, whole = _read(queue, place, number)
    if missing:
        # Those that were delivered meanwhile are done now.
        again, whole = _read(queue, place, number)
        missing &= again
    return missing if whole else None


def _read(queue: str, place: str, number: int) -> tuple[Counter[str], bool]:
    """Return the links that are missing, and whether the cluster ends with a record. One that is gone is in order."""
    try:
        data = read_file(f"{queue}/{place}/{number}{SUFFIX}", CLUSTER_MOST)
    except FileNotFoundError:
        return Counter(), True
    cluster = unpack_cluster(data)
    waiting: list[StoredRecipient] = [record.stored for record in cluster.pending]
    there = {long_id: link_name(number, long_id) for long_id in {stored.long_id for stored in waiting}}
    lost = {long_id for long_id, name in there.items() if not os.path.lexists(f"{queue}/{place}/mess/{name}")}
    return Counter(there[stored.long_id] for stored in waiting if stored.long_id in lost), cluster.end == len(data)


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
