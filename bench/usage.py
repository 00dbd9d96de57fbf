"""The command line of a bench: `--help` is its docstring and options; what makes no sense is a usage error, exit 100.

A bench prints figures, and exits 0, or 1 where a goal is missed; 111 where something that it needs is not there.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

PERMANENT, TEMPORARY = 100, 111


class Parser(argparse.ArgumentParser):
    """`text` is the docstring of the bench, which is known by the name that it is called by."""

    def __init__(self, text: str | None) -> None:
        super().__init__(
            prog=f"bench/{os.path.basename(sys.argv[0])}",
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and the usage."""
        self.exit(PERMANENT, f"{self.prog}: fatal: {message}\n{self.format_usage()}")


def _number(text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise argparse.ArgumentTypeError(f"expected a number, {least} or more, got {text!r}")
    return int(text)


def count(text: str) -> int:
    """Return a number of something, 1 or more."""
    return _number(text, 1)


def count_list(text: str) -> list[int]:
    """Return numbers of something, 1 or more, which commas divide."""
    return [count(each) for each in text.split(",")]


def count_or_none(text: str) -> int:
    """Return a number of something, 0 to leave it out."""
    return _number(text, 0)


def amount(text: str) -> float:
    """Return a number above 0, which may have a fraction."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return number


def directory(text: str) -> str:
    """Return the path of a directory that is there."""
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"expected a directory, got {text!r}")
    return text


def memory() -> str:
    """Return a directory in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else "/tmp"


def run(main: Callable[[], int]) -> NoReturn:
    """Call `main` and exit with what it returns; a program that is missing is one line."""
    try:
        code = main()
    except (pytest.skip.Exception, pytest.fail.Exception) as error:
        # What tests that lack something end with.
        print(f"bench/{os.path.basename(sys.argv[0])}: fatal: {error}", file=sys.stderr)
        code = TEMPORARY
    sys.exit(code)
