"""Removes finished messages, a group at a time, in the order that a crash cannot turn against anybody.

    1. intd, local, remote, bounce     sync     now info is the last that names the message classified
    2. info                            sync     now the message is S2: nobody will try it again
    3. mess                                     now its inode number may be used by a new message

Had mess/ gone before the others were safely gone, a power cut could bring back an old local/ or remote/
file under the number of a new message, whose mail would then go to the old one's recipients.
"""

from collections.abc import Callable, Iterable

from queue_base.durable import Commit
from queue_base.layout import Layout

Paths = Callable[[int], list[str]]


def remove_messages(layout: Layout, messages: Iterable[int]) -> dict[int, OSError]:
    """Remove every file of the messages; return those that could not be removed, with the reason.

    A message that failed keeps the files of the later steps, so that it can be asked for again.
    """
    failed: dict[int, OSError] = {}
    left = list(dict.fromkeys(messages))
    steps: tuple[Paths, ...] = (
        lambda message: [
            layout.intd(message),
            layout.hashed("local", message),
            layout.hashed("remote", message),
            layout.bounce(message),
        ],
        lambda message: [layout.hashed("info", message)],
        lambda message: [layout.mess(message)],
    )
    commit = Commit()
    for number, paths in enumerate(steps):
        for message in left:
            try:
                for path in paths(message):
                    commit.unlink(path)
            except OSError as error:
                failed[message] = error
        left = [message for message in left if message not in failed]
        if number == len(steps) - 1:
            break  # Should the last removal be undone by a power cut, it leaves S2, which is swept.
        try:
            commit.sync()
        except OSError as error:
            failed.update(dict.fromkeys(left, error))
            break
    return failed
