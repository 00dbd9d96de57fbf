"""Runs one program for a delivery, `/bin/sh -c COMMAND` (qmail-command(8))."""

from typing import NamedTuple


class Ran(NamedTuple):
    """How a program ended by itself: exit code, and what it wrote on stdout and stderr, bounded and cleaned."""

    code: int
    output: bytes


def run_program(command: bytes, environment: dict[bytes, bytes], message: int, seconds: float) -> Ran:
    """Run a program; the open file `message` is its stdin, at its start.

    Raises Temporary where it cannot be started, is killed by a signal, or runs for over `seconds`.
    """
    raise NotImplementedError
