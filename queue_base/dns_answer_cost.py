"""What an answer of DNS will cost the library that parses it, found without parsing it. Pure.

dnspython follows compression pointers and builds each parent of a name in a record, which takes time with the square of
its labels: some hundred names of 120 labels, in 8 kB of a hostile zone, would stop an event loop for two seconds.
"""

import struct

# In units of some 0.15 microseconds: 10 milliseconds. It is enough for 150 records with names of six labels.
COST_MAX = 60_000
RECORD_COST = 250
# For each label of a name; a name within a record costs their square, too.
LABEL_COST = 8
LABELS_MAX = 128

_HEADER = struct.Struct("!6H")
_RECORD = struct.Struct("!HHIH")
# Types whose records have no name. SOA, the only one with two names, has them one after the other.
_NAMELESS = frozenset([1, 16, 28, 41, 43, 48, 50, 52])  # A, TXT, AAAA, OPT, DS, DNSKEY, NSEC3, TLSA
_NAMES_AT = {2: 0, 5: 0, 6: 0, 12: 0, 15: 2, 39: 0, 46: 18, 47: 0}  # NS, CNAME, SOA, PTR, MX, DNAME, RRSIG, NSEC
_SOA = 6


def is_costly(message: bytes) -> bool:
    """Return whether a message costs more than COST_MAX.

    One that cannot be parsed is not: the parser comes as far as this function, and says what is wrong.
    """
    try:
        _, _, questions, *sections = _HEADER.unpack_from(message)
        records = sum(sections)
        cost, at = RECORD_COST * (questions + records), _HEADER.size
        if cost > COST_MAX:
            return True
        for _ in range(questions):
            labels, at = _read_name(message, at)
            cost += LABEL_COST * labels
            at += 4
        for _ in range(records):
            labels, at = _read_name(message, at)
            kind, _, _, length = _RECORD.unpack_from(message, at)
            at += _RECORD.size
            cost += LABEL_COST * labels + _record_cost(message, at, kind)
            if cost > COST_MAX:
                return True
            at += length
    except (IndexError, struct.error):
        pass
    return False


def _record_cost(message: bytes, at: int, kind: int) -> int:
    if kind in _NAMELESS:
        return 0
    place = _NAMES_AT.get(kind)
    if place is None:
        # Nobody asks for others, and nobody knows how many names they have.
        return LABELS_MAX * LABELS_MAX
    cost = 0
    at += place
    for _ in range(2 if kind == _SOA else 1):
        labels, at = _read_name(message, at)
        cost += LABEL_COST * labels + labels * labels
    return cost


def _read_name(message: bytes, at: int) -> tuple[int, int]:
    """Return the number of labels of a name, and where what follows it begins.

    Raises IndexError for a name that the parser refuses.
    """
    labels, end = 0, 0
    while length := message[at]:
        if length < 0x40:
            labels += 1
            at += 1 + length
        else:
            end = end or at + 2
            following = (length & 0x3F) << 8 | message[at + 1]
            # A pointer leads back, so that this ends.
            if length < 0xC0 or following >= at:
                raise IndexError
            at = following
        if labels > LABELS_MAX:
            raise IndexError
    return labels, end or at + 1
