"""queue-send to queue-clean: `<id>\\0` for a finished message. Back, one byte an id, in order.

    +  every file of the message is gone; a power cut may bring back mess/ alone, which is swept (S2)
    !  something could not be removed; ask again later
    x  not an id
"""

REMOVED = b"+"
TROUBLE = b"!"
NOT_UNDERSTOOD = b"x"
ANSWERS = REMOVED + TROUBLE + NOT_UNDERSTOOD


def pack_clean(message: int) -> bytes:
    """Return the request to remove what is left of a message, with its NUL."""
    return b"%d\0" % message
