"""Which messages of a queue may match selectors, by as few system calls as possible. Reads only.

A large queue is searched for few messages. What decides is read first: of a message by its sender, the length of
info/B/I and then its record; by a recipient, the files of its channels; by its size, no file at all. A file is reached
by the descriptor of its directory and mostly read at once; nothing is parsed. What is left is for a closer look
(`Selectors.match`): the sieve lets pass what it cannot judge, such as a file that has just vanished.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

from queue_admin.messages.detail import CHANNELS, RECEIVED_MAX, received_uid
from queue_admin.messages.selectors import HEADER_MAX, Selectors, find_subject
from queue_admin.messages.survey import HASHED_KINDS
from queue_base.errors import Temporary, reason
from queue_base.queue.layout import Layout
from queue_wire.address import VERP_SUFFIX
from queue_wire.files.envelope import SUBMITTER_BYTES, pack_info
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_id

PIECE = 65536  # Bytes of a file that are read. A longer one is for a closer look.
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK a FIFO would block for ever; what is read from one is empty.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Bucket:
    """The directories of one number, each opened when it is first needed. Use it as a context manager."""

    def __init__(self, layout: Layout, number: int) -> None:
        self._layout = layout
        self._number = number
        self._handles: dict[str, int] = {}
        self._names: dict[str, set[str]] = {}

    def __enter__(self) -> "Bucket":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for handle in self._handles.values():
            os.close(handle)

    def names(self, kind: str) -> set[str]:
        """Return the names in a directory, none if it does not exist. Raises Temporary."""
        found = self._names.get(kind)
        if found is None:
            try:
                found = set(os.listdir(self._handle(kind)))
            except FileNotFoundError:
                found = set()  # A queue that is still qmail's has no hold/ and corrupt/.
            except OSError as error:
                path = f"{self._layout.queue}/{kind}/{self._number}"
                raise Temporary(f"unable to read {path}: {reason(error)}") from error
            self._names[kind] = found
        return found

    def stat(self, kind: str, name: str) -> os.stat_result:
        """Return what lstat says of a file. Raises OSError."""
        return os.stat(name, dir_fd=self._handle(kind), follow_symlinks=False)

    def head(self, kind: str, name: str, most: int) -> bytes:
        """Return the first bytes of a file. Raises OSError."""
        handle = os.open(name, _FILE, dir_fd=self._handle(kind))
        try:
            return os.read(handle, most)
        finally:
            os.close(handle)

    def _handle(self, kind: str) -> int:
        handle = self._handles.get(kind)
        if handle is None:
            flat = {"todo": self._layout.flat_todo, "intd": self._layout.flat_intd}.get(kind, False)
            path = f"{self._layout.queue}/{kind}" if flat else f"{self._layout.queue}/{kind}/{self._number}"
            handle = self._handles[kind] = os.open(path, _DIRECTORY)
        return handle


# Says whether a message of a bucket may match, by its name. Raises OSError.
Test = Callable[[Bucket, str], bool]


class Sieve:
    """The tests for some selectors. `now` is in seconds since the epoch."""

    def __init__(self, layout: Layout, selectors: Selectors, now: float) -> None:
        """Choose the tests. Reads the names of a flat todo/. Raises Temporary."""
        self._layout = layout
        self._kinds, self._without = _sources(selectors)
        text = _text_tests(selectors)
        self._queued = [*text, *_todo_tests(selectors)]
        self._others = [*text, *_classified_tests(selectors, now, layout.lower)]
        self._flat_todo: dict[int, set[str]] = {}
        if layout.flat_todo:
            with Bucket(layout, 0) as bucket:
                for message in _numbers(bucket.names("todo")):
                    self._flat_todo.setdefault(message % layout.split, set()).add(str(message))

    @property
    def everywhere(self) -> bool:
        """Whether also a message may match of which only some file in a flat directory is left."""
        return self._kinds == HASHED_KINDS

    def sift(self, number: int) -> tuple[list[int], int]:
        """Return the messages of a bucket that may match, in order, and how many were looked at. Raises Temporary."""
        split = self._layout.split
        with Bucket(self._layout, number) as bucket:
            # First, so that a message that is classified meanwhile is found here or in the others.
            todo = self._flat_todo.get(number, set()) if self._layout.flat_todo else bucket.names("todo")
            for directory in self._layout.lower_directories(number):
                todo = todo | _listed(directory)
            names: set[str] = set().union(*(bucket.names(kind) for kind in self._kinds))
            # One of which only the file in a flat todo/ is left is among those in no bucket.
            if not (self.everywhere and self._layout.flat_todo):
                names |= todo
            if self._without:
                names -= bucket.names(self._without) - todo
            kept = [name for name in names if _passes(self._queued if name in todo else self._others, bucket, name)]
        return sorted(message for message in _numbers(kept) if message % split == number), len(names)


def _listed(directory: str) -> set[str]:
    """Return the names in a directory of a class. Raises Temporary."""
    try:
        return set(os.listdir(directory))
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise Temporary(f"unable to read {directory}: {reason(error)}") from error


def _passes(tests: list[Test], bucket: Bucket, name: str) -> bool:
    try:
        for test in tests:
            if not test(bucket, name):
                return False
    except OSError:
        pass  # It may have been classified meanwhile, or have ended; the closer look tells.
    return True


def _numbers(names: Iterable[str]) -> list[int]:
    found = []
    for name in names:
        try:
            found.append(unpack_id(os.fsencode(name)))
        except FormatError:
            continue
    return found


def _sources(selectors: Selectors) -> tuple[tuple[str, ...], str]:
    """Return the kinds besides todo/ of which each message that matches has a file, and one of which it has none."""
    if selectors.state == "queued":
        return (), ""
    if selectors.sender is not None or selectors.sender_domain is not None or selectors.state == "classified":
        return ("info",), ""
    if selectors.recipients.any:
        return CHANNELS, ""
    if selectors.reason is not None:
        return ("hold", "corrupt", "last"), ""
    if selectors.state == "incoming":
        return ("mess",), "info"
    if selectors.size is not None or selectors.uid is not None or selectors.subject is not None:
        return ("mess",), ""
    return HASHED_KINDS, ""


def _text_tests(selectors: Selectors) -> list[Test]:
    """Return the tests that need mess/B/I alone."""
    tests: list[Test] = []
    if selectors.size is not None:
        tests.append(lambda bucket, name: selectors.fits_size(bucket.stat("mess", name).st_size))
    if (subject := selectors.subject) is not None:
        tests.append(lambda bucket, name: subject in find_subject(bucket.head("mess", name, HEADER_MAX)).lower())
    return tests


def _todo_tests(selectors: Selectors) -> list[Test]:
    """Return the tests of an envelope in todo/: it has records that begin or end so."""
    needles = _ends_of_recipient(selectors)
    if selectors.sender is not None:
        needles.append(b"\0f%s\0" % selectors.sender)
    if selectors.sender_domain is not None:
        needles.append(b"@%s\0" % selectors.sender_domain)
    if not needles:
        return []

    def test(bucket: Bucket, name: str) -> bool:
        return _may_have(bucket.head("todo", name, PIECE), needles)

    return [test]


def _classified_tests(selectors: Selectors, now: float, lower: Iterable[str]) -> list[Test]:
    """Return the tests of a message that is not in todo/. lower: classes that info/ may name behind the sender."""
    tests: list[Test] = []
    older, sender, domain = selectors.older, selectors.sender, selectors.sender_domain
    whole = None if sender is None else b"f%s\0" % sender
    end = b"" if domain is None else b"@%s\0" % domain
    lengths = set()
    if sender is not None:
        records = [len(sender) + size for size in _rest_sizes(lower)]
        # One more for a final dot. A domain with A-labels may be there with U-labels, which have another length.
        lengths = set() if b"xn--" in sender else {*records, *(length + 1 for length in records)}

    def info(bucket: Bucket, name: str) -> bool:
        if older is not None or whole is not None:
            found = bucket.stat("info", name)
            if older is not None and now - found.st_mtime < older:
                return False
            # Most senders have another length, so their records need not be read.
            if lengths and found.st_size not in lengths:
                return False
        if whole is None and not end:
            return True
        record = bucket.head("info", name, HEADER_MAX).lower()
        record = record[: record.find(b"\0") + 1]
        return _may_be_other_form(record) or ((whole is None or record == whole) and record.endswith(end))

    if older is not None or sender is not None or domain is not None:
        tests.append(info)
    if needles := _ends_of_recipient(selectors):
        tests.append(lambda bucket, name: _has_recipient(bucket, name, needles))
    if (uid := selectors.uid) is not None:
        tests.append(lambda bucket, name: received_uid(bucket.head("mess", name, RECEIVED_MAX)) == uid)
    return tests


def _rest_sizes(lower: Iterable[str]) -> Iterator[int]:
    """Yield the lengths that info/ may have besides its sender."""
    for priority in ("", *lower):
        for uid, submitter in ((None, b""), (0, b""), (0, bytes(SUBMITTER_BYTES))):
            yield len(pack_info(b"", priority, uid, submitter))


def _has_recipient(bucket: Bucket, name: str, needles: list[bytes]) -> bool:
    """Return whether a file of a channel has all the needles, or there is none."""
    found = False
    for kind in CHANNELS:
        if name in bucket.names(kind):
            try:
                data = bucket.head(kind, name, PIECE)
            except FileNotFoundError:
                continue  # The last recipient of the channel was done meanwhile.
            found = True
            if _may_have(data, needles):
                return True
    return not found


def _may_have(data: bytes, needles: list[bytes]) -> bool:
    if len(data) == PIECE or _may_be_other_form(data):
        return True
    lower = data.lower()
    return all(needle in lower for needle in needles)


def _may_be_other_form(data: bytes) -> bool:
    """Return whether an address in records may have a domain with U-labels or a final dot, or is a VERP sender."""
    return b".\0" in data or VERP_SUFFIX + b"\0" in data or not data.isascii()


def _ends_of_recipient(selectors: Selectors) -> list[bytes]:
    """Return with what the record of a chosen recipient ends, with or without the prefix of a virtual domain."""
    found = []
    if selectors.recipient is not None:
        found.append(b"%s\0" % selectors.recipient)
    if selectors.domain is not None:
        found.append(b"@%s\0" % selectors.domain)
    return found
