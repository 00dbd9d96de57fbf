"""REPORTS.md, made of the registry. `cd tests; ../.venv/bin/python -m support.spark.report_docs` writes it anew.

The examples are what the program prints of a small queue written by hand (report_examples.py). They are made only
then, and kept with `--text`; the rest is compared with the registry by a test.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from spark.reports import REPORTS
from spark.reports.report import Report

REPORTS_MD = Path(__file__).parents[3] / "REPORTS.md"
EXAMPLE = re.compile(r"^## (\S+)$.*?^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)

INTRODUCTION = """\
# The reports

`queue-report show REPORT --lake LAKE` prints one; without REPORT it lists them. README says how a lake is made,
CLUSTER.md how on a cluster. The options are the same for all:

- `--since`, `--until`: what ended in this time, `until` not included. A time is a date, a date and time (UTC where no
  zone is named), or a stamp of the log (`@400000006745…`). A report that looks at the queue as it was says how it
  takes them; `--at` is for those.
- `--host`: the queues of this host. `--domain`: deliveries to this domain, and messages that have any.
- `--limit N`: the first N rows.
- `--format table`, `csv` or `json`. csv and json are exact: times in ISO 8601 (UTC, microseconds), seconds with nine
  digits, integers as such, missing values empty or null. A table shows six digits, `-` for what is missing, and the
  log's `_` as spaces where a column is text of the log.

Times that are sums or averages (s) are exact to the nanosecond. The reports from `overall` to `sendmail` are
qmailanalog's, with its names and its rules: a message is born at its `info` line, a mangled report is a deferral,
addresses are folded to lower case, and a message counts when it has ended and its `info` line is in the log. Its own
numbers are rounded to six digits (5.79869e+09); these are not. What it computes otherwise than it says is as it says:
`ddist` compares delays as numbers, not as text, and counts equal ones in the average.

A class says whose trouble a failure or deferral is, and so who can mend it: `mailbox` (no such recipient), `full`,
`size`, `domain` (it does not exist, or takes no mail), `sender`, `rate` (greylisting and limits), `spam`, `tls`,
`policy` (relaying, authentication, SPF, DMARC), `network`, `system` (their host is out of order), `protocol`,
`content`, `local` (our own programs), `other`. An RFC 3463 code that says enough decides it, else words of the text.

The examples are of one small queue; `--limit 5` where they would be longer.
"""


def document(examples: Mapping[str, str]) -> str:
    """Return REPORTS.md; examples: by report, the table that it prints."""
    return INTRODUCTION + "".join(_section(report, examples.get(report.name, "")) for report in REPORTS.values())


def written_examples() -> dict[str, str]:
    """Return the examples in REPORTS.md."""
    return dict(EXAMPLE.findall(REPORTS_MD.read_text()))


def _section(report: Report, example: str) -> str:
    columns = "".join(f"| `{name}` | {meaning.replace('|', '/')} |\n" for name, meaning in report.columns.items())
    text = f"\n## {report.name}\n\n{report.title}. {report.about}\n"
    return f"{text}\n| column | |\n|---|---|\n{columns}\n```\n{example}```\n"


if __name__ == "__main__":
    # --text takes the examples as they are.
    if "--text" not in sys.argv:
        from support.spark.report_examples import make_examples

        made = make_examples()
    else:
        made = written_examples()
    REPORTS_MD.write_text(document(made))
