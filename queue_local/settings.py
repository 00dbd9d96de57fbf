"""What queue-local reads from control/, and how many deliveries this machine lets it have in flight.

The files for a delivery are read anew for each, so a change counts at once and one that cannot be
read defers what needs it.
"""

import resource

from queue_base.control import read_control, read_number
from queue_base.errors import Temporary, complain
from queue_base.home import Home

DEFAULT_DELIVERY = b"./Maildir/\n"
TIMEOUT = 1200
# maildir(5) lets no delivery last longer: readers remove what is older than 36 hours from tmp/.
TIMEOUT_MAX = 86400
STOP_TIMEOUT = 60
JOBS = 100
# Descriptors that are not a delivery's: standard ones, files open for a moment.
_SPARE = 32


def default_delivery(home: Home) -> bytes:
    """Return control/defaultdelivery, the .qmail lines of those who have none. Raises Temporary."""
    return read_control(home, "defaultdelivery") or DEFAULT_DELIVERY


def timeout(home: Home) -> int:
    """Return control/localtimeout, the seconds that one delivery may take, 1 to TIMEOUT_MAX. Raises Temporary.

    Where it is missing, control/timeoutlocal is read, its name before.
    """
    seconds = read_number(home, "localtimeout", -1)
    if seconds < 0:
        seconds = read_number(home, "timeoutlocal", TIMEOUT)
    return min(max(1, seconds), TIMEOUT_MAX)


def stop_timeout(home: Home) -> int:
    """Return control/localstoptimeout: the seconds that deliveries in flight have when queue-send leaves."""
    try:
        return min(read_number(home, "localstoptimeout", STOP_TIMEOUT), TIMEOUT_MAX)
    except Temporary as error:
        complain("queue-local", f"warning: {error}; deliveries in flight have {STOP_TIMEOUT} s to end")
        return STOP_TIMEOUT


def forward_timeout(home: Home) -> int:
    """Return how long a forward may take, in seconds: as long as a delivery. An unreadable file defers no forward."""
    try:
        return timeout(home)
    except Temporary:
        return TIMEOUT


def capacity(home: Home) -> int:
    """Return the number of jobs to take at once: JOBS, or control/concurrencylocal if that is more.

    Resource limits lower it: a delivery is one descriptor here and one process of this user's.
    """
    try:
        wanted = max(JOBS, read_number(home, "concurrencylocal", JOBS))
    except Temporary as error:
        complain("queue-local", f"warning: {error}; going on with {JOBS} deliveries at once")
        wanted = JOBS
    files, processes = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    if files != resource.RLIM_INFINITY:
        wanted = min(wanted, files - _SPARE)
    if processes != resource.RLIM_INFINITY:
        # Half, because other processes of this user count as well.
        wanted = min(wanted, processes // 2)
    return max(1, wanted)
