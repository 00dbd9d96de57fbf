"""What a report is, and what of a lake it looks at. Its SQL is in sql/NAME.sql."""

import pkgutil
from dataclasses import dataclass
from typing import NamedTuple


class View(NamedTuple):
    """What a report is asked for. since, until, at: Unix time in nanoseconds; until is not part of the window.

    None is no restriction. domain is in lower case. limit: the number of rows.
    """

    since: int | None = None
    until: int | None = None
    at: int | None = None
    host: str | None = None
    domain: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class Report:
    """A report by its name. columns: by name in order, what each holds with its unit, for docs/reports.md and the page.

    about: what a row is, and in which order, in a few sentences. windowed: its tables are cut to since and until; one
    that needs what was before or after them (the queue as it was) has them uncut. momentary: it looks at the moment
    `at`. single: it always has one row, which is printed as a line a column. spaced: columns of text as the log has it,
    whose `_` a table shows as spaces.
    """

    name: str
    title: str
    about: str
    columns: dict[str, str]
    windowed: bool = True
    momentary: bool = False
    single: bool = False
    spaced: frozenset[str] = frozenset()

    def text(self) -> str:
        """Return its SQL: one SELECT."""
        return read_text(f"sql/{self.name}.sql")


def read_text(name: str) -> str:
    """Return a file that lies with this module, also in a zip file, as on a cluster. Raises OSError."""
    content = pkgutil.get_data(__package__, name)
    assert content is not None
    return content.decode()
