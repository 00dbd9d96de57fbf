"""Which of a message's files exist, and the state that this makes (docs/design/queue-on-disk.md).

    S1  nothing    S2  mess    S3  mess, intd    S4  mess, todo: queued    S5  mess, info: classified
"""

import os

from queue_base.layout import Layout


def is_there(path: str) -> bool:
    """Return whether there is anything of this name. Raises OSError where that cannot be found out.

    Only ENOENT is absence. os.path.exists and its like take every error for it: a directory that may not be searched,
    a disk that cannot be read, a server that does not answer would make mail look as if it were not there.
    """
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


class Presence:
    """Whether each of a message's files exists."""

    __slots__ = ("bounce", "info", "intd", "local", "mess", "remote", "todo")

    def __init__(self, layout: Layout, message: int) -> None:
        """Look at the disk. Raises OSError where a file may be there or not."""
        self.mess = is_there(layout.mess(message))
        self.intd = is_there(layout.intd(message))
        self.todo = is_there(layout.todo(message))
        self.info = is_there(layout.hashed("info", message))
        self.local = is_there(layout.hashed("local", message))
        self.remote = is_there(layout.hashed("remote", message))
        self.bounce = is_there(layout.bounce(message))

    def state(self) -> int | None:
        """Return 1 to 5, or None for a combination that no crash of ours can leave."""
        rest = self.local or self.remote
        if not self.mess:
            anything = self.intd or self.todo or self.info or rest or self.bounce
            return None if anything else 1
        if self.todo:
            return None if self.bounce else 4
        if self.info:
            return None if self.intd else 5
        if rest or self.bounce:
            return None
        return 3 if self.intd else 2
