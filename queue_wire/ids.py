"""Message ids: the inode number I of mess/B/I, its bucket B, and the long id `I-BIRTH`.

The kernel reuses inode numbers as soon as a message is removed. So administrators name a message by its long id, which
has its birth as well, in microseconds since the epoch in base 36. Where a home has several queues, two messages may
have the same number, and `QUEUE/I-BIRTH` names one of them.
"""

from queue_wire.format_error import FormatError, quoted

# queue-send keeps a number and a further bit in 63 bits. A file system whose inode numbers are higher, as some that are
# made of several others, cannot hold a queue.
ID_MAX = 2**62 - 1
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def unpack_id(text: bytes) -> int:
    """Return the id in `text`: decimal, no sign, no leading zero, 1 to ID_MAX. Raises FormatError."""
    if not text.isdigit() or text[:1] == b"0" or len(text) > 19:
        raise FormatError(f"not a message id: {quoted(text)}")
    value = int(text)
    if value > ID_MAX:
        raise FormatError(f"not a message id: {quoted(text)}")
    return value


def is_id(name: str) -> bool:
    """Return whether a file's name may be a message id; a walk over many names needs no more than that."""
    if not (name.isascii() and name.isdigit() and len(name) < 20) or name[0] == "0":
        return False
    return len(name) < 19 or int(name) <= ID_MAX


def bucket(message: int, split: int) -> int:
    """Return the number of the subdirectory for a message: I mod split."""
    return message % split


def is_prime(number: int) -> bool:
    """Return whether `number` is prime, by trial division, which is fast enough for splits."""
    if number < 4:
        return number > 1
    if number % 2 == 0:
        return False
    divisor = 3
    while divisor * divisor <= number:
        if number % divisor == 0:
            return False
        divisor += 2
    return True


def nearest_primes(number: int) -> tuple[int, int]:
    """Return the nearest primes below and above `number`; 2 if there is none below."""
    below = max(number - 1, 2)
    while not is_prime(below):
        below -= 1
    above = max(number + 1, 2)
    while not is_prime(above):
        above += 1
    return below, above


def pack_queue_id(queue: str, long_id: str) -> str:
    """Return `QUEUE/I-BIRTH`, or the long id as it is if `queue` is empty: there is only one."""
    return f"{queue}/{long_id}" if queue else long_id


def split_queue_id(text: str) -> tuple[str, str]:
    """Return the queue, empty if the text names none, and the rest: a long id or what is in its place."""
    queue, _, rest = text.rpartition("/")
    return queue, rest


def pack_long_id(message: int, birth: int) -> str:
    """Return `I-BIRTH` for a message id and its birth in microseconds since the epoch; one before it is 0."""
    digits = ""
    while birth > 0:
        birth, rest = divmod(birth, 36)
        digits = _DIGITS[rest] + digits
    return f"{message}-{digits or '0'}"


def unpack_long_id(text: str) -> tuple[int, int | None]:
    """Return (id, birth in microseconds); birth is None for a bare inode number. Raises FormatError."""
    number, dash, birth = text.partition("-")
    message = unpack_id(number.encode("ascii", "replace"))
    if not dash:
        return message, None
    if not birth or len(birth) > 13 or any(digit not in _DIGITS for digit in birth):
        raise FormatError(f"not a message id: {quoted(text.encode('utf-8', 'replace'))} (expected INODE-BIRTH)")
    return message, int(birth, 36)
