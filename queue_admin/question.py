"""A question to the person at the terminal, before a command hits very much.

Nobody is asked where nobody can answer: if stderr is no terminal, as under cron or in a script whose output is kept, or
if the answer can come from nowhere. It comes from stdin; if the command reads ids from stdin, from the terminal that
controls the process, which one at the end of a pipe has as well.
"""

import os
import sys

import click

from queue_base.errors import Permanent

ASKED_FROM = 100  # Messages, or files, beyond which a question is asked on a terminal.
ANSWER_MAX = 1024  # Bytes of an answer.
TERMINAL = "/dev/tty"


def ask(question: str, refused: str, stdin_is_input: bool = False) -> None:
    """Ask, and return if the answer is yes, or if nobody can answer. Raises Permanent(refused) if it is no.

    `stdin_is_input`: the command reads something else from stdin.
    """
    if not sys.stderr.isatty():
        return
    if sys.stdin is not None and sys.stdin.isatty():
        agreed = click.confirm(question, err=True)
    elif stdin_is_input:
        agreed = _ask_terminal(question)
    else:
        return
    if not agreed:
        raise Permanent(refused)


def _ask_terminal(question: str) -> bool:
    """Ask on the terminal that controls the process; return whether the answer is yes, or there is no such terminal."""
    try:
        terminal = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        while True:
            os.write(terminal, f"{question} [y/N]: ".encode())
            answer = os.read(terminal, ANSWER_MAX).strip().lower()
            if answer in (b"y", b"yes"):
                return True
            if answer in (b"", b"n", b"no"):
                return False
    except OSError:
        return False  # The terminal was closed.
    finally:
        os.close(terminal)
