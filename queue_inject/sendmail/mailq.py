"""sendmail -bp (mailq) and -q: runs `queuectl mailq` and `queuectl flush`."""

import os
import subprocess

from queue_base.daemon.processes import command
from queue_base.daemon.signals import keep_children
from queue_base.durable import write_all
from queue_base.errors import PERMANENT, Temporary, reason
from queue_base.home import Home
from queue_inject.sendmail.exit_codes import TEMPORARY, USAGE, NoPermission

# The text of Postfix's and Sendmail's mailq. Scripts look for it.
EMPTY = b"Mail queue is empty\n"
NOTHING_MATCHED = 1  # The exit code of queuectl if no message was chosen.
_CHUNK = 65536


def list_queue(home: Home) -> int:
    """Print the queue as Postfix does; return an exit code. Raises NoPermission, Temporary."""
    return _run_queuectl(home, ["mailq"], EMPTY)


def flush_queue(home: Home, arguments: list[str]) -> int:
    """Have deferred mail tried now, chosen by `arguments`; return an exit code. Raises NoPermission, Temporary."""
    return _run_queuectl(home, ["flush", *arguments], b"")


def _run_queuectl(home: Home, arguments: list[str], nothing: bytes) -> int:
    """Pass on the output of queuectl, or print `nothing` if it is empty. queuectl reports its failures itself."""
    if os.path.isdir(home.owned) and not os.access(home.owned, os.R_OK | os.X_OK):
        raise NoPermission(f"unable to open {home.owned}: permission denied; root or its owner may")
    words = command("queuectl", home, *arguments)
    keep_children()
    try:
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            empty = _copy(child.stdout.fileno())
        if empty and child.returncode == 0:
            write_all(1, nothing)
    except BrokenPipeError:
        # The reader of our output has enough, as in `mailq | head`.
        return 0
    except OSError as error:
        raise Temporary(f"unable to run {words[1]}: {reason(error)}; try again") from error
    # An id that is none is an error; that nothing was chosen is none.
    absent = USAGE if "--" in arguments else 0
    return {0: 0, NOTHING_MATCHED: absent, PERMANENT: USAGE}.get(child.returncode, TEMPORARY)


def _copy(handle: int) -> bool:
    """Copy a descriptor to stdout; return whether it was empty."""
    empty = True
    while data := os.read(handle, _CHUNK):
        empty = False
        write_all(1, data)
    return empty
