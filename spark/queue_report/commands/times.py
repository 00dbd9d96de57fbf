"""Points in time as an administrator writes them, as Unix time in nanoseconds: no Spark, no clock."""

import re
from datetime import UTC, datetime

# The label of the epoch, 2^62 + 10 (TAI64: ten seconds ahead of Unix time).
_TAI64 = 4611686018427387914
_LABEL = re.compile(r"@([0-9a-f]{16})([0-9a-f]{8})")
_ISO = re.compile(r"(\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")


def parse_time(text: str) -> int:
    """Return the time of an ISO 8601 date, or date and time, or of a log's stamp (@ and 24 hex digits).

    Without a zone it is UTC. Up to nine digits of a second. Raises ValueError with a text for the user.
    """
    if stamp := _LABEL.fullmatch(text):
        seconds, nanoseconds = int(stamp[1], 16) - _TAI64, int(stamp[2], 16)
        if nanoseconds < 10**9 and abs(seconds) < 2**33:
            return seconds * 10**9 + nanoseconds
    elif found := _ISO.fullmatch(text):
        base, fraction, zone = found.groups()
        if fraction is None or base.count(":") == 2:
            clock = "T00:00" if len(base) == len("2026-11-20") else ""
            try:
                moment = datetime.fromisoformat(base + clock + (zone or "Z"))
            except ValueError:
                pass
            else:
                whole = moment - datetime(1970, 1, 1, tzinfo=UTC)
                found_ns = (whole.days * 86400 + whole.seconds) * 10**9 + int((fraction or "").ljust(9, "0"))
                if abs(found_ns) >= 2**63:
                    raise ValueError(f"{text} is out of range; a time is from 1677-09-22 to 2262-04-11")
                return found_ns
    raise ValueError(f"{text} is no time; write 2026-11-20, 2026-11-20T13:05:00.5Z or a log's @400000006745...")
