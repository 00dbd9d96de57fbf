"""Loading a message with many recipients: a slice of them at a time, and that in small steps between other mail.

Of one message at most RECIPIENTS_MOST recipients are in memory. Once they have their verdicts the next ones are read,
from where these ended: the length of local/B/I and remote/B/I never changes, nor does any record's place, since only
T becomes D. So all slices together read the file once.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from queue_send.attempt import Attempt, Group, Recipient
from queue_send.nexthop import Grouping
from queue_send.scheduler import Scheduler
from queue_send.store import Piece, Store
from queue_wire.control.destinationlimits import LimitLines
from queue_wire.control.smtproutes import Routes

RECIPIENTS_MOST = 1000  # Recipients of one message that are in memory at once.
# Recipients that are grouped in one step; a message with no more is loaded at once. A hostile domain takes 140
# microseconds to be looked up among the routes.
AT_ONCE = 20
GROUPS_AT_ONCE = 25  # Groups that are placed in one step: each may be a new destination.


class Slice(NamedTuple):
    """Where the next recipients begin; `left`: of those before, some were deferred. `birth`, by the disk, and `size`
    of the recipients' file are the message's: a later one of the same number has others."""

    at: int
    birth: int
    size: int
    left: bool


def without(recipients: list[Recipient], tried: Collection[int], attempt: Attempt) -> list[Recipient]:
    """Return the recipients but those that were tried, by their offsets; those are left, and wait."""
    if not tried:
        return recipients
    found = [recipient for recipient in recipients if recipient[0] not in tried]
    attempt.left += len(recipients) - len(found)
    return found


class Loading:
    """One message that is being loaded in steps."""

    def __init__(
        self,
        store: Store,
        kind: str,
        attempt: Attempt,
        at: int,
        first: Piece | None,
        tried: Collection[int],
        routes: Routes,
        lines: LimitLines,
    ) -> None:
        """`at` is where the slice begins, `first` the piece from there on if it was read, `tried` as for `without`."""
        self._first = first
        self._tried = tried
        self._store = store
        self._kind = kind
        self.attempt = attempt
        self._at: int | None = at
        self._grouping = Grouping(kind, attempt.sender, routes, lines)

    def steps(self, scheduler: Scheduler, now: float) -> Iterator[None]:
        """Load a slice, and yield between steps. Raises FormatError, OSError before anything is placed."""
        count = 0
        while self._at is not None and count < RECIPIENTS_MOST and not self.attempt.withdrawn:
            piece, self._first = self._first or self._store.recipients(self.attempt.message, self._kind, self._at), None
            found, self._at = piece.recipients, piece.next
            if len(found) > RECIPIENTS_MOST - count:
                self._at = found[RECIPIENTS_MOST - count][0]
                del found[RECIPIENTS_MOST - count :]
            count += len(found)
            found = without(found, self._tried, self.attempt)
            yield
            for start in range(0, len(found), AT_ONCE):
                self._grouping.add(found[start : start + AT_ONCE])
                yield
        self.attempt.rest = self._at
        groups = self._grouping.groups()
        for number, (nexthop, recipients) in enumerate(groups, 1):
            scheduler.place(Group(self.attempt, nexthop, recipients), len(groups) == 1, now)
            if number % GROUPS_AT_ONCE == 0:
                yield
