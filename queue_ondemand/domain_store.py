"""The mail that is stored for on-demand domains: queue/ondemand/DOMAIN (queue_wire.files.cluster has the format).

    DOMAIN/N.cluster          records, one for each recipient; appended; closed once it has clustersize bytes
    DOMAIN/mess/N.I-BIRTH     a hard link of the message, which the records of cluster N need
    DOMAIN/hold/, order/      what the administrator has ordered (queue_wire.files.stored_order)

A link belongs to one cluster, so whether it is still needed is seen in that file alone. Nothing is counted in memory:
for each domain it has the numbers of the clusters, and the length of the one that is appended to.

Order of durable steps. A crash between two of them leaves what stands behind the dash:

    append      link, names of new directories and clusters   - a link that no record needs; removed with the domain
                records                                        - records that were not acknowledged, whole or not at all
    done        mark                                           - the mark may be lost: one repeat of one recipient
    removal     marks                                          - as above
                links                                          - a cluster in which all is done
                cluster                                        - the same, or directories that the next start removes
    compaction  marks; links; the new file; its new name       - the old cluster or the new one

A cluster that an earlier process wrote is never appended to, since its end may be torn. Whoever uses the store holds
sendmutex, and makes all calls in one thread; the names and numbers may be read in another one. Methods raise OSError.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple

from queue_base.durable import Commit, check_works, read_dated, read_file, sync_handles, write_all
from queue_base.errors import reason
from queue_base.queue.hold_marks import remove_stored_mark
from queue_base.queue.layout import FILE_MODE
from queue_wire.control.ondemand import is_domain_name
from queue_wire.files.cluster import (
    CLUSTER_MAX,
    CLUSTER_SIZE,
    DONE,
    HEADER_SIZE,
    NEW_SUFFIX,
    SUFFIX,
    Cluster,
    ClusterRecord,
    StoredRecipient,
    cluster_number,
    link_name,
    pack_cluster_header,
    pack_stored,
    unpack_cluster,
)
from queue_wire.files.stored_order import (
    HOLD_DIRECTORY,
    ORDER_DIRECTORY,
    ORDER_LIFETIME,
    ORDER_MAX,
    StoredOrder,
    unpack_order,
)
from queue_wire.format_error import FormatError

NOTHING_HELD: frozenset[str] = frozenset()
# The group of queue/ may read the messages, for queue-remote, and nothing else.
DIRECTORY_MODE = 0o2750
TOP = "ondemand"


class StoreRequest(NamedTuple):
    """A message to be stored for a domain, and its recipients. `path` is that of its file, relative to queue/.

    `most` is the limit on the bytes of the domain's messages, 0 for none. A cluster that is made for it is closed at
    `cluster_size` bytes.
    """

    domain: bytes
    path: str
    recipients: Sequence[StoredRecipient]
    most: int = 0
    cluster_size: int = CLUSTER_SIZE


class DomainFiles:
    """What is known of a domain: the numbers of its clusters, and the cluster that is appended to, 0 if there is none.

    `length`, `seed` and `limit`, the length at which it is closed, are of that one. `size` is the sum of the bytes of
    its messages, None before it is needed. `held` are the long ids of messages on hold, or WHOLE.
    """

    __slots__ = ("appending", "clusters", "held", "length", "limit", "seed", "size")

    def __init__(self, clusters: Iterable[int] = ()) -> None:
        self.clusters = sorted(clusters)
        self.appending = 0
        self.length = 0
        self.limit = 0
        self.seed = 0
        self.size: int | None = None
        self.held: frozenset[str] = NOTHING_HELD


class FoundOrder(NamedTuple):
    """The name of an order, and the order, None if there is none; and what is wrong with others, by their names."""

    name: str
    order: StoredOrder | None
    faults: list[tuple[str, str]]


class _Append:
    """The records that a group appends to one cluster. `old` is its length before, 0 for a new one."""

    __slots__ = ("data", "files", "handle", "links", "number", "old", "path", "seed")

    def __init__(self, files: DomainFiles, number: int, path: str, handle: int, old: int) -> None:
        self.files = files
        self.number = number
        self.path = path
        self.handle = handle
        self.old = old
        self.seed = files.seed
        self.data = bytearray()
        self.links: list[str] = []


class DomainStore:
    """All domains of one queue.

    `troubles` are errors of reading the names: of such a domain nothing is delivered, and nothing new is stored.
    """

    def __init__(self, queue: str) -> None:
        """Read the names of what is there. Does not raise."""
        self._queue = queue
        self._top = f"{queue}/{TOP}"
        self._domains: dict[bytes, DomainFiles] = {}
        self.troubles: list[OSError] = []
        # Domains that may have orders since the last process.
        self.ordered: list[bytes] = []
        for name in self._list(self._top):
            if is_domain_name(name.encode("ascii", "replace")):
                self._find_clusters(name)

    def _list(self, path: str) -> list[str]:
        try:
            return os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.troubles.append(error)
            return []

    def _find_clusters(self, name: str) -> None:
        troubles = len(self.troubles)
        names = self._list(f"{self._top}/{name}")
        for left in names:
            if left.endswith(NEW_SUFFIX):
                # A compaction was interrupted before its rename. If this fails, the next one removes it.
                with contextlib.suppress(OSError):
                    os.unlink(f"{self._top}/{name}/{left}")
        domain = name.encode()
        self._domains[domain] = DomainFiles(number for each in names if (number := cluster_number(each)))
        if HOLD_DIRECTORY in names:
            self._domains[domain].held = frozenset(self._list(f"{self._top}/{name}/{HOLD_DIRECTORY}"))
        if ORDER_DIRECTORY in names:
            self.ordered.append(domain)
        left_over = {each for each in names if not each.endswith(NEW_SUFFIX)}
        if len(self.troubles) == troubles and left_over <= {"mess", HOLD_DIRECTORY, ORDER_DIRECTORY}:
            # The removal was interrupted after the last cluster had gone.
            with contextlib.suppress(OSError):
                self._remove_domain(domain)

    @property
    def domains(self) -> list[bytes]:
        """The domains that have clusters."""
        return [domain for domain, files in list(self._domains.items()) if files.clusters]

    def clusters(self, domain: bytes) -> list[int]:
        """Return the numbers of a domain's clusters in the order in which their records were stored."""
        files = self._domains.get(domain)
        return [] if files is None else list(files.clusters)

    def message_path(self, domain: bytes, cluster: int, stored: StoredRecipient) -> str:
        """Return the path of a stored message, relative to queue/."""
        return f"{TOP}/{domain.decode()}/mess/{link_name(cluster, stored.long_id)}"

    # What the administrator has ordered.

    def held(self, domain: bytes) -> frozenset[str]:
        """Return the long ids of a domain's messages on hold, with WHOLE if all of it is, as they were read last."""
        files = self._domains.get(domain)
        return NOTHING_HELD if files is None else files.held

    def read_holds(self, domain: bytes) -> None:
        """Read the marks of a domain anew."""
        files = self._domains.get(domain)
        if files is not None:
            files.held = frozenset(_names(f"{self._top}/{domain.decode()}/{HOLD_DIRECTORY}"))

    def end_of(self, domain: bytes) -> tuple[int, int]:
        """Return the number of a domain's last cluster, and where its next record will begin: nothing lies behind."""
        files = self._domains.get(domain)
        if files is None or not files.clusters:
            return 0, 0
        last = files.clusters[-1]
        return (last, files.length) if files.appending == last else (last + 1, 0)

    def first_order(self, domain: bytes, age: Callable[[int], float], passed: Container[str] = ()) -> FoundOrder:
        """Return a domain's first order but for those with names in `passed`. One that has expired is removed.

        `age` returns how many seconds ago a time of a file was, in whole seconds since the epoch.
        """
        directory = f"{self._top}/{domain.decode()}/{ORDER_DIRECTORY}"
        faults: list[tuple[str, str]] = []
        for name in sorted(_names(directory)):
            if name in passed:
                continue
            path = f"{directory}/{name}"
            try:
                data, given = read_dated(path, ORDER_MAX)
                order = unpack_order(data)
                if age(given // 1_000_000_000) < ORDER_LIFETIME:
                    return FoundOrder(name, order, faults)
                what = f"the order to {order.command.decode()} stored mail could not be carried out in full"
                faults.append((name, f"{path}: {what} within a day, and is removed; what is left stays stored"))
                self.end_order(domain, name)
            except (FormatError, OSError) as error:
                why = reason(error) if isinstance(error, OSError) else str(error)
                faults.append((name, f"{path} is no order and is passed by: {why}; remove it"))
        return FoundOrder("", None, faults)

    def end_order(self, domain: bytes, name: str) -> None:
        """Remove an order, durably; if nothing is stored for the domain, its directory too."""
        commit = Commit()
        try:
            commit.unlink(f"{self._top}/{domain.decode()}/{ORDER_DIRECTORY}/{name}")
        except FileNotFoundError:
            return  # With the directory of the domain.
        commit.sync()
        files = self._domains.get(domain)
        if files is not None and not files.clusters:
            self._remove_domain(domain)

    # Appending.

    def append(self, requests: Sequence[StoreRequest]) -> list[OSError | None]:
        """Store messages, with two waits for the disk for all of them; return what went wrong with each.

        If it is None, the recipients are stored durably.
        """
        commit = Commit()
        failures: list[OSError | None] = [None] * len(requests)
        appends: dict[tuple[bytes, int], _Append] = {}
        try:
            for place, request in enumerate(requests):
                try:
                    self._prepare(request, commit, appends)
                except OSError as error:
                    failures[place] = error
            try:
                commit.sync()
                for append in appends.values():
                    header = b"" if append.old else pack_cluster_header(append.seed)
                    os.pwrite(append.handle, header, 0)
                    _write_at(append.handle, bytes(append.data), append.old or len(header))
                sync_handles([(append.handle, append.path) for append in appends.values()])
            except OSError as error:
                for append in appends.values():
                    self._undo(append)
                return [failure or error for failure in failures]
            for (domain, number), append in appends.items():
                files = self._domains[domain]
                if files.appending == number:
                    files.length = (append.old or HEADER_SIZE) + len(append.data)
            return failures
        finally:
            commit.forget()
            for append in appends.values():
                os.close(append.handle)

    def _prepare(self, request: StoreRequest, commit: Commit, appends: dict[tuple[bytes, int], _Append]) -> None:
        """Link a message, and add its records to what is to be appended."""
        domain = request.domain
        files = self._domains.get(domain)
        if files is None:
            files = self._domains[domain] = DomainFiles()
        first = request.recipients[0]
        if request.most:
            size = self._size(domain, files)
            if size + first.size > request.most:
                raise OSError(errno.EDQUOT, f"{size} bytes are stored, of {request.most}", f"{TOP}/{domain.decode()}")
        append = self._open_append(request, files, commit, appends)
        link = f"{self._queue}/{self.message_path(domain, append.number, first)}"
        try:
            commit.link(f"{self._queue}/{request.path}", link)
            append.links.append(link)
        except FileExistsError:
            pass  # Other recipients of this message are stored.
        append.data += b"".join([pack_stored(stored, files.seed) for stored in request.recipients])
        if files.size is not None and append.links and append.links[-1] == link:
            files.size += first.size

    def _open_append(
        self, request: StoreRequest, files: DomainFiles, commit: Commit, appends: dict[tuple[bytes, int], _Append]
    ) -> _Append:
        """Return the cluster that the next record goes to; a new one if there is none, or it is long enough."""
        domain = request.domain
        append = appends.get((domain, files.appending)) if files.appending else None
        if append is not None and (append.old or HEADER_SIZE) + len(append.data) < files.limit:
            return append
        if append is None and files.appending and files.length < files.limit:
            path = self._path(domain, files.appending)
            append = _Append(files, files.appending, path, os.open(path, os.O_WRONLY | os.O_CLOEXEC), files.length)
        else:
            append = self._make_cluster(domain, files, commit)
            files.limit = request.cluster_size
        appends[domain, append.number] = append
        return append

    def _make_cluster(self, domain: bytes, files: DomainFiles, commit: Commit) -> _Append:
        directory = f"{self._top}/{domain.decode()}"
        for path in (self._top, directory, f"{directory}/mess"):
            commit.directory(path, DIRECTORY_MODE)
        number = files.clusters[-1] + 1 if files.clusters else 1
        path = self._path(domain, number)
        commit.removed(path)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        files.clusters.append(number)
        files.appending, files.length, files.seed = number, HEADER_SIZE, int.from_bytes(os.urandom(8), "little")
        return _Append(files, number, path, handle, 0)

    def _undo(self, append: _Append) -> None:
        """Take back records of a group that could not be made durable, so that they are not delivered.

        Their cluster is not appended to any more: after a failed sync nobody knows what is on the disk.
        """
        files = append.files
        if files.appending == append.number:
            files.appending = 0
        files.size = None
        try:
            if append.old:
                os.ftruncate(append.handle, append.old)
                os.fsync(append.handle)
            else:
                os.unlink(append.path)
                files.clusters.remove(append.number)
            for link in append.links:
                os.unlink(link)
        except OSError:
            return  # Some recipients may get their mail twice.

    # Reading and marking.

    def read(self, domain: bytes, number: int) -> Cluster:
        """Return the records of a cluster."""
        return unpack_cluster(read_file(self._path(domain, number), CLUSTER_MAX))

    def check_marks(self, domain: bytes, number: int) -> None:
        """Raise OSError if records of a cluster could not be marked, as on a disk that has become read-only."""
        handle = os.open(self._path(domain, number), os.O_WRONLY | os.O_CLOEXEC)
        try:
            check_works(handle)
        finally:
            os.close(handle)

    def mark(self, domain: bytes, number: int, offsets: Iterable[int]) -> None:
        """Mark records done. `settle` makes that durable."""
        handle = os.open(self._path(domain, number), os.O_WRONLY | os.O_CLOEXEC)
        try:
            for offset in offsets:
                os.pwrite(handle, DONE, offset)
        finally:
            os.close(handle)

    def settle(self, domain: bytes, number: int) -> None:
        """Remove what the records of a cluster that are done have needed, and the cluster if all are.

        One of which more than half is done is compacted, unless it is appended to.
        """
        path = self._path(domain, number)
        files = self._domains[domain]
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # What is done must be known after a power cut, before it is removed.
            os.fsync(handle)
        finally:
            os.close(handle)
        cluster = self.read(domain, number)
        pending = cluster.pending
        commit = Commit()
        if not pending:
            if files.appending == number:
                files.appending = 0
            self._remove_marks(domain, number, {record.stored.long_id for record in cluster.records})
            self._remove_links(domain, number, cluster.records, commit)
            commit.sync()
            os.unlink(path)
            files.clusters.remove(number)
            if not files.clusters:
                self._remove_domain(domain)
            return
        needed = {record.stored.long_id for record in pending}
        done = [record for record in cluster.records if record.stored.long_id not in needed]
        self._remove_marks(domain, number, {record.stored.long_id for record in done})
        self._remove_links(domain, number, done, commit)
        # The position that an order names is one in this file, not in a compacted one.
        ordered = _names(f"{self._top}/{domain.decode()}/{ORDER_DIRECTORY}")
        if files.appending != number and 2 * _length(pending) < cluster.end and not ordered:
            self._compact(domain, number, pending)  # The last step: a full disk may have no room for it.

    def _remove_links(self, domain: bytes, number: int, records: list[ClusterRecord], commit: Commit) -> None:
        files = self._domains[domain]
        for long_id, size in {record.stored.long_id: record.stored.size for record in records}.items():
            there = commit.unlink(f"{self._top}/{domain.decode()}/mess/{link_name(number, long_id)}")
            if there and files.size is not None:
                files.size -= size

    def _remove_marks(self, domain: bytes, number: int, long_ids: set[str]) -> None:
        """Remove the marks in hold/ of messages that a cluster has no recipients of any more, and no other one has.

        One that a crash brings back is of no message.
        """
        files, directory = self._domains[domain], f"{self._top}/{domain.decode()}"
        ended = [each for each in long_ids & files.held if remove_stored_mark(directory, files.clusters, number, each)]
        files.held -= frozenset(ended)

    def _compact(self, domain: bytes, number: int, pending: list[ClusterRecord]) -> None:
        """Write the records that are not done to a new file of the same name."""
        path = self._path(domain, number)
        new = f"{self._top}/{domain.decode()}/{number}{NEW_SUFFIX}"
        seed = int.from_bytes(os.urandom(8), "little")
        commit = Commit()
        commit.unlink(new)
        records = b"".join([pack_stored(record.stored, seed) for record in pending])
        commit.create(new, pack_cluster_header(seed) + records, FILE_MODE)
        commit.sync()
        commit.rename(new, path)
        commit.sync()

    def _remove_domain(self, domain: bytes) -> None:
        """Remove the directory of a domain that has no records, with links of messages that were not acknowledged."""
        directory = f"{self._top}/{domain.decode()}"
        if _names(f"{directory}/{ORDER_DIRECTORY}"):
            return  # The end of the order does it.
        for below in ("mess", HOLD_DIRECTORY):
            for name in _names(f"{directory}/{below}"):
                os.unlink(f"{directory}/{below}/{name}")
        # Without `mess` its removal was interrupted.
        for below in ("mess", HOLD_DIRECTORY, ORDER_DIRECTORY):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(f"{directory}/{below}")
        os.rmdir(directory)
        del self._domains[domain]

    def _size(self, domain: bytes, files: DomainFiles) -> int:
        """Return the sum of the bytes of a domain's messages."""
        if files.size is None:
            files.size = 0
            for number in files.clusters:
                if number != files.appending or files.length > HEADER_SIZE:
                    pending = self.read(domain, number).pending
                    files.size += sum({each.stored.long_id: each.stored.size for each in pending}.values())
        return files.size

    def _path(self, domain: bytes, number: int) -> str:
        return f"{self._top}/{domain.decode()}/{number}{SUFFIX}"


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _length(records: Iterable[ClusterRecord]) -> int:
    """Return the bytes of records, or little less."""
    return sum(43 + len(record.stored.sender) + len(record.stored.recipient) for record in records)


def _write_at(handle: int, data: bytes, offset: int) -> None:
    os.lseek(handle, offset, os.SEEK_SET)
    write_all(handle, data)
