"""Mail-Followup-To for mail to lists that its author reads (qmail-inject's QMAILMFTFILE).

The file that QUEUE_MFTFILE names lists addresses of mailing lists, one a line, as control files do. Mail with one of
them in To or Cc gets a Mail-Followup-To of all addresses in To and Cc, so that an answer to the list
does not come to its author twice.
"""

from queue_base.durable import read_file
from queue_base.errors import Temporary, reason
from queue_inject.header.compose import show_address
from queue_wire.control.lines import unpack_set

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Set


def read_lists(path: str) -> frozenset[bytes]:
    """Return the lists' addresses in lower case; none where there is no file. Raises Temporary."""
    try:
        return unpack_set(read_file(path))
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise Temporary(f"unable to read {path}, the file of QUEUE_MFTFILE: {reason(error)}") from error


def followup_field(named: list[list[bytes]], lists: "Set[bytes]") -> bytes:
    """Return the field, or nothing where none of the addresses is a list's. `named` has those of each To and Cc.

    The last field's come first: qmail-inject gathers addresses from right to left.
    """
    addresses = [address for field in reversed(named) for address in field]
    if lists.isdisjoint(address.lower() for address in addresses):
        return b""
    return b"Mail-Followup-To: " + b",\n  ".join(map(show_address, addresses)) + b"\n"
