"""What the administrator has ordered about the mail that is stored for a domain: files in queue/ondemand/DOMAIN. Pure.

    hold/I-BIRTH   the message is on hold: no run takes it, and it does not expire. The file has the reason, one line
    hold/all       the whole domain is, also what is stored later
    order/NAME     an order; queue-ondemand carries it out and removes it then. The first one by name comes first:

        command LF recipient LF      `delete`, `bounce` or `requeue`; only this recipient, if it is not empty
        I-BIRTH LF …                 the long ids of the messages, or `all` in place of the first one

queuectl makes the files, whether queue-ondemand runs or not.
"""

from typing import NamedTuple

from queue_wire.format_error import FormatError, quoted

HOLD_DIRECTORY = "hold"
ORDER_DIRECTORY = "order"
WHOLE = "all"  # In place of a long id: all that is stored for the domain.
DELETE_STORED = b"delete"
BOUNCE_STORED = b"bounce"
REQUEUE_STORED = b"requeue"
ORDER_MAX = 1 << 30  # Bytes of an order.


class StoredOrder(NamedTuple):
    """An order. `ids` are the long ids of the messages, none for all; `recipient`, in lower case, is empty for all."""

    command: bytes
    recipient: bytes = b""
    ids: frozenset[str] = frozenset()


def pack_order(order: StoredOrder) -> bytes:
    """Return the bytes of the file."""
    names = [name.encode() for name in sorted(order.ids)] or [WHOLE.encode()]
    return b"\n".join((order.command, order.recipient.replace(b"\n", b" "), *names, b""))


def unpack_order(data: bytes) -> StoredOrder:
    """Return the order in a file. Raises FormatError."""
    command, newline, rest = data.partition(b"\n")
    recipient, _, rest = rest.partition(b"\n")
    if command not in (DELETE_STORED, BOUNCE_STORED, REQUEUE_STORED) or not newline or not rest.endswith(b"\n"):
        raise FormatError(f"order for stored mail: not a command, a recipient and ids: {quoted(data[:100])}")
    ids = frozenset(rest.decode("ascii", "replace").splitlines())
    return StoredOrder(command, recipient, frozenset() if WHOLE in ids else ids)


def takes_recipient(recipient: bytes, stored: bytes) -> bool:
    """Return whether an order about `recipient`, empty for all, takes a stored one."""
    return not recipient or stored.lower() == recipient
