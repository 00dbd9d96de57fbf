"""The processes of the suite: how one starts another, and the descriptors and signals that queue-start passes on.

queue-start gives queue-send the descriptors below, and those of `remote_pipes` if there are several queue-remotes.
Every other daemon has its pipe on 0 and 1. The descriptor of the lock is shared with queue-todo, queue-clean and
queue-ondemand, so that no second set of daemons can start while a process that changes the queue is alive.
"""

import os
import resource
import signal
import sys

from queue_base.errors import Temporary
from queue_base.home import Home

# Blocked by queue-start, so that a signal that arrives before queue-send handles it neither kills nor is lost.
KEPT_SIGNALS = (signal.SIGHUP, signal.SIGALRM)

LOCAL_JOBS = 3
LOCAL_REPORTS = 4
REMOTE_JOBS = 5
REMOTE_REPORTS = 6
CLEAN_IDS = 7
CLEAN_ANSWERS = 8
TODO_COMMANDS = 9
TODO_NOTICES = 10
# Nothing is written to it; its end of file tells queue-pickup to exit.
PICKUP_LIFE = 11
PICKUP_NOTICES = 12
# As queue-pickup's, and REREAD (queue_wire.pipes.notice) is written to it. Not open if there are several queues.
INTAKE_COMMANDS = 13
INTAKE_NOTICES = 14
SENDMUTEX = 15
# Above the pipes of REMOTES_MAX queue-remotes: those of queue-ondemand, if it runs.
ONDEMAND_JOBS = 48
ONDEMAND_REPORTS = 49
# A Unix socket, on which the two descriptors of each queue-ondemand come that is started in the place of a lost one.
ONDEMAND_AGAIN = 50
# queue-ondemand's own descriptors, to its queue-remote: a Unix socket for jobs and connections, and a pipe.
KEEPER_JOBS = 3
KEEPER_REPORTS = 4
# Above all pipes; open if the supervisor gave one (queue_base.daemon.supervisor).
NOTIFICATION = 60
REMOTES_MAX = 16
# Deliveries of a queue-remote at once. Each has a socket and its message open; the other descriptors are for all else.
DELIVERIES_MAX = 2000
_DELIVERY_DESCRIPTORS = 2
_OTHER_DESCRIPTORS = 50


def remote_pipes(remotes: int) -> list[tuple[int, int]]:
    """Return the descriptors for jobs and reports of each queue-remote; those after the first follow SENDMUTEX."""
    others = range(SENDMUTEX + 1, SENDMUTEX + 2 * remotes - 1, 2)
    return [(REMOTE_JOBS, REMOTE_REPORTS), *((jobs, jobs + 1) for jobs in others)]


def raise_file_limit() -> int:
    """Raise the limit of open files to the hard limit; return that."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def require_files(least: int) -> None:
    """Raise the limit of open files if it is below `least`. Raises Temporary if the hard limit is, too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < least and (limit := raise_file_limit()) < least:
        raise Temporary(f"the limit of open files is {limit}, expected {least} or more (ulimit -n, LimitNOFILE=)")


def count_deliveries(files: int) -> int:
    """Return how many deliveries a limit of open files allows a queue-remote at once.

    queue-ondemand has the same limit as its queue-remote, and gives it no more jobs than these.
    """
    return max(1, min(DELIVERIES_MAX, (files - _OTHER_DESCRIPTORS) // _DELIVERY_DESCRIPTORS))


def fill_standard_descriptors() -> None:
    """Open /dev/null on those of fds 0, 1 and 2 that are closed, so that no socket gets one of these numbers.

    It is opened for the wrong direction, so that use fails: an empty message must not be sent if fd 0 was closed.
    """
    for descriptor, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, mode)


def keep_descriptors() -> None:
    """Have no program that is started later get the descriptors beyond fd 2 that this process has inherited."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2:
                os.set_inheritable(int(name), False)
        except OSError:
            pass  # It was that of the listing.


def program_path(name: str) -> str:
    """Return the path of a program of the suite: in the directory of the running program, after following its links.

    Links in the path of the directory are kept: such a link may lead to another version later.
    """
    path = os.path.abspath(sys.argv[0])
    while os.path.islink(path):
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return os.path.join(os.path.dirname(path), name)


def command(name: str, home: Home, *arguments: str) -> list[str]:
    """Return the command line that runs a program of the suite on this home, and its queue if there are several.

    It is isolated (-I) if this process is.
    """
    isolated = ["-I"] if sys.flags.isolated else []
    queue = ["--queue", home.name] if home.name else []
    return [sys.executable, *isolated, program_path(name), "--home", home.path, *queue, *arguments]
