"""Removes finished messages, a group at a time, in an order that is safe against a crash.

    1. intd, local, remote, bounce; create a second name, pid/finished.I    sync     info is now the last of its files
    2. info, and the marks in hold and corrupt                              sync     nobody tries the message again
    3. mess, then the second name                                                    its number may be used again

If mess/ were removed before the removal of the others is durable, a power cut could bring back an old local/ or remote/
file under the number of a new message, whose mail would then go to the old recipients. The second name
distinguishes a message that was finished when queue-clean died from a message that is being injected, which looks the
same (S2); `finish_removals` looks for it at the next start. While the second name exists, the number is in use.
"""

import os
from collections.abc import Iterable

from queue_base.durable import Commit
from queue_base.layout import Layout, Presence, is_there
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_id

FINISHED_PREFIX = "finished."


def remove_messages(layout: Layout, messages: Iterable[int]) -> dict[int, OSError]:
    """Remove all files of the messages; return those that could not be removed, with the error.

    A message that failed keeps the files of the later steps, so that its removal can be requested again.
    """
    failed: dict[int, OSError] = {}
    commit = Commit()
    left = list(dict.fromkeys(messages))
    for step in (_remove_work, _remove_info):
        for message in left:
            try:
                step(layout, message, commit)
            except OSError as error:
                failed[message] = error
        left = [message for message in left if message not in failed]
        try:
            commit.sync()
        except OSError as error:
            failed.update(dict.fromkeys(left, error))
            return failed
    for message in left:
        try:
            # If a power cut undoes this, S2 remains, which the sweep removes.
            commit.unlink(layout.mess(message))
            commit.unlink(_second_name(layout, message))
        except OSError as error:
            failed[message] = error
    return failed


def _remove_work(layout: Layout, message: int, commit: Commit) -> None:
    for kind in ("local", "remote"):
        commit.unlink(layout.hashed(kind, message))
    commit.unlink(layout.intd(message))
    commit.unlink(layout.bounce(message))
    try:
        commit.link(layout.mess(message), _second_name(layout, message))
    except OSError:
        # It exists from an earlier request, or mess/ is gone. Or it cannot be created: it is only a hint for the next
        # start, and without it a crash leaves S2, which the sweep removes.
        pass


def _remove_info(layout: Layout, message: int, commit: Commit) -> None:
    commit.unlink(layout.hashed("info", message))
    _remove_marks(layout, message, commit)


def _remove_marks(layout: Layout, message: int, commit: Commit) -> None:
    """Remove marks, which must not apply to the next message with this number. Without marks no sync is needed."""
    for kind in ("hold", "corrupt"):
        if is_there(layout.hashed(kind, message)):
            commit.unlink(layout.hashed(kind, message))


def _second_name(layout: Layout, message: int) -> str:
    return f"{layout.queue}/pid/{FINISHED_PREFIX}{message}"


def finish_removals(layout: Layout) -> list[OSError]:
    """Finish the removals that a crash interrupted: messages with a second name whose info/ is gone.

    A message that still has info/ is in S5: queue-send finds it, and requests its removal again. Returns the errors,
    one for each message that remains; the sweep will remove it. Raises OSError if pid/ cannot be read.
    """
    troubles = []
    for name in os.listdir(layout.queue + "/pid"):
        if not name.startswith(FINISHED_PREFIX):
            continue
        try:
            message = unpack_id(os.fsencode(name[len(FINISHED_PREFIX) :]))
        except FormatError:
            continue  # Not a file of the suite.
        try:
            if Presence(layout, message).state() == 2:
                commit = Commit()
                _remove_marks(layout, message, commit)
                commit.sync()
                os.unlink(layout.mess(message))
            os.unlink(f"{layout.queue}/pid/{name}")
        except OSError as error:
            troubles.append(error)
    return troubles
