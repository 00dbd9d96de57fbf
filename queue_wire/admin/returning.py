"""The order to bounce some recipients of a message: which ones, as records behind the reason of a mark in hold/B/I.

    R<address>\\0     the recipient, with or without the prefix of virtualdomains
    D<domain>\\0      those in this domain
    H<reason>\\0      the message was on hold with this reason, and is so again afterwards

Addresses and domains ignore case. A recipient is chosen if all that is given of the first two fits it. Pure.
"""

from typing import NamedTuple

from queue_wire.address import split_address
from queue_wire.format_error import FormatError, quoted


class RecipientSelector(NamedTuple):
    """Chooses recipients of a message; empty for what is not given."""

    recipient: bytes
    domain: bytes

    @property
    def any(self) -> bool:
        """Whether something is given; otherwise all recipients are chosen."""
        return bool(self.recipient or self.domain)

    def chooses(self, address: bytes, shown: bytes) -> bool:
        """Return whether a recipient is chosen; `shown` is its address without the prefix of virtualdomains."""
        wanted = self.recipient.lower()
        if wanted and wanted != address.lower() and wanted != shown.lower():
            return False
        return not self.domain or split_address(address)[1].lower() == self.domain.lower()


class ReturnOrder(NamedTuple):
    """Which recipients to bounce, and the reason of the hold that comes back then, None for none."""

    selector: RecipientSelector
    held: bytes | None


def pack_return(order: ReturnOrder) -> bytes:
    """Return the records. No field may contain a NUL."""
    records = b""
    for letter, field in (b"R", order.selector.recipient), (b"D", order.selector.domain):
        if field:
            records += letter + field + b"\0"
    return records if order.held is None else b"%sH%s\0" % (records, order.held)


def unpack_return(data: bytes) -> ReturnOrder:
    """Return the order. Raises FormatError, also if it chooses nobody: that would be everybody."""
    *records, rest = data.split(b"\0")
    fields: dict[bytes, bytes] = {}
    for record in records:
        letter = record[:1]
        if letter not in (b"R", b"D", b"H") or letter in fields:
            raise FormatError(f"return: unknown record: {quoted(record)}")
        fields[letter] = record[1:]
    selector = RecipientSelector(fields.get(b"R", b""), fields.get(b"D", b""))
    if rest or not selector.any:
        raise FormatError(f"return: it chooses nobody: {quoted(data)}")
    return ReturnOrder(selector, fields.get(b"H"))
