"""Stores the recipients of jobs that were deferred, or for which no attempt was made.

All that wait while the disk is busy are stored together, with one commit. It is done in the disk thread.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from queue_base.daemon.disk_thread import DiskThread, Result
from queue_base.queue.hold_marks import birth_of
from queue_base.queue.layout import Layout, birth_by
from queue_ondemand.domain_store import DomainStore, StoreRequest
from queue_ondemand.ondemand_files import OnDemandFiles
from queue_wire.files.cluster import StoredRecipient
from queue_wire.pipes.job import Job
from queue_wire.pipes.report import TEMPORARY

# Messages that are stored with one commit, as far as descriptors allow: each may have a domain of its own, for which
# DESCRIPTORS files and directories are open.
GROUP_MAX = 400
DESCRIPTORS = 5
RECIPIENTS_MAX = 1000  # Of these messages; the last one may exceed it. Their log lines are made in one turn.

Verdicts = list[tuple[bytes, bytes]]


class StoredJob:
    """A job whose deferred recipients are being stored. `verdicts` are those of its report; `tried`: there was one.

    `limited`: only limits prevent an attempt, so a run is to follow. `request` is what was stored, and `trouble` why
    it was not.
    """

    __slots__ = ("domain", "job", "limited", "request", "scope", "tried", "trouble", "verdicts")

    def __init__(
        self, job: Job, domain: bytes, verdicts: Verdicts, scope: bytes, tried: bool, limited: bool = False
    ) -> None:
        self.job = job
        self.domain = domain
        self.verdicts = verdicts
        self.scope = scope
        self.tried = tried
        self.limited = limited
        self.request: StoreRequest | None = None
        self.trouble: OSError | None = None

    @property
    def deferred(self) -> list[int]:
        """The places of the recipients that are to be stored."""
        return [place for place, (letter, _) in enumerate(self.verdicts) if letter == TEMPORARY]


class JobStorage:
    """The jobs that wait to be stored. `ended` is called with each group of them, and the trouble of all if any."""

    def __init__(
        self,
        layout: Layout,
        store: DomainStore,
        files: OnDemandFiles,
        disk: DiskThread,
        ended: Callable[[list[StoredJob], Result], None],
    ) -> None:
        self._layout = layout
        self._store = store
        self._files = files
        self._disk = disk
        self._ended = ended
        self._waiting: deque[StoredJob] = deque()
        self._group_max = max(1, min(GROUP_MAX, os.sysconf("SC_OPEN_MAX") // DESCRIPTORS))
        self._is_busy = False

    def add(self, item: StoredJob) -> None:
        """Have the deferred recipients of a job stored."""
        self._waiting.append(item)
        self._store_next()

    def _store_next(self) -> None:
        """Have the disk thread store what waits for it, unless it does so already."""
        if self._is_busy or not self._waiting:
            return
        self._is_busy = True
        group: list[StoredJob] = []
        room = RECIPIENTS_MAX
        while self._waiting and len(group) < self._group_max and room > 0:
            group.append(self._waiting.popleft())
            room -= len(group[-1].job.recipients)
        self._disk.submit(partial(self._store_group, group), partial(self._end_group, group))

    def _store_group(self, group: list[StoredJob]) -> None:
        """In the disk thread."""
        ready: list[StoredJob] = []
        requests: list[StoreRequest] = []
        for item in group:
            try:
                item.request = self._make_request(item)
            except OSError as error:
                item.trouble = error
            else:
                ready.append(item)
                requests.append(item.request)
        for item, trouble in zip(ready, self._store.append(requests), strict=True):
            item.trouble = trouble

    def _make_request(self, item: StoredJob) -> StoreRequest:
        path = os.fsdecode(item.job.path)
        message = int(path.rpartition("/")[2])
        found = os.stat(f"{self._layout.queue}/{path}")
        birth = birth_of(self._layout, message)
        if birth is None:
            birth = birth_by(found)  # As that of a message that is not classified.
        sender, now = item.job.sender, int(time.time())
        recipients = [item.job.recipients[place] for place in item.deferred]
        stored = [StoredRecipient(message, birth, found.st_size, sender, each, now) for each in recipients]
        config = self._files.current
        return StoreRequest(item.domain, path, stored, config.line(item.domain).size, config.cluster_size)

    def _end_group(self, group: list[StoredJob], result: Result) -> None:
        self._is_busy = False
        self._ended(group, result)
        self._store_next()
