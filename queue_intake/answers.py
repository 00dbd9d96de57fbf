"""The answers to a client, in the order in which its packages came, whichever of them is decided first. Pure."""

from collections import deque

from queue_wire.pipes.package_reader import Package, Protocol
from queue_wire.pipes.qmtp import PERMANENT, pack_answer

_INVALID = pack_answer(PERMANENT, b"not an address: too long, or with a NUL (#5.1.3)")
# What `collect` returns at least while there is more: answers for many recipients are made as the client reads them.
_PIECE = 32768
# What a run takes of memory: a tuple, a number, and its place in the row.
RUN_BYTES = 128


class Place:
    """The place of a package's answers. Runs are (an answer, how many recipients in a row have it)."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: deque[tuple[bytes, int]] | None = None


class Answers:
    """The answers that are still to be sent on one connection; `memory` is the bytes that those take."""

    def __init__(self) -> None:
        self._places: deque[Place] = deque()
        self.memory = 0

    def __len__(self) -> int:
        """Return how many packages are not decided, or have answers that were not collected."""
        return len(self._places)

    def reserve(self) -> Place:
        """Return the place of a package, behind those of the packages that came before."""
        place = Place()
        self._places.append(place)
        return place

    def settle(self, place: Place, runs: deque[tuple[bytes, int]]) -> None:
        """Set the answers of a package."""
        place.runs = runs
        self.memory += RUN_BYTES * len(runs)

    def forget(self) -> None:
        """Forget all answers: nobody will collect them."""
        self._places.clear()
        self.memory = 0

    def collect(self) -> bytes:
        """Return answers that may be sent now, and forget them; empty if the next package is not decided."""
        parts: list[bytes] = []
        length = 0
        while self._places and length < _PIECE:
            runs = self._places[0].runs
            if runs is None:
                break
            if not runs:
                self._places.popleft()
                continue
            answer, count = runs.popleft()
            few = min(count, max(1, _PIECE // len(answer)))
            if count > few:
                runs.appendleft((answer, count - few))
            else:
                self.memory -= RUN_BYTES
            parts.append(answer * few)
            length += len(answer) * few
        return b"".join(parts)


def answer_runs(
    package: Package, protocol: Protocol | None, letter: bytes, text: bytes, refuses_invalid: bool = True
) -> deque[tuple[bytes, int]]:
    """Return the answers to a package: one for QMQP, one for each recipient for QMTP. Neighbours in it differ.

    Invalid recipients are refused as such, unless the whole package is refused (`refuses_invalid` is False).
    """
    answer = pack_answer(letter, text)
    if protocol is Protocol.QMQP:
        return deque([(answer, 1)])
    runs: deque[tuple[bytes, int]] = deque()
    at = row = 0  # `row` is the number of invalid recipients in a row before `at`.
    for place in package.invalid if refuses_invalid else ():
        if place > at:
            if row:
                runs.append((_INVALID, row))
            runs.append((answer, place - at))
            row = 0
        row += 1
        at = place + 1
    if row:
        runs.append((_INVALID, row))
    if package.sent > at:
        runs.append((answer, package.sent - at))
    return runs
