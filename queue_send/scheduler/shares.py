"""Shares of the places: what the jobs of one submitter, one local user, one zone or one address hold together. Pure.

A nexthop has its own limits, but somebody may have very many nexthops: the extensions of a user, the hosts of a zone,
the recipients of one submitter's mail. Slow and untested jobs are unsure, as is one that has taken too long. An unsure
job of a local user or a zone gets a place only while those of its holder are fewer than the free places (Choudhury and
Hahne's dynamic threshold): one holder has at most half, two have a third each. So places are left for others, without a
number set aside for each. All jobs of a local user or a zone together, and the unsure ones of a submitter, may be twice
as many, since any number of prompt destinations may turn slow at once. This does not hold for a zone while only one
destination of it has jobs: its own window is enough, and it may be the relay for all mail.

All jobs of a submitter leave an eighth of the places, since any number of destinations that were prompt once may hang
now. Those for a destination that has answered just now leave a sixteenth, so that a submitter's mail for it does not
wait, and that of others behind it, because his mail for others hangs.

Domains of many zones may have one server. Its address is known only while a job hangs: queue-remote tells it then. It
is kept for the destination, and the jobs that are told of, and later unsure ones of such destinations, count for the
share of the address. Its unsure jobs may be twice as many as the places that are left for jobs of their pace.

A destination that only a share prevents from starting a job waits in its queue, as one does for a relay.
"""

from collections import OrderedDict

from queue_send.scheduler.destination import Destination, WaitQueue
from queue_send.scheduler.model import Entry

EXAMINED_AT_ONCE = 20  # Full shares that one search examines.
UNUSED_MAX = 1000  # Shares, some 500 bytes each. If there are more, those are forgotten of which nothing is in flight.
ALL_PACES = 7  # How often the free places one submitter's jobs of all paces may be: seven of eight are all theirs.
WHO_ANSWERS = 15  # The same where the next one is for a destination that has answered just now.
ADDRESSES_MAX = 20_000  # Destinations whose address is kept, some 250 bytes each.


def _room(holds: int, times: int, free: int) -> int:
    """Return how many places may be taken one by one, while fewer are held than `times` the free ones."""
    return (times * free - holds + times) // (times + 1)


def _times(unsure: bool, answers: bool) -> int:
    """Return how often the free places the jobs of one submitter may be, before one for such a destination."""
    return WHO_ANSWERS if answers and not unsure else ALL_PACES


class Share(WaitQueue):
    """The share of one holder. `held`: places of its jobs in flight; `unsure`: those of slow and untested ones.

    `jobs`: their number. `local`: it is that of a local user.
    """

    __slots__ = ("held", "jobs", "local", "name", "unsure")

    def __init__(self, name: bytes) -> None:
        super().__init__()
        self.name = name
        self.held = self.unsure = self.jobs = 0
        self.local = name.endswith(b"@")

    def room(self, unsure: bool, free: int) -> int:
        """Return how many more of the free places its jobs may take, if it is that of a local user or a zone."""
        room = _room(self.held, 2, free)
        return min(room, _room(self.unsure, 1, free)) if unsure else room

    def unsure_room(self, free: int) -> int:
        """Return how many of these places its unsure jobs may take, if it is that of a submitter or an address."""
        return _room(self.unsure, 2, free)

    def is_small(self, free: int) -> bool:
        """Return whether it holds so little that its jobs come before those that wait for a place."""
        return self.unsure <= free // 16


def _is_alone(share: Share, destination: Destination) -> bool:
    """Return whether a destination is the only one of its zone that has jobs."""
    return not share.local and share.jobs == destination.in_flight


class Shares:
    """The shares by the names of their holders, also some of which no job is in flight and for which none waits."""

    def __init__(self) -> None:
        self._shares: dict[bytes, Share] = {}
        self._waiting: OrderedDict[bytes | None, Share] = OrderedDict()  # Those with destinations waiting.
        self._addresses: OrderedDict[bytes, bytes] = OrderedDict()  # The shares' names, by destination.

    def _of(self, *names: bytes | None) -> list[Share | None]:
        return [None if name is None else self._shares.get(name) for name in names]

    def full_for(
        self, destination: Destination, unsure: bool, answers: bool, free: int, places: int
    ) -> Share | None:
        """Return the share that prevents a destination from starting a job; None if there is none.

        `answers`: it has answered just now. `places` are left for jobs of its pace, of the free ones.
        """
        share = None if destination.holder is None else self._shares.get(destination.holder)
        full = share is not None and (share.held >= 2 * free or (unsure and share.unsure >= free))
        if share is not None and full and not _is_alone(share, destination):
            return share
        submitter = destination.next_submitter
        theirs = None if submitter is None else self._shares.get(submitter)
        times = _times(unsure, answers)
        if theirs is not None and (theirs.held >= times * free or (unsure and theirs.unsure >= 2 * free)):
            return theirs
        if not unsure:
            return None
        [there] = self._of(self._addresses.get(destination.name))
        return there if there is not None and there.unsure >= 2 * places else None

    def room_for(
        self, destination: Destination, submitter: bytes | None, unsure: bool, answers: bool, free: int, places: int
    ) -> int:
        """Return how many of the free places the next job of a destination, for a submitter, may take."""
        holder, theirs, there = self._of(destination.holder, submitter, self._addresses.get(destination.name))
        room = free
        if holder is None and destination.holder is not None:
            room = free if not destination.holder.endswith(b"@") else _room(0, 1 if unsure else 2, free)
        elif holder is not None and not _is_alone(holder, destination):
            room = holder.room(unsure, free)
        if submitter is not None:
            room = min(room, _room(0 if theirs is None else theirs.held, _times(unsure, answers), free))
        if unsure and submitter is not None:
            room = min(room, _room(0, 2, free) if theirs is None else theirs.unsure_room(free))
        if unsure and there is not None:
            room = min(room, there.unsure_room(places))
        return room

    def are_small(self, destination: Destination, free: int) -> bool:
        """Return whether the shares of a destination hold so little that it comes before those that wait."""
        names = destination.holder, destination.next_submitter, self._addresses.get(destination.name)
        return all(share is None or share.is_small(free) for share in self._of(*names))

    def count_start(self, entry: Entry, destination: Destination, unsure: bool) -> None:
        """Count the start of a job for the shares of its destination's holder, of its submitter and of its address."""
        address = self._addresses.get(destination.name) if unsure else None
        entry.holders = ()
        for name in (destination.holder, entry.attempt.submitter, address):
            if name is not None:
                self._count_for(name, entry, unsure)

    def _count_for(self, name: bytes, entry: Entry, unsure: bool) -> None:
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = Share(name)
        places = len(entry.recipients)
        entry.holders += (name,)
        share.held += places
        share.jobs += 1
        if unsure:
            share.unsure += places

    def note_address(self, entry: Entry, name: bytes, unsure: bool) -> None:
        """Count a job for the share of the address that it is at, and keep that for its destination.

        If it has been at another one, which hung before, it counts for both.
        """
        self._addresses[entry.nexthop] = name
        self._addresses.move_to_end(entry.nexthop)
        if len(self._addresses) > ADDRESSES_MAX:
            self._addresses.popitem(last=False)
        if name not in entry.holders:
            self._count_for(name, entry, unsure)

    def count_unsure(self, entry: Entry) -> None:
        """Count a job that has become slow."""
        for name in entry.holders:
            self._shares[name].unsure += len(entry.recipients)

    def count_end(self, entry: Entry, unsure: bool) -> None:
        """Count the end of a job."""
        places, shares = len(entry.recipients), self._shares
        for name in entry.holders:
            share = shares[name]
            share.held -= places
            share.jobs -= 1
            if unsure:
                share.unsure -= places
            if len(shares) > UNUSED_MAX:
                self._drop_if_unused(share)

    def waiting_for(self, entry: Entry) -> list[Share]:
        """Return the shares of a job for which destinations may be waiting."""
        return [self._waiting[name] for name in entry.holders if name in self._waiting]

    def enqueue(self, share: Share, destination: Destination) -> None:
        """Have a destination wait for a share."""
        share.enqueue(destination)
        self._waiting[share.name] = share

    def first_waiting(self) -> Share | None:
        """Return the first of the shares for which destinations wait; None if there is none."""
        while self._waiting:
            share = next(iter(self._waiting.values()))
            if share.has_waiting and share.head is not None:
                return share
            del self._waiting[share.name]
            self._drop_if_unused(share)
        return None

    def end_turn(self, share: Share) -> None:
        """Put the first of the shares for which destinations wait to the end."""
        self._waiting.move_to_end(share.name)

    @property
    def waiting(self) -> int:
        """The number of shares for which destinations may be waiting."""
        return len(self._waiting)

    def _drop_if_unused(self, share: Share) -> None:
        if not share.held and share.name not in self._waiting:
            self._shares.pop(share.name, None)
