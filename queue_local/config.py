"""What queue-local reads from control/, and how many deliveries it takes at once.

The files are read again for each delivery, so a change takes effect at once, and when queue-send asks what is in force.
While one of them cannot be used, there is an alert, and the values of the last reading stay in force; if there was
none, mail is deferred.
"""

import contextlib
import mmap
import resource
import time
from collections.abc import Mapping
from typing import NamedTuple

from queue_base.control import check_modes, read_control, read_number, unable_to_parse
from queue_base.errors import Temporary, complain
from queue_base.home import Home
from queue_wire.admin.settings import in_force, pack_in_force
from queue_wire.control.lines import NUMBERS, unpack_number
from queue_wire.control.locallimits import DEFAULT_LIMITS, LIMITED, unpack_local_limits
from queue_wire.control.registry import describe_changes
from queue_wire.control.srs_domain import unpack_srs_domain
from queue_wire.format_error import FormatError

DEFAULT_DELIVERY = b"./Maildir/\n"
TIMEOUT, _, TIMEOUT_MAX = NUMBERS["localtimeout"]
STOP_TIMEOUT = NUMBERS["localstoptimeout"][0]
JOBS = 100
NAMES = ("localtimeout", "timeoutlocal", "defaultdelivery", "locallimits", "srs")
# Seconds. All local mail is affected alike, and one line is enough.
ALERTS_APART = 60
# The time of the last alert of all deliveries: forked processes share this page with queue-local.
_last_alert = mmap.mmap(-1, 8)
# Descriptors for other uses: the standard ones, and files that are open for a moment.
_SPARE = 32
_KINDS = dict(
    zip(
        LIMITED,
        (
            resource.RLIMIT_AS,
            resource.RLIMIT_CPU,
            resource.RLIMIT_NPROC,
            resource.RLIMIT_NOFILE,
            resource.RLIMIT_FSIZE,
            resource.RLIMIT_CORE,
        ),
        strict=True,
    )
)


class DeliveryConfig(NamedTuple):
    """What one delivery needs: the seconds that it may take, default instructions, and its resource limits.

    `srs` is the domain of rewritten senders, empty if there is none.
    """

    seconds: int
    default: bytes
    limits: Mapping[str, int | None]
    srs: bytes = b""


def alert(text: str) -> None:
    """Write an alert on stderr, at most one in ALERTS_APART seconds for all deliveries."""
    now = int(time.monotonic()) + 1
    last = int.from_bytes(_last_alert[:], "little")
    if not last or now - last >= ALERTS_APART:
        _last_alert[:] = now.to_bytes(8, "little")
        complain("queue-local", f"alert: {text}")


class DeliveryFiles:
    """The control files of deliveries, as they were read last."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._contents: dict[str, bytes | None] = {}
        self._last: DeliveryConfig | None = None
        self._fault = ""  # Why the last reading was refused.

    @property
    def seconds(self) -> int:
        """The seconds that a forward may take: as many as a delivery."""
        return TIMEOUT if self._last is None else self._last.seconds

    def read(self) -> DeliveryConfig:
        """Read the files, and print what has changed. Alerts if they cannot be used; raises Temporary at first."""
        try:
            contents = {name: read_control(self._home, name) for name in NAMES}
            if contents == self._contents and self._last is not None:
                self._fault = ""
                return self._last
            if self._last is not None:
                check_modes(self._home)
            found = unpack_files(self._home, contents)
        except Temporary as error:
            self._fault = str(error)
            if self._last is None:
                alert(f"{error}; local mail is deferred until it is mended")
                raise
            alert(f"{error}; the old values stay until it is mended")
            return self._last
        if self._last is not None:
            for change in describe_changes(self._contents, contents):
                complain("queue-local", f"config {change}")
        self._contents, self._last, self._fault = contents, found, ""
        return found

    def reread(self) -> bytes:
        """Read the files; return what is in force, and why they were refused, if they were (queue_wire.admin.settings).
        """
        with contextlib.suppress(Temporary):
            self.read()
        return pack_in_force(in_force(self._contents, self._fault))


def unpack_files(home: Home, contents: Mapping[str, bytes | None]) -> DeliveryConfig:
    """Return the values of the files. `timeoutlocal` is the former name of `localtimeout`. Raises Temporary."""
    seconds, limits, srs = TIMEOUT, dict(DEFAULT_LIMITS), b""
    for name in ("timeoutlocal", "localtimeout", "locallimits", "srs"):
        data = contents[name]
        try:
            if data is not None and name == "locallimits":
                limits = unpack_local_limits(data)
            elif data is not None and name == "srs":
                srs = unpack_srs_domain(data)
            elif data is not None:
                seconds = unpack_number(data, name)
        except FormatError as error:
            raise unable_to_parse(home, name, error) from error
    return DeliveryConfig(seconds, contents["defaultdelivery"] or DEFAULT_DELIVERY, limits, srs)


def stop_timeout(home: Home) -> int:
    """Return control/localstoptimeout: the seconds that deliveries in flight have after queue-send has exited."""
    try:
        return read_number(home, "localstoptimeout")
    except Temporary as error:
        complain("queue-local", f"warning: {error}; deliveries in flight have {STOP_TIMEOUT} s to end")
        return STOP_TIMEOUT


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


def apply_limits(limits: Mapping[str, int | None]) -> None:
    """Set the resource limits of this process, soft and hard (control/locallimits).

    The programs of a delivery inherit them. To be called before the change of user, since only root may raise limits.
    """
    for name, limit in limits.items():
        kind = _KINDS[name]
        wanted = resource.RLIM_INFINITY if limit is None else min(limit, 1 << 62)
        try:
            resource.setrlimit(kind, (wanted, wanted))
        except (ValueError, OSError):
            # Not root, and above the inherited hard limit: use that one.
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (hard, hard))
