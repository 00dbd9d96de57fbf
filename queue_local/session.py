"""Kills what is left of a delivery's session when the delivery did not end well.

The leader, its process, must not have been reaped: until then no other session can have its number. Who has made
a session of its own is not found, and lives on.
"""

import os
import signal

# A session that forks while it is being killed is looked through again, so often.
_PASSES = 5


def end_session(leader: int) -> None:
    """Kill every process of the session, the leader first, so that it does not go on without its program."""
    _kill(leader, leader)
    for _ in range(_PASSES):
        # The leader is a zombie now that waits for its parent, us.
        found = [pid for pid in _pids() if pid != leader and _session(pid) == leader and _kill(pid, leader)]
        if not found:
            break


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _session(pid: int) -> int | None:
    """Return the session of a process, None where it is gone."""
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _kill(pid: int, session: int) -> bool:
    """Kill a process if it is of that session; return whether it was there and not yet dead."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Again, now that the number can mean nobody else.
        if os.getsid(pid) == session:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            return True
    except OSError:
        pass
    finally:
        os.close(handle)
    return False
