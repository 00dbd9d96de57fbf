"""Limits of a delivery: control/locallimits, set in its process, and so inherited by the programs that it runs."""

import resource

from queue_base.control import read_control
from queue_base.errors import Temporary
from queue_base.home import Home
from queue_local.locallimits import unpack_limits
from queue_wire.format_error import FormatError, wrong_in

_KINDS = {
    "memory": resource.RLIMIT_AS,
    "cpu": resource.RLIMIT_CPU,
    "processes": resource.RLIMIT_NPROC,
    "files": resource.RLIMIT_NOFILE,
    "size": resource.RLIMIT_FSIZE,
    "core": resource.RLIMIT_CORE,
}


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
