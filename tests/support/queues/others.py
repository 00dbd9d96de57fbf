"""Accounts that nobody has, and a directory that every account may walk through: for tests of what root does there."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.tools import need_root

ACCOUNT, STRANGER = 60001, 60002


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every account may walk through. pytest's own are closed to others."""
    need_root()
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="queue-place-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def give(top: str | Path) -> None:
    """Give a directory and all in it to ACCOUNT; no link is followed."""
    for directory, names, files in os.walk(top):
        for name in [*names, *files, "."]:
            os.chown(f"{directory}/{name}", ACCOUNT, ACCOUNT, follow_symlinks=False)
