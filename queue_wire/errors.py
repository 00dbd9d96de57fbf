"""What every unpack raises when bytes are not in the format that they should be in."""


class FormatError(ValueError):
    """Bytes that break a format. The text says which format and how, and quotes no more than 40 bytes."""


class AddressTooLong(FormatError):
    """An envelope address over the limit (queue_wire.envelope.ADDRESS_MAX); qmail-queue's exit code 11."""


def quoted(data: bytes) -> str:
    """Return at most 40 bytes of `data` as printable ASCII, for an error text."""
    shown = ascii(data[:40])[1:]
    return shown + ("..." if len(data) > 40 else "")
