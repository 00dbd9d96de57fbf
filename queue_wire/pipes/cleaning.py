"""queue-send to queue-clean: `<id>\\0` for each finished message. Back: one byte per id, in order.

    +  all files of the message are removed; after a power cut only mess/B/I may be back, which is swept (S2)
    !  a file could not be removed; queue-send asks again later
    x  not an id
"""

REMOVED = b"+"
TROUBLE = b"!"
NOT_UNDERSTOOD = b"x"
ANSWERS = REMOVED + TROUBLE + NOT_UNDERSTOOD


def pack_clean(message: int) -> bytes:
    """Return the request to remove what is left of a message, with its NUL."""
    return b"%d\0" % message
