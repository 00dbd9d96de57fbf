"""Tables of rules in tests/local/tables/: `rule | input | expected` rows in blocks, each below its set-up."""

from pathlib import Path
from typing import NamedTuple

TABLES = Path(__file__).parents[2] / "local" / "tables"


class Row(NamedTuple):
    """One rule: the set-up lines of its block, what it says, what goes in and what must come out."""

    setup: tuple[str, ...]
    rule: str
    given: str
    expected: str


def read_table(name: str) -> list[Row]:
    """Return the rows of a table; a block ends with an empty line."""
    rows: list[Row] = []
    for block in (TABLES / name).read_text().split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        setup = tuple(line for line in lines if "|" not in line)
        rows += [Row(setup, *(part.strip() for part in line.split("|"))) for line in lines if "|" in line]
    assert rows, f"no rows in {name}"
    return rows
