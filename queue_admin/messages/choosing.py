"""Which messages a command is for: those with given long ids, those that match selectors, or both. Reads only."""
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from queue_admin.messages.detail import Detail, read_detail, read_done_marks
from queue_admin.messages.divided import count_shares, divide_in_order
from queue_admin.messages.named_message import check_long_id
from queue_admin.messages.selectors import Selectors
from queue_admin.messages.sieve import Sieve
from queue_admin.messages.survey import Snapshot, Stray, Survey, look
from queue_admin.progress import Progress
from queue_base.errors import Temporary, reason
from queue_base.queue.layout import Layout
from queue_base.queue.marks_file import LeftMarks
from queue_wire.ids import is_id, unpack_long_id

IDS_CHUNK = 65536  # Bytes of ids that are read from stdin at once.
ID_MAX = 200  # Bytes of a line with an id, of which only the first word counts.
FEW = 8  # If less than one in so many messages of a bucket is left, they are looked at one by one, without a listing.


class Chosen(NamedTuple):
    """A message that a command is for: its long id, its pending recipients that are chosen, in lower case, and how
    many others it has. Both are empty where the command was given ids alone."""

    name: str
    recipients: set[bytes]
    others: int


def pending(detail: Detail) -> set[bytes]:
    """Return the recipients that are not done, in lower case."""
    left = {address for channel in detail.channels.values() for done, address in channel.recipients if not done}
    return {address.lower() for address in (*left, *detail.unsorted_left)}


def read_names(words: tuple[str, ...]) -> Iterator[str]:
    """Yield the ids on the command line; for `-`, those on stdin: the first word of each line, or NUL between them."""
    for word in words:
        if word == "-":
            yield from _read_stdin()
        else:
            yield word


def _read_stdin() -> Iterator[str]:
    rest = b""
    while data := os.read(0, IDS_CHUNK):
        *lines, rest = re.split(rb"[\0\n]", rest + data)
        yield from (line.split()[0].decode("utf-8", "replace") for line in lines if line.split())
        # The rest of a line behind its id may be long.
        rest = rest[:ID_MAX]
    if rest.split():
        yield rest.split()[0].decode("utf-8", "replace")


def select(
    layout: Layout,
    selectors: Selectors,
    now: float,
    progress: Progress | None = None,
    every_state: bool = False,
    marked: bool = False,
) -> Iterator[tuple[Snapshot, Detail]]:
    """Yield the messages that match. Raises Temporary.

    Without `every_state`, only those that can be changed: queued and classified ones. `marked`: only those with a mark
    in hold/ or corrupt/, which are found without a look at the others. Several processes look through a large queue.
    """
    if selectors.state == "stored":
        return  # Those are not in the queue.
    marks = read_done_marks(layout)

    def matching(snapshots: Iterable[Snapshot | Stray]) -> Iterator[tuple[Snapshot, Detail]]:
        for found in snapshots:
            if isinstance(found, Stray):
                continue
            if not every_state and (found.birth is None or found.state not in ("queued", "classified")):
                continue
            read = read_detail(layout, found, marks)
            if read is None or (read[0].birth is None and not every_state):
                continue
            if selectors.match(layout, *read, now):
                yield read

    if marked or selectors.state in ("held", "corrupt", "deleted"):
        yield from matching(_marked(layout, progress))
        return
    every, sieve = Survey(layout), Sieve(layout, selectors, now)

    def look_through(number: int) -> Iterator[tuple[Snapshot, Detail] | int]:
        """Yield the messages of a bucket that match, or of those in no bucket, then how many were looked at."""
        if number == layout.split:
            if sieve.everywhere:
                yield from matching(every.beside())
            return
        messages, count = sieve.sift(number)
        few = len(messages) * FEW < count
        yield from matching(every.some(messages) if few else every.bucket(number, frozenset(messages)))
        yield count

    for found in divide_in_order(look_through, layout.split + 1, count_shares(layout)):
        if not isinstance(found, int):
            yield found
        elif progress is not None:
            progress.step(found)


def _marked(layout: Layout, progress: Progress | None) -> Iterator[Snapshot]:
    """Yield the messages that have a mark."""
    for number in range(layout.split):
        found: set[str] = set()
        for kind in ("hold", "corrupt"):
            try:
                names = os.listdir(f"{layout.queue}/{kind}/{number}")
            except FileNotFoundError:
                continue  # A queue of qmail has neither.
            except OSError as error:
                raise Temporary(f"unable to read {error.filename}: {reason(error)}") from error
            found.update(name for name in names if is_id(name))
        for message in sorted(map(int, found)):
            snapshot = look(layout, message)
            if snapshot is not None:
                yield snapshot
            if progress is not None:
                progress.step()


def find(layout: Layout, names: Iterator[str], selectors: Selectors, now: float) -> Iterator[tuple[Snapshot, Detail]]:
    """Yield, of the messages with these long ids, those that match."""
    marks = read_done_marks(layout)
    for name in names:
        yield from _find(layout, name, marks, selectors, now)


def _find(
    layout: Layout, name: str, marks: LeftMarks | None, selectors: Selectors, now: float
) -> Iterator[tuple[Snapshot, Detail]]:
    message, birth = unpack_long_id(name)
    found = look(layout, message)
    if found is not None and found.birth == birth:
        detail = Detail(layout, found, marks)
        if selectors.match(layout, found, detail, now):
            yield found, detail


def choose(
    layout: Layout,
    selectors: Selectors,
    names: Iterator[str] | None,
    now: float,
    progress: Progress | None,
    whole: bool,
    marked: bool = False,
) -> Iterator[Chosen]:
    """Yield the messages that a command is to change. `whole`: their recipients are to be known, too.

    `marked` is as for `select`.
    """
    if names is None:
        for snapshot, detail in select(layout, selectors, now, progress, marked=marked):
            yield _chosen(selectors, snapshot, detail)
        return
    marks = read_done_marks(layout) if whole or selectors.any else None
    for name in names:
        check_long_id(layout, name)
        if selectors.any:
            yield from (_chosen(selectors, *found) for found in _find(layout, name, marks, selectors, now))
        else:
            # Also one that is gone: the answer to the order says so.
            found = next(_find(layout, name, marks, selectors, now), None) if whole else None
            yield Chosen(name, set(), 0) if found is None else _chosen(selectors, *found)
        if progress is not None:
            progress.step()


def _chosen(selectors: Selectors, snapshot: Snapshot, detail: Detail) -> Chosen:
    recipients = selectors.chosen(detail)
    others = len(pending(detail)) - len(recipients) if selectors.recipients.any else 0
    return Chosen(snapshot.long_id, recipients, others)
