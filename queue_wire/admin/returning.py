"""Which recipients of a message an order is about. Addresses and domains ignore case. Pure."""

from typing import NamedTuple

from queue_wire.address import split_address


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
