"""A program that leads a process group of its own, so that it can be killed with what it has started.

The caller waits for its exit (pidfd_open(2)). Until it has called waitpid(2), the pid is not used again.
"""

import os
import signal
from collections.abc import Mapping, Sequence

_DEFAULTS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}

FileAction = tuple[int, int, int] | tuple[int, int, str, int, int]


def start_group(words: list[bytes], environment: Mapping[bytes, bytes], actions: Sequence[FileAction]) -> int:
    """Start a program, which is the path words[0], with the signals' defaults; return its pid. Raises OSError.

    `actions` are those of posix_spawn(3) on its descriptors. All other descriptors are close-on-exec. posix_spawn uses
    vfork(2), whose cost does not depend on the size of the memory.
    """
    return os.posix_spawn(
        words[0], words, environment, file_actions=actions, setpgroup=0, setsigmask=(), setsigdef=_DEFAULTS
    )


def signal_group(pid: int, number: int) -> None:
    """Send a signal to the group of a program, and to the program itself if it has left the group.

    Nobody has waited for the program yet.
    """
    for send in os.killpg, os.kill:
        try:
            send(pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # It has ended, or is set-uid.
