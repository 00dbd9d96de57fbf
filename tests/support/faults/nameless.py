"""File systems that have no unnamed files (O_TMPFILE), or refuse some of them."""

import errno
import inspect
import os
from collections.abc import Callable

import pytest


def refuse_nameless(refuses: "Callable[[int], bool]" = lambda mode: True) -> None:
    """Have open(2) refuse unnamed files in this process, if `refuses` says so of their mode."""
    real = os.open

    def opened(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE and refuses(mode):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), path)
        return real(path, flags, mode, dir_fd=dir_fd)

    os.open = opened  # type: ignore[assignment]


# The same for a program: code that it runs first.
DEFINED = "import errno, os\n" + inspect.getsource(refuse_nameless)
REFUSED = DEFINED + "refuse_nameless()\n"


def without_nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have open(2) refuse unnamed files during a test."""
    monkeypatch.setattr(os, "open", os.open)  # Put back at its end.
    refuse_nameless()
