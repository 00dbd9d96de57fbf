"""The mark in hold/B/I: a reason for people, one line, and perhaps an order, in records behind the line.

    O<order>\\0       `delete` or `bounce`
    R<address>\\0     bounce this recipient, with or without the prefix of virtualdomains
    D<domain>\\0      bounce the recipients in this domain
    H<reason>\\0      some are bounced: the message was on hold with this reason, and is so again afterwards

O comes without R and D. With R, D or both, the recipients that fit all that is given are bounced. Only a record is an
order: the line has what somebody wrote. What is no order, or chooses nobody, only holds the message. Pure.
"""

from enum import Enum
from typing import NamedTuple

from queue_wire.admin.returning import RecipientSelector
from queue_wire.format_error import quoted

NOBODY = RecipientSelector(b"", b"")


class HoldOrder(Enum):
    """What is to be done with a message on hold as soon as nothing of it is in flight; the value is the reason."""

    DELETE = b"deleted by the administrator; it ends when nothing of it is in flight"
    BOUNCE = b"returned by the administrator; it bounces when nothing of it is in flight"
    BOUNCE_SOME = b"recipients returned by the administrator; they bounce when nothing of it is in flight"


_NAMES: dict[HoldOrder | None, bytes] = {HoldOrder.DELETE: b"delete", HoldOrder.BOUNCE: b"bounce"}
_BY_NAME = {name: order for order, name in _NAMES.items()}
_REASONS = frozenset(order.value for order in HoldOrder)


class HoldMark(NamedTuple):
    """The reason, and the order, None for none. BOUNCE_SOME has the next two.

    held: the reason of the hold that comes back then, None for none.
    fault: why the mark is no order although it looks like one.
    """

    reason: bytes
    order: HoldOrder | None = None
    selector: RecipientSelector = NOBODY
    held: bytes | None = None
    fault: str = ""


def order_mark(order: HoldOrder, selector: RecipientSelector = NOBODY, held: bytes | None = None) -> HoldMark:
    """Return the mark that is an order. `selector` is given for BOUNCE_SOME, and chooses somebody."""
    return HoldMark(order.value, order, selector, held)


def pack_mark(mark: HoldMark) -> bytes:
    """Return the file. The reason contains no newline, and no field a NUL."""
    fields = (b"O", _NAMES.get(mark.order, b"")), (b"R", mark.selector.recipient), (b"D", mark.selector.domain)
    records = b"".join(letter + field + b"\0" for letter, field in fields if field)
    if mark.held is not None:
        records += b"H%s\0" % mark.held
    return mark.reason + b"\n" + records


def unpack_mark(data: bytes) -> HoldMark:
    """Return the mark."""
    reason, _, rest = data.partition(b"\n")
    if not rest:
        # Somebody gave this reason, or it was an order of an earlier version, which had no record for it.
        fault = "it has the words of an order, and no order" if reason in _REASONS else ""
        return HoldMark(reason, fault=fault)
    fields = {record[:1]: record[1:] for record in rest.split(b"\0")}
    mark = HoldMark(
        reason,
        HoldOrder.BOUNCE_SOME if b"O" not in fields else _BY_NAME.get(fields[b"O"]),
        RecipientSelector(fields.get(b"R", b""), fields.get(b"D", b"")),
        fields.get(b"H"),
    )
    is_order = mark.order is not None and mark.selector.any == (mark.order == HoldOrder.BOUNCE_SOME)
    if is_order and pack_mark(mark) == data:
        return mark
    return HoldMark(reason, fault=f"its records are no order: {quoted(rest)}")
