"""The power goes in the middle of work on the disk: after a given number of the calls that change it."""

import os
from collections.abc import Callable

import pytest


class Cut(BaseException):
    """The power goes."""


def cut_after(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """Let the given number of system calls that change the disk go through, then stop everything."""
    left = [calls]

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            if left[0] == 0:
                raise Cut
            left[0] -= 1
            return function(*arguments, **named)

        return call

    for name in ("chown", "chmod", "fchown", "fchmod", "rename", "link", "unlink", "rmdir", "mkdir", "mkfifo"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))


def how_many(work: Callable[[], object]) -> int:
    """Run `work` and return how many of those calls it makes."""
    with pytest.MonkeyPatch.context() as patch:
        done = [0]

        def counted(function: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object, **named: object) -> object:
                done[0] += 1
                return function(*arguments, **named)

            return call

        for name in ("chown", "chmod", "fchown", "fchmod", "rename", "link", "unlink", "rmdir", "mkdir", "mkfifo"):
            patch.setattr(os, name, counted(getattr(os, name)))
        work()
    return done[0]
