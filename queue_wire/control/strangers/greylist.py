"""`control/greylist`: how strangers are greylisted; without the file they are not. Pure.

    delay 5m         how long a new sender and recipient of a network are refused
    window 2d        how long the next attempt is waited for
    expiry 35d       how long those that have passed are remembered, since they were used last
    known 5          how many of them make all mail of the network pass; 0: never
    rows 1000000     how many are remembered at most

These are the defaults, and an empty file is one with them all.
"""

from typing import NamedTuple

from queue_wire.control.lines import line_words, numbered_lines, unpack_ranged
from queue_wire.control.schedule import unpack_seconds
from queue_wire.format_error import FormatError, InLine, quoted

_TIMES = ("delay", "window", "expiry")
# The least and the most.
_NUMBERS = {"known": (5, 0, 1_000_000), "rows": (1_000_000, 100, 100_000_000)}


class GreylistRules(NamedTuple):
    """The file. Times are in seconds."""

    delay: int = 300
    window: int = 2 * 86400
    expiry: int = 35 * 86400
    known: int = _NUMBERS["known"][0]
    rows: int = _NUMBERS["rows"][0]


def unpack_greylist(data: bytes) -> GreylistRules:
    """Return the rules. Raises LineError, also for a name that stands twice."""
    found: dict[str, int] = {}
    for number, line in numbered_lines(data):
        with InLine(number):
            name, *words = [word.decode("ascii", "replace") for word in line_words(line)]
            if name not in _TIMES and name not in _NUMBERS:
                raise FormatError(f"not one of {', '.join((*_TIMES, *_NUMBERS))}: {quoted(line)}")
            if name in found:
                raise FormatError(f"a second line for {name}")
            if len(words) != 1:
                raise FormatError(f"not a name and one value: {quoted(line)}")
            word = words[0]
            found[name] = unpack_seconds(word) if name in _TIMES else unpack_ranged(word.encode(), _NUMBERS[name])
    rules = GreylistRules(**found)
    if rules.delay >= rules.window:
        raise FormatError("the delay must be shorter than the window, or nobody could pass")
    return rules
