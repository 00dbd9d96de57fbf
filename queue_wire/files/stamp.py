"""The stamps that loggers put before each line: TAI64N, as multilog, svlogd -t and s6-log t write it, and dates.

    @4000000067450a1b2c3d4e5f new msg 457         TAI64N: multilog t, svlogd -t, s6-log t
    2026-11-22_22:12:04.12345 new msg 457         svlogd -tt (UTC); with T in the place of _, -ttt
    2026-11-22 22:12:04.123456789  new msg 457    s6-log T (local time)
"""

import datetime
import re

_LABEL = 2**62 + 10  # The label of the Unix second 0, as multilog reckons.
_SECOND = 1_000_000_000
_TAI64N = re.compile(rb"@([0-9a-f]{16})([0-9a-f]{8}) ")
_DATE = re.compile(rb"(\d{4})-(\d\d)-(\d\d)([_T ])(\d\d):(\d\d):(\d\d)\.(\d{1,9}) {1,2}")


def pack_stamp(nanoseconds: int) -> bytes:
    """Return the TAI64N label of a time in nanoseconds since the epoch: `@` and 24 hex digits."""
    seconds, rest = divmod(nanoseconds, _SECOND)
    return b"@%016x%08x" % (_LABEL + seconds, rest)


def unpack_stamp(line: bytes) -> tuple[int, bytes] | None:
    """Return the time of a line in nanoseconds since the epoch, and the line without its stamp; None if it has none."""
    found = _TAI64N.match(line)
    if found is not None:
        seconds, rest = int(found[1], 16) - _LABEL, int(found[2], 16)
        return (seconds * _SECOND + rest, line[found.end() :]) if rest < _SECOND else None
    found = _DATE.match(line)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[number]) for number in (1, 2, 3, 5, 6, 7))
    zone = None if found[4] == b" " else datetime.UTC
    try:
        # A naive datetime is in local time.
        seconds = int(datetime.datetime(year, month, day, hour, minute, second, tzinfo=zone).timestamp())
    except (ValueError, OverflowError, OSError):
        return None
    return seconds * _SECOND + int(found[8].ljust(9, b"0")), line[found.end() :]
