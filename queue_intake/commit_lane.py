"""The commits of one queue: what waits for its disk, and the threads that wait for it.

The loop calls `begin_sync` and `go_on` in its turns. One thread syncs the contents of large messages, another one
commits groups; with several queues the latter carries out all of a commit, so that a slow disk delays its queue alone.
"""

import time
from functools import partial

from queue_base.daemon.disk_thread import DiskThread, Result
from queue_base.errors import reason
from queue_intake.acceptance import Acceptance, Refusal
from queue_intake.client_connection import ClientConnection
from queue_intake.commit_group import CommitGroup, PartSync, ReceivedMessage, prepare_large
from queue_intake.entrance import Door
from queue_intake.sharing import Turns
from queue_wire.pipes.qmtp import TEMPORARY

COMMITTING = 0.004  # Seconds of a turn for the names and envelopes of messages.


class LargeMessage:
    """A message that a thread prepares before its commit."""

    def __init__(self, connection: ClientConnection, message: ReceivedMessage) -> None:
        self.connection = connection
        self.message = message

    def run(self) -> None:
        """Sync; a thread calls it."""
        prepare_large(self.message)


class CommitLane:
    """What waits for the disk of one queue, and the threads that do the work."""

    def __init__(self, door: Door, most: int, in_memory: bool, in_thread: bool) -> None:
        """most: messages of a commit. in_memory: the loop itself syncs: to hand that over to a thread costs much more.

        in_thread: a thread carries out all of a commit.
        """
        self.door = door
        self.begun_at = 0.0
        self.commits, self.syncs = DiskThread(), DiskThread()
        self.large: Turns[PartSync | LargeMessage] = Turns()
        self.turns: Turns[tuple[ClientConnection, ReceivedMessage]] = Turns()
        self._most = most
        self._in_memory = in_memory
        self._in_thread = in_thread
        # The commit that is under way, and the connections of its messages.
        self._group: CommitGroup | None = None
        self._members: list[ClientConnection] = []

    @property
    def busy(self) -> bool:
        """Whether anything is to be done."""
        return bool(len(self.turns) or len(self.large) or self.committing or self.syncs.busy)

    @property
    def has_results(self) -> bool:
        """Whether there are results to deliver now."""
        return self.commits.has_results or self.syncs.has_results

    def run(self, ready: dict[int, int], now: float) -> None:
        """Deliver results."""
        self.commits.run(ready, now)
        self.syncs.run(ready, now)

    def begin_sync(self) -> None:
        """Begin the next sync of contents, if none runs: one at a time, so that clients have turns."""
        if not self.syncs.busy and len(self.large):
            (work,) = self.large.take(1)
            self.syncs.submit(work.run, partial(self._synced, work))

    def _synced(self, work: PartSync | LargeMessage, result: Result) -> None:
        if isinstance(work, PartSync):
            return  # Its connection finds what became of it.
        if result is not None:
            work.message.give_up(Refusal(TEMPORARY, f"unable to queue the message: {reason(result)} (#4.3.0)"))
        self.turns.add(work.message.client, (work.connection, work.message))

    @property
    def committing(self) -> bool:
        """Whether a commit is under way."""
        return self._group is not None

    @property
    def wants_turn(self) -> bool:
        """Whether `go_on` has something to do now."""
        return not self.commits.busy and (self.committing or len(self.turns) > 0)

    def go_on(self, now: float) -> tuple[list[ClientConnection], CommitGroup] | None:
        """Go on with the commit, or begin one of the messages that wait, for a while; a thread waits for the disk.

        Returns the group if its commit has ended, and the connections of its messages.
        """
        acceptance = self.door.acceptance
        if self.commits.busy or acceptance is None:
            return None
        group = self._group
        if group is None:
            group = self._group = CommitGroup(acceptance.writer)
            self.begun_at = now
        if not group.begun:
            self._fill(group, acceptance)
            if self._in_thread:
                self.door.busy_since = now
                self.commits.submit(partial(_commit_whole, group), partial(self._end_whole, group))
                return None
            # Without a disk a larger group saves nothing that is worth a wait.
            if not self._in_memory and len(self.turns) and len(group.messages) < self._most:
                return None
        while not self._in_thread and group.go_on():
            if not self._in_memory:
                self.commits.submit(group.sync, partial(self._synced_group, group))
                return None
            group.sync()
        members, self._members, self._group = self._members, [], None
        return members, group

    def _fill(self, group: CommitGroup, acceptance: Acceptance) -> None:
        """Add messages that wait to a group, for a while."""
        until = time.monotonic() + COMMITTING
        while len(self.turns) and len(group.messages) < self._most:
            ((connection, message),) = self.turns.take(1)
            self._members.append(connection)
            if message.acceptance is not acceptance:
                message.give_up(Refusal(TEMPORARY, "the queue was opened anew; try again later (#4.3.0)"))
            if self._in_thread:
                group.messages.append(message)
            else:
                group.add(message)
            if time.monotonic() >= until and not self._in_thread:
                break

    def _end_whole(self, group: CommitGroup, result: Result) -> None:
        self.door.busy_since = 0.0
        if result is not None:
            group.fail(result)
            group.go_on()

    def _synced_group(self, group: CommitGroup, result: Result) -> None:
        # Lack of memory; the other failures show in the next step.
        if result is not None:
            group.fail(result)


def _commit_whole(group: CommitGroup) -> None:
    """Carry out all of a commit; a thread calls it, so that no step of it on a slow disk delays other queues."""
    messages, group.messages = group.messages, []
    try:
        for message in messages:
            group.add(message)
    finally:
        group.messages = messages
    while group.go_on():
        group.sync()
