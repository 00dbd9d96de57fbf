"""Where the other programs of the suite are: beside the one that runs, under the same interpreter."""

import os
import sys

from queue_base.home import Home


def program_path(name: str) -> str:
    """Return the path of a program of the suite: in the directory of the one that runs."""
    return os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), name)


def command(name: str, home: Home, *arguments: str) -> list[str]:
    """Return the words that run a program of the suite on this home."""
    return [sys.executable, program_path(name), "--home", home.path, *arguments]
