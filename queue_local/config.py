"""What queue-local reads from control/, and how many deliveries it takes at once.

The files are read again for each delivery, so a change takes effect at once. A file that cannot be read or parsed
raises Temporary, naming the file, unless a function says otherwise.
"""

import mmap
import resource
import time

from queue_base.control import read_control, read_number
from queue_base.errors import Temporary, complain
from queue_base.home import Home
from queue_wire.control.lines import numbered_lines, unpack_size
from queue_wire.format_error import (
    FormatError,
    LineError,
    quoted,
    wrong_in,
)

DEFAULT_DELIVERY = b"./Maildir/\n"
TIMEOUT = 1200
# maildir(5): a delivery may not take longer, because readers remove files older than 36 hours from tmp/.
TIMEOUT_MAX = 86400
STOP_TIMEOUT = 60
JOBS = 100
# Seconds. All local mail is affected alike, and one line is enough.
ALERTS_APART = 60
# The time of the last alert of all deliveries: forked processes share this page with queue-local.
_last_alert = mmap.mmap(-1, 8)
# Descriptors for other uses: the standard ones, and files that are open for a moment.
_SPARE = 32
_DEFERRED = "local mail is deferred until it is mended"
_KINDS = {
    "memory": resource.RLIMIT_AS,
    "cpu": resource.RLIMIT_CPU,
    "processes": resource.RLIMIT_NPROC,
    "files": resource.RLIMIT_NOFILE,
    "size": resource.RLIMIT_FSIZE,
    "core": resource.RLIMIT_CORE,
}
DEFAULT_LIMITS: dict[str, int | None] = {"files": 1024, "core": 0}


def alert(text: str) -> None:
    """Write an alert on stderr, at most one in ALERTS_APART seconds for all deliveries."""
    now = int(time.monotonic()) + 1
    last = int.from_bytes(_last_alert[:], "little")
    if not last or now - last >= ALERTS_APART:
        _last_alert[:] = now.to_bytes(8, "little")
        complain("queue-local", f"alert: {text}")


def for_delivery(home: Home) -> tuple[int, bytes]:
    """Return `timeout` and `default_delivery`. Raises Temporary, with an alert."""
    try:
        return timeout(home), default_delivery(home)
    except Temporary as error:
        alert(f"{error}; {_DEFERRED}")
        raise


def default_delivery(home: Home) -> bytes:
    """Return control/defaultdelivery, the instructions for users without a .qmail file. Raises Temporary."""
    return read_control(home, "defaultdelivery") or DEFAULT_DELIVERY


def timeout(home: Home) -> int:
    """Return control/localtimeout, the seconds that one delivery may take, 1 to TIMEOUT_MAX. Raises Temporary.

    If it does not exist, control/timeoutlocal, its former name, is read.
    """
    seconds = read_number(home, "localtimeout", -1)
    if seconds < 0:
        seconds = read_number(home, "timeoutlocal", TIMEOUT)
    return min(max(1, seconds), TIMEOUT_MAX)


def stop_timeout(home: Home) -> int:
    """Return control/localstoptimeout: the seconds that deliveries in flight have after queue-send has exited."""
    try:
        return min(read_number(home, "localstoptimeout", STOP_TIMEOUT), TIMEOUT_MAX)
    except Temporary as error:
        complain("queue-local", f"warning: {error}; deliveries in flight have {STOP_TIMEOUT} s to end")
        return STOP_TIMEOUT


def forward_timeout(home: Home) -> int:
    """Return the seconds that a forward may take, as many as a delivery; the default if the file cannot be read."""
    try:
        return timeout(home)
    except Temporary:
        return TIMEOUT


def capacity(home: Home) -> int:
    """Return the number of jobs to take at once: JOBS, or control/concurrencylocal if that is larger.

    Resource limits lower it: each delivery needs one descriptor here, and one process of this user.
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
        # Half of it, because the user may run other processes.
        wanted = min(wanted, processes // 2)
    return max(1, wanted)


def apply_limits(home: Home) -> None:
    """Set the resource limits of this process, soft and hard, from control/locallimits. Alerts; raises Temporary.

    The programs of a delivery inherit them. To be called before the change of user, since only root may raise limits.
    """
    try:
        limits = unpack_limits(read_control(home, "locallimits") or b"")
    except FormatError as error:
        wrong = wrong_in(f"{home.control}/locallimits", error)
        alert(f"unable to parse {wrong}; {_DEFERRED}")
        raise Temporary(f"Unable to parse {wrong}. (#4.3.5)") from error
    except Temporary as error:
        alert(f"{error}; {_DEFERRED}")
        raise
    for name, limit in limits.items():
        kind = _KINDS[name]
        wanted = resource.RLIM_INFINITY if limit is None else min(limit, 1 << 62)
        try:
            resource.setrlimit(kind, (wanted, wanted))
        except (ValueError, OSError):
            # Not root, and above the inherited hard limit: use that one.
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (hard, hard))


def unpack_limits(data: bytes) -> dict[str, int | None]:
    """Return {name: limit} of control/locallimits and the defaults (setrlimit(2)). Raises LineError, quoting the line.

    Lines are `memory 512M`, `cpu 600` (seconds), `processes 200` (of the user), `files 1024` (open), `size 1G` (of a
    file), `core 0`; K, M, G and T are powers of 1,024. `unlimited` is None. A missing name is inherited.
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
