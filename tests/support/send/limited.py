"""The scheduler's limits of single destinations, from the lines of the control files."""

from queue_base.limits import LimitTable
from queue_wire.control.destinationlimits import join_lines, unpack_limits, unpack_rates
from queue_wire.control.smtproutes import unpack_routes


def limited(limits: bytes = b"", rates: bytes = b"", routes: bytes = b"", local: bool = False) -> LimitTable:
    """Return what destinationlimits, destinationrate and smtproutes with these lines say."""
    return LimitTable(join_lines(unpack_limits(limits), unpack_rates(rates)), unpack_routes(routes), local)
