"""control/srs: the domain of rewritten senders of forwards (queue_local.srs)."""

import re

from queue_wire.address import domain_key
from queue_wire.control.lines import unpack_line
from queue_wire.format_error import FormatError, InLine, quoted

_NAME = re.compile(rb"[a-z0-9_.-]+")


def unpack_srs_domain(data: bytes | None) -> bytes:
    """Return the domain as any two are compared; empty if there is none, and no sender is rewritten.

    Raises LineError.
    """
    name = domain_key(unpack_line(data or b"").strip())
    with InLine(1):
        if name and not _NAME.fullmatch(name):
            raise FormatError(f"not the name of a domain: {quoted(name)}")
    return name
