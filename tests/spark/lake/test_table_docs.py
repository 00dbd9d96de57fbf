"""docs/logs.md has every column of the lake's tables, in their order."""

import re
from pathlib import Path

import pytest

from queue_report.schema.columns import COLUMNS

LOGS = (Path(__file__).resolve().parents[3] / "docs" / "logs.md").read_text()
# Each has a row a column there, or a few of them; pending and lines are for the next build, and are told in short.
DESCRIBED = (
    "messages", "deliveries", "intervals", "alerts", "sessions", "accepted", "refusals", "filters", "stored", "runs",
    "quarantine",
)  # fmt: skip


@pytest.mark.parametrize("table", DESCRIBED)
def test_the_page_of_logs_has_the_columns_of_a_table(table: str) -> None:
    (part,) = re.findall(rf"^### {table}\n(.*?)(?=^### |\Z)", LOGS, re.MULTILINE | re.DOTALL)
    cells = re.findall(r"^\| (`.*?) \|", part, re.MULTILINE)
    assert [name for cell in cells for name in re.findall("`(.*?)`", cell)] == list(COLUMNS[table])


def test_the_page_of_logs_names_every_table() -> None:
    assert set(re.findall(r"^### (\w+)$", LOGS, re.MULTILINE)) == set(COLUMNS)
