"""control/destinationrate: `nexthop:messages/seconds`, how many messages a nexthop gets in so many seconds. Pure."""

from queue_wire.errors import FormatError, quoted

Rate = tuple[int, float]  # messages, seconds


def unpack_rates(lines: list[bytes]) -> dict[bytes, Rate]:
    """Return {nexthop in lower case: rate}; the last colon divides, a nexthop may have a port. Raises FormatError."""
    rates = {}
    for line in lines:
        nexthop, _, rate = line.rpartition(b":")
        messages, slash, seconds = rate.partition(b"/")
        numbers = messages.isdigit() and seconds.isdigit() and len(rate) <= 18
        if not (nexthop and slash and numbers and int(messages) and int(seconds)):
            raise FormatError(f"not nexthop:messages/seconds: {quoted(line)}")
        rates[nexthop.lower()] = int(messages), float(seconds)
    return rates
