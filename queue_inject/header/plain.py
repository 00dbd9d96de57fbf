"""The ordinary address field, told quickly: complete addresses, each alone or after a plain name, with commas between.

`Ann Person <ann@example.org>, bob@example.net` and `"A. P." <ann@example.org>` are ordinary; a group, a
comment, a backslash, a comma in quotes or a name to be completed is not. What is found here is what
rewrite_list finds, which would change nothing; everything else is left to it.
"""

from queue_wire.envelope import ADDRESS_MAX

_SPACE = b" \t\r\n"
# What may be in an atom, and dots: printable ASCII without signs, and 8-bit text (RFC 6532 section 3.2).
_ATOMS = bytes(byte for byte in range(33, 256) if byte != 127 and byte not in b'()<>[]",:;@\\')
_ADDRESS = _ATOMS + b"@"
_PHRASE = _ATOMS + _SPACE


def plain_addresses(body: bytes) -> list[bytes] | None:
    """Return the addresses of a field's body, or None where it takes the full parser to say."""
    addresses = []
    for item in body.split(b","):
        address = item.strip(_SPACE)
        if address[-1:] == b">":
            phrase, angle, address = address[:-1].rpartition(b"<")
            if not angle or (phrase.translate(None, _PHRASE) and not _is_quoted(phrase.strip(_SPACE))):
                return None
        local, _, host = address.partition(b"@")
        # A host with a dot in it needs no defaultdomain; with a dot or + at its end it needs a change.
        if not local or b"." not in host or b"@" in host or host[-1:] in (b".", b"+"):
            return None
        if address.translate(None, _ADDRESS) or len(address) > ADDRESS_MAX:
            return None
        addresses.append(address)
    return addresses


def _is_quoted(phrase: bytes) -> bool:
    inside = phrase[1:-1]
    return len(phrase) > 1 and phrase[:1] == phrase[-1:] == b'"' and b'"' not in inside and b"\\" not in inside
