"""Which recipients of a message an order is about. Addresses and domains ignore case. Pure."""

from typing import NamedTuple

from queue_wire.address import address_key, split_address


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
        wanted = address_key(self.recipient)
        if wanted and wanted not in (address_key(address), address_key(shown)):
            return False
        return not self.domain or address_key(split_address(address)[1]) == address_key(self.domain)
