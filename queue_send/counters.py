"""What queue-send has done since its start, in numbers, for `queuectl metrics`. Pure.

Counting costs some increments a message. Lengths of time are counted in columns of powers of two: column 0 has those
under 1 unit, column n those from 2**(n-1) to under 2**n units, and the last one all longer ones too.
"""

from queue_wire.admin.figure import COLUMNS
from queue_wire.status_code import find_status

DELIVERY_UNIT = 0.001  # Seconds: a delivery takes from some milliseconds to minutes.
QUEUE_UNIT = 1.0  # A birth is known to the second.
_LAST = COLUMNS - 1
RECENT = 60.0  # Seconds: the worst turn of this time, and of as much before it, is kept.
NO_CLASS = b"none"
# The subject of an enhanced status code, RFC 3463 section 3.
_SUBJECTS = (b"other", b"address", b"mailbox", b"system", b"network", b"protocol", b"content", b"policy")


def trouble_class(text: bytes) -> bytes:
    """Return the subject of the enhanced status code in the text of a verdict; NO_CLASS if it has none."""
    code = find_status(text, b"245")
    subject = int(code.split(b".")[1]) if code else len(_SUBJECTS)
    return _SUBJECTS[subject] if subject < len(_SUBJECTS) else NO_CLASS


class TimeColumns:
    """How many times were of each length, and their sum in seconds."""

    __slots__ = ("_scale", "counts", "seconds")

    def __init__(self, unit: float) -> None:
        self.counts = [0] * COLUMNS
        self.seconds = 0.0
        self._scale = 1 / unit

    def add(self, seconds: float, number: int) -> None:
        """Count `number` times of one length."""
        if seconds < 0:
            seconds = 0.0  # The clock was set.
        column = int(seconds * self._scale).bit_length()
        self.counts[column if column < _LAST else _LAST] += number
        self.seconds += seconds * number


class ChannelCounters:
    """The deliveries of one channel, in recipients.

    `successes` were delivered. `troubles` are deferrals (True) and failures (False) by class. `deliveries` has the
    times from the start of a job to its report, `ages` those from the birth of a message to the success of a recipient.
    """

    __slots__ = ("ages", "deliveries", "successes", "troubles")

    def __init__(self) -> None:
        self.successes = 0
        self.troubles: dict[tuple[bool, bytes], int] = {}
        self.deliveries = TimeColumns(DELIVERY_UNIT)
        self.ages = TimeColumns(QUEUE_UNIT)

    def end_job(self, seconds: float, age: float, recipients: int, successes: int) -> None:
        """Count a job that has ended: its length, and the age of its message."""
        self.deliveries.add(seconds, recipients)
        if successes:
            self.successes += successes
            self.ages.add(age, successes)

    def add_trouble(self, deferred: bool, text: bytes) -> None:
        """Count a recipient that was deferred, or has failed."""
        key = (deferred, trouble_class(text))
        self.troubles[key] = self.troubles.get(key, 0) + 1


class Counters:
    """All counters. `waits` has the times from the birth of a message until its notice came."""

    __slots__ = (
        "_recent_from", "_worst_before", "_worst_recent", "arrived", "channels", "ended", "turn_seconds", "turns",
        "waits", "worst",
    )  # fmt: skip

    def __init__(self) -> None:
        self.channels = {kind: ChannelCounters() for kind in ("local", "remote")}
        self.arrived = self.ended = self.turns = 0
        self.waits = TimeColumns(DELIVERY_UNIT)
        self.turn_seconds = self.worst = 0.0
        self._worst_recent = self._worst_before = 0.0
        self._recent_from = 0.0

    def add_arrival(self, wait: float) -> None:
        """Count a new message, `wait` seconds after its birth."""
        self.arrived += 1
        self.waits.add(wait, 1)

    def add_turn(self, seconds: float, now: float) -> None:
        """Count a turn of the loop, without its wait."""
        self.turns += 1
        self.turn_seconds += seconds
        if now - self._recent_from > RECENT:
            self._worst_before = self._worst_recent if now - self._recent_from < 2 * RECENT else 0.0
            self._worst_recent = 0.0
            self._recent_from = now
        if seconds > self._worst_recent:
            self._worst_recent = seconds
            if seconds > self.worst:
                self.worst = seconds

    @property
    def worst_recent(self) -> float:
        """The seconds of the longest turn of the last one to two minutes."""
        return max(self._worst_recent, self._worst_before)
