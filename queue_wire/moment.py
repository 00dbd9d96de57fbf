"""A time as people read it: UTC, whole seconds. Pure: the clock is elsewhere."""

import datetime


def moment(seconds: float) -> str:
    """Return a time, in seconds since the epoch, as 2026-11-20T13:11:21Z; a time out of range as the number."""
    try:
        return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(int(seconds))
