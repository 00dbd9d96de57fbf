"""Where the other programs of the suite are: beside the one that runs, under the same interpreter."""

import os
import signal
import sys

from queue_base.home import Home

# Blocked by queue-start, so that one that comes before queue-send can obey it neither kills nor is lost.
KEPT_SIGNALS = (signal.SIGHUP, signal.SIGALRM)

LOCAL_JOBS = 3
LOCAL_REPORTS = 4
REMOTE_JOBS = 5
REMOTE_REPORTS = 6
CLEAN_IDS = 7
CLEAN_ANSWERS = 8
TODO_COMMANDS = 9
TODO_NOTICES = 10
# Nothing is written there; its end is what tells queue-pickup to end.
PICKUP_LIFE = 11
PICKUP_NOTICES = 12
SENDMUTEX = 13


def program_path(name: str) -> str:
    """Return the path of a program of the suite: in the directory of the one that runs, be it called by a link.

    Links in the directory's own path stay: one of a version may lead to the next version some day.
    """
    path = os.path.abspath(sys.argv[0])
    while os.path.islink(path):
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return os.path.join(os.path.dirname(path), name)


def command(name: str, home: Home, *arguments: str) -> list[str]:
    """Return the words that run a program of the suite on this home; isolated from the environment if we are."""
    isolated = ["-I"] if sys.flags.isolated else []
    return [sys.executable, *isolated, program_path(name), "--home", home.path, *arguments]
