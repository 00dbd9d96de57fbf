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

from queue_base.control import read_value
from queue_base.control_files import ControlFiles, ControlValues, kept_by
from queue_base.errors import Temporary, complain
from queue_base.home import Home
from queue_wire.admin.settings import pack_in_force
from queue_wire.control import registry
from queue_wire.control.locallimits import LIMITED

JOBS = 100
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
        self._files = ControlFiles(home, kept_by("queue-local"), make_config)

    @property
    def seconds(self) -> int:
        """The seconds that a forward may take: as many as a delivery."""
        last = self._files.current
        return registry.LOCALTIMEOUT.bounds[0] if last is None else last.seconds

    def read(self) -> DeliveryConfig:
        """Read the files, and print what has changed. Alerts if they cannot be used; raises Temporary at first."""
        try:
            for change in self._files.read():
                complain("queue-local", f"config {change}")
        except Temporary as error:
            if self._files.current is None:
                alert(f"{error}; local mail is deferred until it is mended")
                raise
            alert(f"{error}; the old values stay until it is mended")
        assert self._files.current is not None
        return self._files.current

    def reread(self) -> bytes:
        """Read the files; return what is in force, and why they were refused, if they were (queue_wire.admin.settings).
        """
        with contextlib.suppress(Temporary):
            self.read()
        return pack_in_force(self._files.in_force())


def make_config(values: ControlValues) -> DeliveryConfig:
    """Return the values of the files. `timeoutlocal` is the former name of `localtimeout`."""
    seconds = values[registry.TIMEOUTLOCAL if values.contents["localtimeout"] is None else registry.LOCALTIMEOUT]
    default = values[registry.DEFAULTDELIVERY] or registry.DEFAULTDELIVERY.value(None)
    return DeliveryConfig(seconds, default, values[registry.LOCALLIMITS], values[registry.SRS])


def stop_timeout(home: Home) -> int:
    """Return control/localstoptimeout: the seconds that deliveries in flight have after queue-send has exited."""
    try:
        return read_value(home, registry.LOCALSTOPTIMEOUT)
    except Temporary as error:
        seconds = registry.LOCALSTOPTIMEOUT.bounds[0]
        complain("queue-local", f"warning: {error}; deliveries in flight have {seconds} s to end")
        return seconds


def capacity(home: Home) -> int:
    """Return the number of jobs to take at once: JOBS, or control/concurrencylocal if that is larger.

    Resource limits lower it: each delivery needs one descriptor here, and one process of this user.
    """
    try:
        wanted = max(JOBS, read_value(home, registry.CONCURRENCYLOCAL))
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
