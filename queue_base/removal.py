"""Removes finished messages, a group at a time, in the order that a crash cannot turn against anybody.

    1. intd, local, remote, bounce; a second name, pid/finished.I     sync     now info is the last that names it
    2. info, and the marks in hold and corrupt                        sync     now nobody will try it again
    3. mess, then the second name                                              now its number may be used again

Had mess/ gone before the others were safely gone, a power cut could bring back an old local/ or remote/
file under the number of a new message, whose mail would then go to the old one's recipients. The second
name tells a message that was finished when we died from one that somebody is just injecting, which looks
the same (S2); `finish_removals` looks for it at the next start. While it is there the number stays taken.
"""

import os
from collections.abc import Iterable

from queue_base.durable import Commit
from queue_base.layout import Layout
from queue_base.states import Presence, is_there
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_id

FINISHED_PREFIX = "finished."


def remove_messages(layout: Layout, messages: Iterable[int]) -> dict[int, OSError]:
    """Remove every file of the messages; return those that could not be removed, with the reason.

    A message that failed keeps the files of the later steps, so that it can be asked for again.
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
            # Should this be undone by a power cut, it leaves S2, which is swept.
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
        # Asked for again, or the message itself is gone. Or it cannot be made: it is only a hint for our next
        # start, and without it what we leave when we die is S2, which is swept.
        pass


def _remove_info(layout: Layout, message: int, commit: Commit) -> None:
    commit.unlink(layout.hashed("info", message))
    _remove_marks(layout, message, commit)


def _remove_marks(layout: Layout, message: int, commit: Commit) -> None:
    """A mark must not be there for the next message of the number. Few messages have one: the others cost no sync."""
    for kind in ("hold", "corrupt"):
        if is_there(layout.hashed(kind, message)):
            commit.unlink(layout.hashed(kind, message))


def _second_name(layout: Layout, message: int) -> str:
    return f"{layout.queue}/pid/{FINISHED_PREFIX}{message}"


def finish_removals(layout: Layout) -> list[OSError]:
    """Finish what we were doing when we died: messages with a second name whose info/ is gone.

    One that still has its info/ is S5: queue-send finds it, and asks for its removal again. Return what went wrong, one
    for each message that stays as it is; the sweep will find it. Raises OSError where nothing can be looked at.
    """
    troubles = []
    for name in os.listdir(layout.queue + "/pid"):
        if not name.startswith(FINISHED_PREFIX):
            continue
        try:
            message = unpack_id(os.fsencode(name[len(FINISHED_PREFIX) :]))
        except FormatError:
            continue  # Not ours: a person's file.
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
