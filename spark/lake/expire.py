"""Which files of a lake are too old. Whole dates are dropped, never single rows."""

from collections.abc import Mapping
from datetime import date, timedelta


def date_of(path: str) -> date | None:
    """Return the date that a data file is stored by, None for one that has none."""
    first = path.split("/", 1)[0]
    try:
        return date.fromisoformat(first.removeprefix("date=")) if first.startswith("date=") else None
    except ValueError:
        return None


def expired(tables: Mapping[str, Mapping[str, int]], days: int, today: date) -> dict[str, list[str]]:
    """Return by table the files of dates that are more than `days` days ago (UTC). pending has no dates."""
    try:
        first_kept = today - timedelta(days=days)
    except OverflowError:
        return {}
    return {
        table: [path for path in paths if (date_of(path) or first_kept) < first_kept] for table, paths in tables.items()
    }
