"""What queue-local reads from control/, and how many deliveries it takes at once.

The files for a delivery are read for each delivery, so a change takes effect at once. Every function raises Temporary,
naming the file, where a file cannot be read or parsed, unless it says otherwise.
"""

import resource

from queue_base.control import read_control, read_number
from queue_base.errors import Temporary, complain
from queue_base.home import Home
from queue_wire.control.lines import numbered_lines, unpack_size
from queue_wire.errors import FormatError, LineError, quoted, wrong_in

DEFAULT_DELIVERY = b"./Maildir/\n"
TIMEOUT = 1200
# maildir(5) lets no delivery last longer: readers remove what is older than 36 hours from tmp/.
TIMEOUT_MAX = 86400
STOP_TIMEOUT = 60
JOBS = 100
# Descriptors that are not a delivery's: standard ones, files open for a moment.
_SPARE = 32
_KINDS = {
    "memory": resource.RLIMIT_AS,
    "cpu": resource.RLIMIT_CPU,
    "processes": resource.RLIMIT_NPROC,
    "files": resource.RLIMIT_NOFILE,
    "size": resource.RLIMIT_FSIZE,
    "core": resource.RLIMIT_CORE,
}
DEFAULT_LIMITS: dict[str, int | None] = {"files": 1024, "core": 0}


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


def apply_limits(home: Home) -> None:
    """Set this process's limits for good, soft and hard. Raises Temporary where the file cannot be read or parsed.

    To be called before the user is taken, so that root may raise them; others get no more than they have.
    """
    try:
        limits = unpack_limits(read_control(home, "locallimits") or b"")
    except FormatError as error:
        raise Temporary(f"Unable to parse {wrong_in(f'{home.control}/locallimits', error)}. (#4.3.5)") from error
    for name, limit in limits.items():
        kind = _KINDS[name]
        wanted = resource.RLIM_INFINITY if limit is None else min(limit, 1 << 62)
        try:
            resource.setrlimit(kind, (wanted, wanted))
        except (ValueError, OSError):
            # Not root, and over the hard limit that was inherited: that one counts then.
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (hard, hard))


def unpack_limits(data: bytes) -> dict[str, int | None]:
    """Return {name: limit} with the defaults; None is unlimited, a name that is not there is as inherited.

    Raises LineError, quoting the line.
    """
    limits = dict(DEFAULT_LIMITS)
    for number, line in numbered_lines(data):
        name, _, value = line.partition(b" ")
        word = name.decode("ascii", "replace")
        if word not in _KINDS:
            raise LineError(number, f"not one of {', '.join(_KINDS)}: {quoted(line)}")
        try:
            limits[word] = None if value.strip() == b"unlimited" else unpack_size(value.strip())
        except FormatError as error:
            raise LineError(number, f"not a limit: {quoted(line)}") from error
    return limits
