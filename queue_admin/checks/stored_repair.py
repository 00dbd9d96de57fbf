"""Mends the mail that is stored for on-demand domains, while neither queue-send nor queue-ondemand runs.

A damaged cluster is written anew with all records that can be read in it, also those behind the damage; the damaged
file stays in corrupt/unplaced/DOMAIN/. A message that is missing is looked for in mess/ and at the other domains; if it
is nowhere, the recipients go to corrupt/unplaced/I/, as files of the queue. A message that no record needs is removed
if it was delivered, or has another name; else it goes there, too. Every step may be the last one of a killed process:
the next repair goes on.
"""

import os
import stat
from collections import Counter

from queue_admin.checks.message_paths import is_ours, look_at
from queue_admin.checks.moving import SetAside
from queue_admin.checks.stored_records import is_link
from queue_admin.home.modes import ONDEMAND, ONDEMAND_MODES, ONDEMAND_ORDERS
from queue_base.durable import Commit
from queue_base.queue.hold_marks import birth_of
from queue_base.queue.layout import FILE_MODE, Layout
from queue_wire.control.ondemand import is_domain_name
from queue_wire.files.cluster import (
    CLUSTER_MAX,
    DONE,
    NEW_SUFFIX,
    SUFFIX,
    Cluster,
    ClusterRecord,
    cluster_number,
    link_name,
    pack_cluster_header,
    pack_stored,
    salvage_cluster,
    unpack_cluster,
    unpack_link_name,
)
from queue_wire.files.envelope import pack_info
from queue_wire.files.recipients import pack_marked
from queue_wire.ids import unpack_long_id


class StoredMender:
    """Mends all domains of a queue; `counts` says what was done. Methods raise OSError."""

    def __init__(self, layout: Layout, aside: SetAside) -> None:
        self._layout = layout
        self._aside = aside
        self._top = f"{layout.queue}/{ONDEMAND}"
        self._commit = Commit()
        self._elsewhere: dict[str, str] | None = None
        self.counts: Counter[str] = Counter()

    def mend(self) -> None:
        """Mend what is there."""
        for domain in _names(self._top):
            if is_domain_name(os.fsencode(domain)) and os.path.isdir(f"{self._top}/{domain}"):
                self._mend_domain(domain)
        self._commit.sync()
        self._aside.flush()

    def _mend_domain(self, domain: str) -> None:
        directory = f"{self._top}/{domain}"
        # The links of each kind: those whose recipients wait, and those whose recipients all are done.
        needed: set[str] = set()
        done: set[str] = set()
        for name in _names(directory):
            number = cluster_number(name)
            if name.endswith(NEW_SUFFIX):
                self._commit.unlink(f"{directory}/{name}")
            elif number is not None:
                for record in self._mend_cluster(domain, number):
                    (done if record.done else needed).add(link_name(number, record.stored.long_id))
        # A record is durable before the links that it does not need any more are removed.
        self._commit.sync()
        self._mend_links(domain, needed, done - needed)
        self._commit.sync()
        self._aside.flush()
        if not any(cluster_number(name) for name in _names(directory)) and not _names(f"{directory}/mess"):
            self._remove(domain)

    def _mend_cluster(self, domain: str, number: int) -> list[ClusterRecord]:
        """Return the records that the cluster has now."""
        path = f"{self._top}/{domain}/{number}{SUFFIX}"
        found = look_at(path)
        if found is None or not is_ours(found):
            self._aside.put({f"{number}{SUFFIX}": path}, domain, "it is not a regular file of the queue's owner")
            return []
        data = _read_start(path)
        cluster = unpack_cluster(data)
        damaged = cluster.end != found.st_size
        if damaged:
            cluster = Cluster(salvage_cluster(data), len(data))
            why = f"{ONDEMAND}/{domain}/{number}{SUFFIX} had something in it that is no record"
            self._aside.also(path, f"{number}{SUFFIX}", domain, why)
            self.counts["damaged clusters of stored mail written anew"] += 1
        lost = {each.stored.long_id for each in cluster.pending if not self._has_text(domain, number, each)}
        for long_id in sorted(lost):
            self._keep_envelope(domain, [each for each in cluster.pending if each.stored.long_id == long_id])
        if not lost and not damaged:
            return cluster.records
        kept = [each for each in cluster.records if each.done or each.stored.long_id not in lost]
        self._rewrite(domain, number, kept)
        return kept

    def _has_text(self, domain: str, number: int, record: ClusterRecord) -> bool:
        """Return whether a message is there, or was found elsewhere."""
        long_id = record.stored.long_id
        link = f"{self._top}/{domain}/mess/{link_name(number, long_id)}"
        there = look_at(link)
        if is_link(link):
            return True
        other = self._find_text(record)
        if other is None:
            return False
        if there is not None:
            self._aside.put({os.path.basename(link): link}, domain, "it is not a regular file")
            self._aside.flush()
        self._commit.directory(os.path.dirname(link), ONDEMAND_MODES[""])
        self._commit.link(other, link)
        self.counts["stored messages found elsewhere"] += 1
        return True

    def _find_text(self, record: ClusterRecord) -> str | None:
        """Return the path of a message with the long id, None if there is none."""
        message, birth = record.stored.message, record.stored.birth
        path = self._layout.mess(message)
        if is_link(path) and birth_of(self._layout, message) == birth:
            return path
        if self._elsewhere is None:
            self._elsewhere = {}
            for domain in _names(self._top):
                for name in _names(f"{self._top}/{domain}/mess"):
                    link = unpack_link_name(name)
                    if link is not None and is_link(f"{self._top}/{domain}/mess/{name}"):
                        self._elsewhere[link[1]] = f"{self._top}/{domain}/mess/{name}"
        found = self._elsewhere.get(record.stored.long_id)
        return found if found is not None and is_link(found) else None

    def _keep_envelope(self, domain: str, records: list[ClusterRecord]) -> None:
        """Keep the sender and the recipients of a message whose text is lost."""
        first = records[0].stored
        recipients = pack_marked([(each.stored.recipient, False) for each in records])
        why = f"it was stored for {domain} as {first.long_id}, and its text is lost"
        self._aside.keep({"info": pack_info(first.sender), "remote": recipients}, first.message, why)
        self.counts["stored recipients whose message is lost"] += len(records)

    def _rewrite(self, domain: str, number: int, records: list[ClusterRecord]) -> None:
        """Replace a cluster by one with these records, or remove it if there are none."""
        path, new = (f"{self._top}/{domain}/{number}{suffix}" for suffix in (SUFFIX, NEW_SUFFIX))
        # What was set aside must be safe before the old file loses its name.
        self._aside.flush()
        self._commit.sync()
        if not records:
            self._commit.unlink(path)
            return
        seed = int.from_bytes(os.urandom(8), "little")
        packed = [pack_stored(each.stored, seed) for each in records]
        data = [DONE + one[1:] if each.done else one for each, one in zip(records, packed, strict=True)]
        self._commit.unlink(new)
        self._commit.create(new, pack_cluster_header(seed) + b"".join(data), FILE_MODE)
        self._commit.sync()
        self._commit.rename(new, path)
        self._commit.sync()

    def _mend_links(self, domain: str, needed: set[str], done: set[str]) -> None:
        directory = f"{self._top}/{domain}/mess"
        for name in _names(directory):
            path = f"{directory}/{name}"
            link = unpack_link_name(name)
            found = look_at(path)
            if name in needed or link is None or found is None:
                continue
            if not stat.S_ISREG(found.st_mode):
                self._aside.put({name: path}, domain, "it is not a regular file")
            elif name in done or found.st_nlink > 1:
                self._commit.unlink(path)
                self.counts["links of stored messages that nothing needs removed"] += 1
            else:
                why = f"it was stored for {domain} as {link[1]}, and no record names its recipients"
                self._aside.put({"mess": path}, unpack_long_id(link[1])[0], why)
            if self._commit.is_full:
                self._commit.sync()

    def _remove(self, domain: str) -> None:
        """Remove the directory of a domain for which nothing is stored, if there is nothing else in it."""
        directory = f"{self._top}/{domain}"
        for below in ONDEMAND_ORDERS:
            for name in _names(f"{directory}/{below}"):
                if not stat.S_ISDIR(os.lstat(f"{directory}/{below}/{name}").st_mode):
                    self._commit.unlink(f"{directory}/{below}/{name}")
        for path in (*(f"{directory}/{below}" for below in (*ONDEMAND_ORDERS, "mess")), directory):
            try:
                os.rmdir(path)
            except FileNotFoundError:
                continue
            except OSError:
                return  # Somebody has put something there, which check names.


def _read_start(path: str) -> bytes:
    """Return as many bytes as a cluster may have. The size of a damaged one may be anything."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return file.read(CLUSTER_MAX)


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
