"""docs/logs.md, and docs/smtp-server.md for queue-smtpd, describe the lines of the table, each of them and no other."""

import re
from pathlib import Path

import pytest

from queue_report.match.grammar import OTHERS, OWN, parse_event

DOCS = Path(__file__).resolve().parents[3] / "docs"


def example(line: str) -> str:
    """Return a line with something in the place of what the page has in capitals, or leaves out."""
    return re.sub(r"\b[A-Z]\b|…", "7", line.replace("WHY", "why").replace("PROGRAM", "queue-x"))


def described() -> list[str]:
    """Return the lines of the pages."""
    log = (DOCS / "logs.md").read_text().partition("\n## The counts of lines\n")[0]
    lines, _, rest = log.partition("\n## Alerts and warnings\n")
    cells = re.findall(r"^\| (`[^|]*`)(?: \*)? \|", lines, re.MULTILINE)
    found = [line for cell in cells for line in re.findall("`(.*?)`", cell)]
    stop = rest.partition("\n## Start and stop\n")[2].partition("\n## ")[0]
    smtp = (DOCS / "smtp-server.md").read_text().partition("\n## Its log\n")[2].partition("\n## ")[0]
    found += re.findall("^    (.*[^…\n])$", stop + smtp, re.MULTILINE)
    return [example(line) for line in found]


def test_the_pages_have_many_lines() -> None:
    assert len(described()) > 80


@pytest.mark.parametrize("line", described())
def test_a_line_that_the_pages_have_is_in_the_table(line: str) -> None:
    event = parse_event(line.encode())
    assert event is not None
    assert event[0].name != "smtp_other" or line == "smtp 7: 7"


def test_every_line_of_the_table_is_described() -> None:
    events = [parse_event(line.encode()) for line in described()]
    templates = {event[0].template for event in events if event is not None}
    assert templates == {template for _, template, _ in (*OWN, *OTHERS)}
