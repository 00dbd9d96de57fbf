"""A disk that is full from a given call on: what needs room fails with ENOSPC, what needs none is done."""

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

NEEDS_ROOM = ("write", "link", "rename", "mkdir", "mkfifo", "symlink", "ftruncate", "posix_fallocate")


class FullDisk:
    """Lets so many calls that need room go through. `refused` counts those that failed."""

    def __init__(self, patch: pytest.MonkeyPatch, calls: int) -> None:
        self._left = calls
        self.refused = 0
        for name in NEEDS_ROOM:
            patch.setattr(os, name, self._counted(getattr(os, name), lambda arguments: True))
        patch.setattr(os, "open", self._counted(os.open, lambda arguments: bool(arguments[1] & os.O_CREAT)))

    def _counted(self, function: Callable[..., Any], needs: Callable[[tuple[Any, ...]], bool]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            # What goes to standard output or error is not on the disk.
            if needs(arguments) and arguments[0] not in (1, 2):
                if self._left == 0:
                    self.refused += 1
                    path = arguments[0] if isinstance(arguments[0], str) else None
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
                self._left -= 1
            return function(*arguments, **named)

        return call
