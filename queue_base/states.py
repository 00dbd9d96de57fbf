"""Which of a message's files exist, and the state that this makes (DESIGN: home; INTERNALS.md).

    S1  nothing    S2  mess    S3  mess, intd    S4  mess, todo: queued    S5  mess, info: classified
"""

import os

from queue_base.layout import Layout


class Presence:
    """Whether each of a message's files exists."""

    __slots__ = ("bounce", "info", "intd", "local", "mess", "remote", "todo")

    def __init__(self, layout: Layout, message: int) -> None:
        """Look at the disk; a file that may not be seen counts as absent."""
        self.mess = os.path.lexists(layout.mess(message))
        self.intd = os.path.lexists(layout.intd(message))
        self.todo = os.path.lexists(layout.todo(message))
        self.info = os.path.lexists(layout.hashed("info", message))
        self.local = os.path.lexists(layout.hashed("local", message))
        self.remote = os.path.lexists(layout.hashed("remote", message))
        self.bounce = os.path.lexists(layout.bounce(message))

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
