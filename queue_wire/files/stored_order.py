"""What the administrator has ordered about the mail that is stored for a domain: files in queue/ondemand/DOMAIN. Pure.

    hold/I-BIRTH   the message is on hold: no run takes it, and it does not expire. The file has the reason, one line
    hold/all       the whole domain is, also what is stored later
    order/NAME     an order; queue-ondemand carries it out and removes it then. The first one by name comes first:

        command LF recipient LF      `delete`, `bounce` or `requeue`; only this recipient, if it is not empty
        I-BIRTH LF …                 the long ids of the messages; or, for all that was stored then:
        upto N SEED END LF …         the records of cluster N with this seed that begin before this offset

queuectl makes the files, whether queue-ondemand runs or not. So an order never takes what is stored after it was given;
what of it cannot be carried out within ORDER_LIFETIME, by the file's mtime, stays stored.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from queue_wire.address import address_key
from queue_wire.format_error import FormatError, quoted

HOLD_DIRECTORY = "hold"
ORDER_DIRECTORY = "order"
WHOLE = "all"  # In hold/, in place of a long id: all that is stored for the domain.
DELETE_STORED = b"delete"
BOUNCE_STORED = b"bounce"
REQUEUE_STORED = b"requeue"
ORDER_MAX = 1 << 30  # Bytes of an order.
ORDER_LIFETIME = 86400  # Seconds.
_END = re.compile(r"upto (\d{1,18}) ([0-9a-f]{16}) (\d{1,18})")


class ClusterEnd(NamedTuple):
    """How far an order reaches into a cluster: the seed of the file, and the offset of the first record behind it."""

    number: int
    seed: int
    end: int


class StoredOrder(NamedTuple):
    """An order. `recipient`, in lower case, is empty for all. It is about the messages with the long ids `ids`, or, if
    there are none, about the records before `ends`.
    """

    command: bytes
    recipient: bytes = b""
    ids: frozenset[str] = frozenset()
    ends: tuple[ClusterEnd, ...] = ()

    def takes(self, long_id: str, recipient: bytes, cluster: int, seed: int, offset: int) -> bool:
        """Return whether it takes the record of a recipient, which begins at an offset of a cluster with a seed."""
        if self.recipient and address_key(recipient) != address_key(self.recipient):
            return False
        if self.ids:
            return long_id in self.ids
        return any(end.number == cluster and end.seed == seed and offset < end.end for end in self.ends)


def divide_order(order: StoredOrder, most: int) -> Iterator[StoredOrder]:
    """Yield orders that do the same together, each with so many long ids or ends of clusters at most."""
    ids = sorted(order.ids)
    for at in range(0, max(len(ids), len(order.ends)), most):
        yield order._replace(ids=frozenset(ids[at : at + most]), ends=order.ends[at : at + most])


def pack_order(order: StoredOrder) -> bytes:
    """Return the bytes of the file."""
    names = [name.encode() for name in sorted(order.ids)]
    names += [b"upto %d %016x %d" % end for end in order.ends]
    return b"\n".join((order.command, order.recipient.replace(b"\n", b" "), *names, b""))


def unpack_order(data: bytes) -> StoredOrder:
    """Return the order in a file. Raises FormatError."""
    command, newline, rest = data.partition(b"\n")
    recipient, _, rest = rest.partition(b"\n")
    if command not in (DELETE_STORED, BOUNCE_STORED, REQUEUE_STORED) or not newline or data[-1:] != b"\n":
        raise FormatError(f"order for stored mail: not a command, a recipient and ids: {quoted(data[:100])}")
    names = rest.decode("ascii", "replace").splitlines()
    if WHOLE in names:
        raise FormatError("order for stored mail: it is of an earlier version, and does not say up to which message")
    if not names or not names[0].startswith("upto "):
        return StoredOrder(command, recipient, frozenset(names))
    found = [_END.fullmatch(name) for name in names]
    ends = tuple(ClusterEnd(int(end[1]), int(end[2], 16), int(end[3])) for end in found if end is not None)
    if len(ends) < len(names):
        raise FormatError(f"order for stored mail: not the end of a cluster: {quoted(rest)}")
    return StoredOrder(command, recipient, ends=ends)
