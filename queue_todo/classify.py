"""Takes a group of messages from S4 to S5: reads todo/, writes info/, local/ and remote/, removes intd/ and todo/.

Three commits serve the whole group. The first makes the names in todo/ safe: their injectors may not have come
to that yet, and info/ without todo/ would be S5. The second makes the new files, and the removal of intd/,
safe; only then does todo/ go, which the third makes safe; only then is anybody told. So a power cut leaves
S4 (and the message is classified again) or S5, and no message that was done comes back.

A message that cannot be read is Parked; one that the disk refuses for now stays in S4 and is returned as
deferred. Nothing here raises for the sake of one message.
"""

import os
from collections.abc import Iterable
from typing import NamedTuple

from queue_base.durable import Commit, read_file
from queue_base.errors import reason
from queue_base.layout import FILE_MODE, Layout
from queue_wire.envelope import Envelope, pack_info, unpack_todo
from queue_wire.errors import FormatError
from queue_wire.recipients import pack_recipients
from queue_wire.rewrite import Rules, split_recipients


class Entry(NamedTuple):
    """A classified message: what the log and queue-send need to know. `size` is bytes of mess/B/I."""

    message: int
    size: int
    envelope: Envelope
    local: bool
    remote: bool


class Outcome:
    """What became of a group: entries classified, (id, reason) parked, (id, reason) deferred.

    `unsure` are entries that are classified as far as anybody can see, but a power cut could undo it. They may
    not be announced before `confirm` has returned: a message that was delivered must not be back in todo/.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.unsure: list[Entry] = []
        self.parked: list[tuple[int, str]] = []
        self.deferred: list[tuple[int, str]] = []


def classify(layout: Layout, rules: Rules, messages: Iterable[int], parked: Iterable[int] = ()) -> Outcome:
    """Classify the messages, those of them that are still in todo/.

    `parked` are ids among them that have a mark in corrupt/: it was for an earlier message, or somebody mended
    the file, so it goes.
    """
    outcome = Outcome()
    commit = Commit()
    messages = list(messages)
    for message in messages:
        commit.contents(os.path.dirname(layout.todo(message)))
    try:
        commit.sync()
    except OSError as error:
        outcome.deferred += [(message, f"sync of todo: {reason(error)}") for message in messages]
        return outcome
    for message in parked:
        try:
            commit.unlink(layout.hashed("corrupt", message))
        except OSError as error:
            outcome.deferred.append((message, f"{layout.hashed('corrupt', message)}: {reason(error)}"))
    for message in messages:
        try:
            entry = _prepare(layout, rules, message, commit)
        except FormatError as error:
            outcome.parked.append((message, str(error)))
        except OSError as error:
            outcome.deferred.append((message, f"{error.filename or layout.todo(message)}: {reason(error)}"))
        else:
            if entry is not None:
                outcome.entries.append(entry)
    _finish(layout, commit, outcome)
    _park(layout, outcome)
    return outcome


def _prepare(layout: Layout, rules: Rules, message: int, commit: Commit) -> Entry | None:
    try:
        data = read_file(layout.todo(message))
    except FileNotFoundError:
        return None
    envelope = unpack_todo(data)
    try:
        mess = os.stat(layout.mess(message))
    except FileNotFoundError as error:
        raise FormatError(f"{layout.mess(message)} is missing") from error
    if mess.st_ino != message:
        raise FormatError(f"{layout.mess(message)} has inode number {mess.st_ino}: the queue was copied, not moved")
    local, remote = split_recipients(envelope.recipients, rules)
    # The birth is when the message was written, in whole microseconds: the long id stays what it was in S4.
    birth = mess.st_mtime_ns // 1000 * 1000
    _replace(commit, layout.hashed("info", message), pack_info(envelope.sender), birth)
    for kind, recipients in (("local", local), ("remote", remote)):
        path = layout.hashed(kind, message)
        if recipients:
            _replace(commit, path, pack_recipients(recipients), None)
        else:
            commit.unlink(path)
    commit.unlink(layout.intd(message))
    if os.path.lexists(layout.bounce(message)):
        # Of an earlier message that has lost its text: nothing of this one has failed yet.
        commit.unlink(layout.bounce(message))
    return Entry(message, mess.st_size, envelope, bool(local), bool(remote))


def _replace(commit: Commit, path: str, data: bytes, mtime_ns: int | None) -> None:
    """Make the file anew; what an interrupted classification left there goes."""
    try:
        commit.create(path, data, FILE_MODE, mtime_ns)
    except FileExistsError:
        commit.unlink(path)
        commit.create(path, data, FILE_MODE, mtime_ns)


def _finish(layout: Layout, commit: Commit, outcome: Outcome) -> None:
    try:
        commit.sync()
    except OSError as error:
        outcome.deferred += [(entry.message, f"sync: {reason(error)}") for entry in outcome.entries]
        outcome.entries.clear()
        return
    kept = []
    for entry in outcome.entries:
        try:
            commit.unlink(layout.todo(entry.message))
        except OSError as error:
            outcome.deferred.append((entry.message, f"{layout.todo(entry.message)}: {reason(error)}"))
        else:
            kept.append(entry)
    outcome.entries = kept
    try:
        commit.sync()
    except OSError as error:
        outcome.unsure, outcome.entries = kept, []
        outcome.deferred.append((0, f"sync of todo: {reason(error)}"))


def confirm(layout: Layout, entries: list[Entry]) -> None:
    """Make the removal from todo/ of unsure entries safe. Raises OSError."""
    commit = Commit()
    for entry in entries:
        commit.contents(os.path.dirname(layout.todo(entry.message)))
    commit.sync()


def _park(layout: Layout, outcome: Outcome) -> None:
    """Write corrupt/B/I with the reason, for a person to look at; the message's other files stay."""
    # A commit of its own: should the group's have failed, this one has not.
    commit = Commit()
    parked = []
    for message, why in outcome.parked:
        try:
            _replace(commit, layout.hashed("corrupt", message), why.encode("utf-8", "replace") + b"\n", None)
        except OSError as error:
            outcome.deferred.append((message, f"{layout.hashed('corrupt', message)}: {reason(error)} (for: {why})"))
        else:
            parked.append((message, why))
    outcome.parked = parked
    if parked:
        try:
            commit.sync()
        except OSError as error:
            outcome.deferred.append((0, f"sync of corrupt: {reason(error)}"))
