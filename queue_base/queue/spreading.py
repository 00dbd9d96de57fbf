"""Spreads messages over the queues of a home that has several: which queue is to take a message, and which comes next.

`order_queues` decides, by facts alone: the room on each disk, how much each queue has in hand, whether its daemons run,
and whether its queue-todo asks injectors to wait or to stay away. `SpreadWriter` looks at the queues, and writes to
them: if one cannot take a message, for its disk is full, read-only or gone, the next one does. It moves a message only
as long as it is certain that no queue has it: once its envelope may have its name in todo/, the message belongs to that
queue.

Programs import this module only if control/queues names several queues.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from queue_base.accounts import Owner, queue_owner
from queue_base.errors import QUEUE_TROUBLE, REFUSED, Failure, Permanent, QueueTrouble
from queue_base.home import Home
from queue_base.queue.inflow import LATER, InflowControl
from queue_base.queue.layout import open_layout
from queue_base.queue.writer import Draft, QueueWriter, Writer
from queue_wire.ids import pack_queue_id

# Bytes free, besides what control/queueminfree keeps, from which on a disk is as good as any larger one.
PLENTY = 1 << 30
# Bytes of a message that are kept in memory until it is queued, so that another queue can take it.
KEPT_MAX = 1 << 20
# Seconds for which a queue that has failed comes last.
AVOIDED_SECONDS = 5.0


class QueueFacts(NamedTuple):
    """What decides whether a queue takes the next message.

    closed: it may take none. failed: it has failed a moment ago, or hangs. stopped: its daemons do not run. slow: its
    queue-todo asks injectors to wait. room: bytes that it may take. waiting: messages that it has in hand already.
    """

    closed: bool = False
    failed: bool = False
    stopped: bool = False
    slow: bool = False
    room: int = PLENTY
    waiting: int = 0


def order_queues(facts: Sequence[QueueFacts], turn: int) -> list[int]:
    """Return the places of the queues that may take a message, the best one first. Pure.

    Those that have failed come last, before them those that are stopped, and before these the slow ones: mail that
    waits a moment is better off than mail that nobody delivers, and that better than mail whose disk may not take it.
    Of the others, a queue with half as much in hand as another one comes first, and a disk that is filling up counts as
    if its queue had more in hand. `turn` decides among equals, who have turns.
    """
    count = len(facts)

    def rank(place: int) -> tuple[bool, bool, bool, float, int]:
        found = facts[place]
        share = min(found.room, PLENTY) / PLENTY
        load = (found.waiting + 1) / max(share, 1e-9)
        return found.failed, found.stopped, found.slow, load, (place - turn) % count

    return sorted((place for place, found in enumerate(facts) if not found.closed), key=rank)


class SpreadInflow(InflowControl):
    """The checks before a group of drafts, on all queues: they are closed, slow or refused only if all queues are.

    `admit` waits for those that run, even if one that is stopped asks for nothing.
    """

    __slots__ = ("_inflows",)

    def __init__(self, inflows: list[InflowControl]) -> None:
        self._inflows = inflows
        self.path = inflows[0].path

    def admit(self) -> None:
        taking = [inflow for inflow in self._inflows if not inflow.judge()[1]]
        asked = [inflow for inflow in taking if not inflow.stopped and not (inflow.slow and inflow.refused)] or taking
        if any(not inflow.slow for inflow in asked):
            return
        for inflow in asked:
            if not inflow.refused:
                inflow.admit()
                return
        # `begin` says why none takes it.

    def check(self, place: str | int | None = None, coming: int = 0) -> None:
        """Check nothing: the queue that takes the message does."""

    def judge(self) -> tuple[int, str]:
        found = [inflow.judge() for inflow in self._inflows]
        room = max(room for room, _ in found)
        return room, "" if room >= 0 else "; ".join(why for _, why in found)

    def why_closed(self) -> str | None:
        return self.judge()[1] or None

    @property
    def slow(self) -> bool:
        return all(inflow.slow for inflow in self._inflows)

    @property
    def refused(self) -> bool:
        return all(inflow.refused for inflow in self._inflows)


class SpreadDraft(Draft):
    """A message that is being queued in one of the queues, at `place`, whose draft is `inner`.

    What it has so far is kept while it is small: if its queue fails, another one begins it anew.
    """

    __slots__ = ("_ended", "_kept", "_removed", "_size", "_tried", "_uid", "_writer", "inner", "place")

    def __init__(self, writer: "SpreadWriter", uid: int | None) -> None:
        super().__init__(writer.inflow, "a file in one of the queues", -1, b"")
        self._writer = writer
        self._uid = uid
        self._kept: list[bytes] | None = []
        self._size = 0
        self._ended: tuple[bytes, list[bytes]] | None = None
        self._removed = False
        self._tried: set[int] = set()
        self.place, self.inner = writer.begin_inner(self._tried, uid)
        # What its writer says; the caller may set them, as those of QueueDraft.
        self.priority, self.may_raise, self.submitter = self.inner.priority, self.inner.may_raise, self.inner.submitter

    @property
    def long_id(self) -> str:
        long_id = self.inner.long_id
        return long_id if long_id == "-" else pack_queue_id(self._writer.name_of(self.place), long_id)

    @property
    def may_be_queued(self) -> bool:
        return self.inner.may_be_queued

    def write(self, data: bytes) -> None:
        if self._kept is not None:
            self._kept.append(data)
            self._size += len(data)
            if self._size > KEPT_MAX:
                self._kept = None
        try:
            self.inner.write(data)
        except QueueTrouble as error:
            self.discard_inner()
            self.move(error)

    def finish(self, sender: bytes, recipients: list[bytes]) -> None:
        self._ended = sender, recipients
        try:
            self._finish_inner(sender, recipients)
        except QueueTrouble as error:
            self.discard_inner()
            self.move(error)

    def _finish_inner(self, sender: bytes, recipients: list[bytes]) -> None:
        self.inner.priority, self.inner.may_raise, self.inner.submitter = self.priority, self.may_raise, self.submitter
        self.inner.finish(sender, recipients)

    def move(self, failure: QueueTrouble) -> None:
        """Begin it anew in another queue; the files in this one were removed.

        Raises `failure` if too much of it was read already, or if there is no other queue.
        """
        self._removed = True
        while self._kept is not None:
            self._writer.avoid(self.place)
            self._tried.add(self.place)
            try:
                self.place, self.inner = self._writer.begin_inner(self._tried, self._uid)
            except QueueTrouble:
                raise failure from None
            self._removed = False
            try:
                for data in self._kept:
                    self.inner.write(data)
                if self._ended is not None:
                    self._finish_inner(*self._ended)
                return
            except QueueTrouble:
                self.discard_inner()
        raise failure

    def discard_inner(self) -> None:
        """Remove its files, once: a later message may have the same names."""
        if not self._removed:
            self._removed = True
            self.inner.discard()

    def sync(self) -> None:
        self.inner.sync()

    def duplicate(self) -> int:
        return self.inner.duplicate()

    def close(self) -> None:
        self.inner.close()

    def discard(self) -> None:
        self._kept = None
        self.discard_inner()


class _TargetQueue:
    """One queue: its inflow control, and its writer, which is opened when it is used first."""

    def __init__(self, home: Home, path: str, open_writer: Callable[[], Writer]) -> None:
        self.home = home
        self.inflow = InflowControl(home, path)
        self.avoided = 0.0
        self._open = open_writer
        self._writer: Writer | None = None

    def writer(self) -> Writer:
        """Return the writer. Raises QueueTrouble."""
        if self._writer is None:
            try:
                self._writer = self._open()
            except QueueTrouble:
                raise
            except Failure as failure:
                raise QueueTrouble(QUEUE_TROUBLE, str(failure)) from failure
        return self._writer


def open_spread(home: Home, owner: Owner, uid: int) -> "SpreadWriter":
    """Return a writer to all queues of a home that belong to `owner`; `uid` is that of QueueWriter."""

    def opener(one: Home) -> Callable[[], Writer]:
        def open_one() -> Writer:
            if queue_owner(one).uid != owner.uid:
                raise Permanent(f"unable to use {one.queue}: its owner is not that of {home.run}")
            return QueueWriter(one, open_layout(one.queue), uid)

        return open_one

    homes = [home.choose(name) for name in home.queues]
    return SpreadWriter(homes, [opener(one) for one in homes])


class SpreadWriter(Writer):
    """Writes to the queues of a home: `open_writers` are functions that open the writer of each.

    `directory` is the part of a queue into which they write, `maildrop` or empty.
    """

    def __init__(
        self, homes: Sequence[Home], open_writers: Sequence[Callable[[], Writer]], directory: str = ""
    ) -> None:
        below = f"/{directory}" if directory else ""
        pairs = zip(homes, open_writers, strict=True)
        self._places = [_TargetQueue(home, home.queue + below, open_one) for home, open_one in pairs]
        self._turn = os.urandom(1)[0]
        self._waiting = [0] * len(self._places)
        self.inflow = SpreadInflow([place.inflow for place in self._places])
        self.queues = len(self._places)

    def begin(self, uid: int | None = None) -> SpreadDraft:
        """Return a new, empty draft; `uid` replaces that of the writers."""
        return SpreadDraft(self, uid)

    def begin_inner(self, tried: set[int], uid: int | None) -> tuple[int, Draft]:
        """Return a queue, none of those that were tried, and a draft in it. Raises QueueTrouble if there is none."""
        self._turn += 1
        failure: QueueTrouble | None = None
        for place in self._order():
            if place not in tried:
                try:
                    writer = self._places[place].writer()
                    writer.priority, writer.submitter = self.priority, self.submitter
                    draft = writer.begin(uid) if isinstance(writer, QueueWriter) else writer.begin()
                    self._waiting[place] += 1
                    return place, draft
                except QueueTrouble as error:
                    failure = failure or error
                    self.avoid(place)
        raise failure or QueueTrouble(REFUSED, f"unable to queue message: {self._why_closed()}; {LATER}")

    def _order(self) -> list[int]:
        now = time.monotonic()
        found: list[QueueFacts] = []
        for place, waiting in zip(self._places, self._waiting, strict=True):
            room, why = place.inflow.judge()
            slow = place.inflow.slow
            closed = bool(why) or (slow and place.inflow.refused)
            found.append(QueueFacts(closed, place.avoided > now, place.inflow.stopped, slow, room, waiting))
        return order_queues(found, self._turn)

    def _why_closed(self) -> str:
        whys = [(place.home.name, place.inflow.judge()[1] or "its todo/ is behind") for place in self._places]
        return "; ".join([f"queue {name}: {why}" for name, why in whys])

    def name_of(self, place: int) -> str:
        """Return the name of a queue."""
        return self._places[place].home.name

    def avoid(self, place: int) -> None:
        """Prefer the other queues for a while: this one has failed."""
        self._places[place].avoided = time.monotonic() + AVOIDED_SECONDS

    def commit(self, drafts: Sequence[Draft]) -> None:
        mine = [draft for draft in drafts if isinstance(draft, SpreadDraft)]
        failure: QueueTrouble | None = None
        while mine:
            self._waiting = [0] * len(self._places)
            failures = self._commit_groups(mine)
            moved: list[SpreadDraft] = []
            for draft in mine:
                draft.queued = draft.inner.queued
                if not draft.queued:
                    failure = failures.get(draft.place) or QueueTrouble(QUEUE_TROUBLE, "its queue has not taken it")
                    if not draft.may_be_queued and self._move(draft, failure):
                        moved.append(draft)
            mine = moved
        if failure is not None and not all(draft.queued for draft in drafts):
            raise failure

    def _move(self, draft: SpreadDraft, failure: QueueTrouble) -> bool:
        """Begin a draft, whose files the commit has removed, in another queue; return whether there is one."""
        try:
            draft.move(failure)
        except QueueTrouble:
            return False
        return True

    def _commit_groups(self, drafts: list[SpreadDraft]) -> dict[int, QueueTrouble]:
        """Commit the drafts of each queue, all queues at the same time; return the failures."""
        groups: dict[int, list[SpreadDraft]] = {}
        for draft in drafts:
            groups.setdefault(draft.place, []).append(draft)
        failures: dict[int, QueueTrouble] = {}
        bugs: list[BaseException] = []

        def commit(place: int, group: list[SpreadDraft]) -> None:
            try:
                self._places[place].writer().commit([draft.inner for draft in group])
            except QueueTrouble as error:
                failures[place] = error
            except BaseException as error:
                bugs.append(error)

        last, group = groups.popitem()
        threads = []
        if groups:
            # Imported here because a single message needs no thread.
            import threading

            threads = [threading.Thread(target=commit, args=pair) for pair in groups.items()]
        for thread, pair in zip(threads, groups.items(), strict=True):
            try:
                thread.start()
            except RuntimeError:
                commit(*pair)  # There can be no more threads.
        commit(last, group)
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        if bugs:
            raise bugs[0]
        return failures
