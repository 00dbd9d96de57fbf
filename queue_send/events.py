"""What a channel's scheduler is given, and what it decides. Pure."""

from typing import NamedTuple, Protocol

from queue_send.attempt import Attempt, Group
from queue_send.destination import Destination, Limits
from queue_send.named import Named


class Events(Protocol):
    """What the scheduler decides about messages and destinations; the caller carries it out."""

    def deferred(self, attempt: Attempt, now: float) -> None:
        """Recipients are left: keep the next attempt on disk; give the message back with `found`, `later` or `wake`."""

    def finished(self, attempt: Attempt, now: float) -> None:
        """No recipient is left of those that were loaded."""

    def withdrawn(self, attempt: Attempt) -> None:
        """An attempt that was to be withdrawn has nothing in flight any more."""

    def expired(self, group: Group) -> None:
        """These recipients fail without an attempt: too long in the queue, and no way to try them. Then `settled`."""

    def died(self, destination: Destination) -> None:
        """A destination is dead from now on."""

    def revived(self, destination: Destination) -> None:
        """A dead destination is alive again."""


class Settings(NamedTuple):
    """`concurrency` deliveries and `active` messages at the most; limits of every destination, and of those named."""

    concurrency: int
    active: int
    limits: Limits
    named: Named = Named()
