"""Large logs, written fast: every line follows from the number of its message, so nothing is kept.

A message is tried when it arrives. In a calm log most of them end 20 messages later, a few in a hundred are deferred
and end when `backlog` more have come, and one in a hundred fails and has a bounce. In a log with a backlog all are
deferred, so that `backlog` messages are pending at once from the first full queue to the end of the arrivals.
"""

from collections.abc import Iterator
from pathlib import Path

LABEL = 4_611_686_018_427_387_914  # TAI64's label of Unix second 0.
BEGIN = 1_700_000_000
RATE = 50  # Messages a second, all day.
FLYING = 20  # Deliveries in flight.
FIRST = 1_000_000  # The smallest inode number.
BOUNCED = 3  # Of each 100 messages this one fails, and its bounce comes so many messages later.
AFTER = 27
FILE_SIZE = 16_000_000  # multilog's largest is 16777215.
MORE = f"status: local 0/10 remote {FLYING}/120\n"
LESS = f"status: local 0/10 remote {FLYING - 1}/120\n"
LATER = "Connected_to_192.0.2.%d_but_greeting_failed./Remote_host_said:_451_4.3.2_try_later_%x/"
REFUSED = "192.0.2.%d_does_not_like_recipient./Remote_host_said:_550_5.1.1_<u%d@%s>:_no_such_user/Giving_up_on_it./"
TAKEN = "192.0.2.%d_accepted_message./Remote_host_said:_250_2.0.0_Ok:_queued_as_%X/"
# A few domains get most of the mail, and thousands get some.
DOMAINS = [f"d{min(int((65536 / (n + 1)) ** 1.4), 50_000)}.example" for n in range(65536)]


def write_logs(directory: Path, size: int, backlog: int = 0, file_size: int = FILE_SIZE) -> int:
    """Write a multilog directory of about `size` bytes; return how many it has.

    backlog: 0 for a calm log, else how many messages are pending at once; then size is what that takes, at least.
    """
    directory.mkdir(parents=True)
    total = held = 0
    chunks: list[str] = []
    last = ""
    for chunk in _chunks(size, backlog):
        chunks.append(chunk)
        held += len(chunk)
        total += len(chunk)
        last = chunk[:25] if chunk else last
        if held >= file_size:
            (directory / f"{last}.s").write_text("".join(chunks))
            chunks, held = [], 0
    (directory / "current").write_text("".join(chunks))
    return total


def _chunks(size: int, backlog: int) -> Iterator[str]:
    """Yield a second's lines at a time."""
    again = backlog or 2000
    numbers = again + 4 * FLYING  # Inode numbers, used again as soon as they can be.
    written, second, arriving = 0, 0, True
    end = 1 << 62
    while arriving or second * RATE < end + again + 2 * FLYING:
        lines = _second(second, again, numbers, end, bool(backlog))
        written += len(lines)
        second += 1
        if arriving and written >= size * (0.5 if backlog else 1) and second * RATE >= backlog:
            arriving, end = False, second * RATE
        yield lines


def _second(second: int, again: int, numbers: int, end: int, backlog: bool) -> str:
    """Return what happens in a second: arrivals (none from message `end` on), and ends of earlier deliveries."""
    stamp = f"@{BEGIN + second + LABEL:016x}"
    out: list[str] = [] if second else [f"{stamp}{0:08x} status: local 0/10 remote 0/120\n"]
    for step in range(RATE):
        number = second * RATE + step
        at = f"{stamp}{step * 20_000_000 + 1_000:08x} "
        later = f"{stamp}{step * 20_000_000 + 9_000_000:08x} "
        if number < end:
            mixed = _mix(number)
            message = FIRST + number % numbers
            sender = "" if number % 100 == BOUNCED + AFTER and not backlog else f"u{mixed >> 22}@example.org"
            out.append(
                f"{at}new msg {message}\n{at}info msg {message}: bytes {900 + (mixed & 0x7FFF)} from <{sender}> "
                f"qp {300 + number % 32_000} uid 1000\n{_start(at, 2 * number + 1, number, numbers)}"
            )
        number -= FLYING
        if 0 <= number < end:
            out.append(_first_end(later, number, numbers, backlog))
        number -= again
        if 0 <= number < end and _is_deferred(number, backlog):
            out.append(_start(later, 2 * number + 2, number, numbers))
        number -= FLYING
        if 0 <= number < end and _is_deferred(number, backlog):
            out.append(_success(later, 2 * number + 2, number, numbers))
    return "".join(out)


def _is_deferred(number: int, backlog: bool) -> bool:
    return backlog or number % 25 == 7


def _mix(number: int) -> int:
    """Return 32 bits that look random."""
    return number * 2_654_435_761 & 0xFFFFFFFF


def _start(stamp: str, delivery: int, number: int, numbers: int) -> str:
    mixed = _mix(number)
    to = f"remote r{mixed & 0xFFFFF}@{DOMAINS[mixed >> 16]}"
    return f"{stamp}starting delivery {delivery}: msg {FIRST + number % numbers} to {to}\n{stamp}{MORE}"


def _success(stamp: str, delivery: int, number: int, numbers: int) -> str:
    taken = TAKEN % (number & 0xFF, number * 40_503)
    message = FIRST + number % numbers
    return f"{stamp}delivery {delivery}: success: {taken}\n{stamp}{LESS}{stamp}end msg {message}\n"


def _first_end(stamp: str, number: int, numbers: int, backlog: bool) -> str:
    """Return the end of a message's first delivery, and what follows from it."""
    delivery = 2 * number + 1
    if _is_deferred(number, backlog):
        return f"{stamp}delivery {delivery}: deferral: {LATER % (number & 0xFF, number)}\n{stamp}{LESS}"
    if number % 100 == BOUNCED:
        message = FIRST + number % numbers
        why = REFUSED % (number & 0xFF, number & 0xFFFF, DOMAINS[number & 0xFFFF])
        return (
            f"{stamp}delivery {delivery}: failure: {why}\n{stamp}{LESS}"
            f"{stamp}bounce msg {message} qp {300 + (number + AFTER) % 32_000}\n{stamp}end msg {message}\n"
        )
    return _success(stamp, delivery, number, numbers)
