"""Work that is divided among processes: each does a share, and the results come back through pipes.

`divide` is for shares that have one result each: this process does the first one, children of it the others.
`divide_in_order` is for pieces that have many results each, which come in order, as if one process did the work. The
children end with their work, with this process, and with the generator that reads their results.
"""

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, BinaryIO, TypeVar

from queue_base.errors import Failure, Temporary
from queue_base.queue.layout import Layout

Result = TypeVar("Result")

SHARES_MAX = 4  # Processes that work,
DIVIDED_MIN = 50_000  # if there are so many messages.
BATCH = 200  # Results that are written together, of one piece.


def count_shares(layout: Layout) -> int:
    """Return how many processes are to look through a queue: one for a small queue, and for each core one."""
    try:
        messages = len(os.listdir(layout.directories("info")[0])) * layout.split
    except OSError:
        return 1  # Whoever looks through it reports it.
    return min(SHARES_MAX, len(os.sched_getaffinity(0))) if messages >= DIVIDED_MIN else 1


def divide(work: Callable[[int], Result], shares: int) -> list[Result]:
    """Return work(0), work(1), ... of all shares. Raises what a share raises, Temporary if a process is killed."""

    def write(share: int, pipe: BinaryIO) -> None:
        _dump(pipe, work(share))

    children = _Children()
    try:
        for share in range(1, shares):
            children.begin(partial(write, share))
        return [work(0), *(children.load(child) for child in range(shares - 1))]
    finally:
        children.end()


def divide_in_order(work: Callable[[int], Iterator[Result]], pieces: int, shares: int) -> Iterator[Result]:
    """Yield what work(0), work(1), ... yield, of so many pieces, in this order.

    With more than one share, so many children work ahead, as far as their pipes take the results. Raises what the work
    raises, Temporary if a process is killed.
    """
    if shares == 1:
        for piece in range(pieces):
            yield from work(piece)
        return
    parent = os.getpid()

    def write(share: int, pipe: BinaryIO) -> None:
        for piece in range(share, pieces, shares):
            batch = []
            for each in work(piece):
                batch.append(each)
                if len(batch) == BATCH:
                    _dump(pipe, batch)
                    batch = []
            _dump(pipe, batch)
            # An empty batch ends a piece.
            if batch:
                _dump(pipe, [])
            if os.getppid() != parent:
                return

    children = _Children()
    try:
        for share in range(shares):
            children.begin(partial(write, share))
        for piece in range(pieces):
            while batch := children.load(piece % shares):
                yield from batch
    finally:
        children.end()


class _Children:
    """Processes that write pickled results, or what they failed with, into pipes."""

    def __init__(self) -> None:
        self._children: list[tuple[int, BinaryIO]] = []

    def begin(self, work: Callable[[BinaryIO], None]) -> None:
        """Start a process that does the work, which writes its results into a pipe."""
        sys.stdout.flush()
        reader, writer = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid:
            os.close(writer)
            self._children.append((pid, os.fdopen(reader, "rb")))
            return
        try:
            os.close(reader)
            with os.fdopen(writer, "wb") as pipe:
                try:
                    work(pipe)
                except Failure as failure:
                    pickle.dump((None, failure), pipe)
        finally:
            # No handler and no buffer of this process's copy may run here.
            os._exit(0)

    def load(self, child: int) -> Any:
        """Return the next result of a child. Raises what it failed with, Temporary if it was killed."""
        pid, pipe = self._children[child]
        try:
            result, failure = pickle.load(pipe)
        except (EOFError, pickle.UnpicklingError) as error:
            raise Temporary(f"unable to look through the queue: process {pid} has ended; try again") from error
        if failure is not None:
            raise failure
        return result

    def end(self) -> None:
        """End those that are left."""
        for pid, pipe in self._children:
            pipe.close()
            os.kill(pid, signal.SIGKILL)  # It has not been waited for, so the number is its own.
            os.waitpid(pid, 0)


def _dump(pipe: BinaryIO, result: object) -> None:
    pickle.dump((result, None), pipe)
    pipe.flush()
