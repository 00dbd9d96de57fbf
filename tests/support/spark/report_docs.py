"""Generates docs/reports.md from the registry: `cd tests; ../.venv/bin/python -m support.spark.report_docs`.

The examples are the output of the program for a small queue (report_examples.py). They are made anew each time; with
`--text` those in the file are kept. A test compares the rest with the registry. A line of an example that is longer
than WIDTH is folded: it ends with a backslash, and continues after four spaces.
"""

import re
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from queue_report.reports import REPORTS
from queue_report.reports.report import Report

REPORTS_MD = Path(__file__).parents[3] / "docs" / "reports.md"
WIDTH = 118
FOLD = "\\\n    "
EXAMPLE = re.compile(r"^## (\S+)$.*?^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)

INTRODUCTION = """\
# Reports

`queue-report show REPORT --lake LAKE` prints a report. Without REPORT it lists all of them. [Logs](logs.md) tells how a
lake is made, [cluster](cluster.md) how to make it on a cluster. This page is generated from the registry of reports.

All reports have the same options:

- `--since`, `--until`: what ended in this time, `until` not included. A time is a date, a date and time (UTC if no zone
  is named), or a stamp of the log (`@400000006745…`). A report about the queue at a moment says how it uses them;
  `--at` is for those.
- `--host`: the queues of this host.
- `--domain`: deliveries to this domain, and messages that have any.
- `--limit N`: the first N rows.
- `--format table`, `csv` or `json`. csv and json are exact: times in ISO 8601 (UTC, microseconds), seconds with nine
  digits, integers as such, missing values empty or null. A table shows six digits, `-` for a missing value, and the
  log's `_` as spaces in columns that hold text of the log. Text that a terminal would obey is escaped (`\\x1b`) in a
  table, in json, and in csv on a terminal. A spreadsheet takes text that begins with `=`, `+`, `-` or `@` for a
  formula, and anybody can send mail to such an address: have it import the columns of a csv as text.

- `--engine auto`, `duckdb` or `spark`: what reads the tables. `auto` is DuckDB if it is installed and LAKE is a
  directory of this machine, otherwise Spark; so it is Spark with `--master` or `--conf` too. Both print the same to the
  byte, DuckDB in a second and without Java.
- `--sql`: prints the SQL of the report instead of its rows, with the options filled in. With `--lake` it is a whole
  script for the shell of DuckDB (`queue-report show senders --lake LAKE --sql | duckdb`), or for Spark with `--engine
  spark`; its head says how to use it. It is a good beginning for a report of your own.

Times that are sums or averages (s) are exact to the nanosecond. Averages and shares have nine digits.

`queue-report sql 'select …' --lake LAKE` asks a question of your own: one SELECT over the tables `messages`,
`deliveries`, `intervals`, `alerts`, `sessions`, `accepted`, `refusals`, `filters`, `stored`, `runs`, `pending` and
`quarantine` ([their columns](logs.md#the-tables)), in the words of DuckDB, or of Spark with `--engine spark`.
`--format`, `--engine`, `--master` and `--conf` are as above.

    queue-report sql "select uid, count(*) as n from messages group by uid order by n desc" --lake /srv/lake

Besides the functions that DuckDB or Spark has, there are `seconds(ns)`, exact seconds of nanoseconds, and `quotient(a,
b)`, with nine digits. What the reports are made of has names too: `lives` (all messages, those that wait too),
`attempts` (all deliveries, those in flight too), `ended_messages` and `ended_deliveries` (as qmailanalog counts them),
`received` and `waiting` (messages that were received, and that wait), `handed_in` (messages of queue-smtpd, each with
its life in the queue). spark/queue_report/reports/views/ has their texts.

The reports from `overall` to `sendmail` are qmailanalog's, with its names and its rules: a message is born at its
`info` line, a mangled report is a deferral, addresses are folded to lower case, and a message counts when it has ended
and its `info` line is in the log. qmailanalog rounds its numbers to six digits (5.79869e+09); these are not rounded.
Where the programs of qmailanalog differ from their documentation, these follow the documentation: `ddist` compares
delays as numbers, not as text, and counts equal ones in the average.

A class says whose trouble a failure or deferral is, and so who can correct it:

| class | trouble |
|---|---|
| `mailbox` | no such recipient |
| `full` | the mailbox is full |
| `size` | the message is too large |
| `domain` | the domain does not exist, or takes no mail |
| `sender` | the sender was refused |
| `rate` | greylisting and limits |
| `spam` | refused as spam |
| `tls` | TLS |
| `policy` | relaying, authentication, SPF, DMARC |
| `network` | the network |
| `system` | their host is out of order |
| `protocol` | the SMTP protocol |
| `content` | the content |
| `line_ends` | a bare LF or CR (550 5.6.11) |
| `local` | our own programs |
| `other` | none of these |

An RFC 3463 code decides the class if it is specific enough, otherwise words of the text do.

The reports from `refusals` on are about the [SMTP server](smtp-server.md). They are empty unless its log is built
into the lake too ([how](logs.md#read-the-logs)).

The examples are of one small queue, with `--limit 5` if they would be longer. A line that ends with a backslash
continues on the next line.

## All reports

"""


def document(examples: Mapping[str, str]) -> str:
    """Return docs/reports.md; examples: by report, the table that it prints."""
    contents = "".join(_wrapped(f"- [{each.name}](#{each.name}): {each.title}", "  ") for each in REPORTS.values())
    sections = "".join(_section(report, examples.get(report.name, "")) for report in REPORTS.values())
    return INTRODUCTION + contents + sections


def written_examples() -> dict[str, str]:
    """Return the examples in docs/reports.md, as the program prints them."""
    return {name: text.replace(FOLD, "") for name, text in EXAMPLE.findall(REPORTS_MD.read_text())}


def _section(report: Report, example: str) -> str:
    columns = "".join(_wrapped(f"- `{name}`: {meaning}", "  ") for name, meaning in report.columns.items())
    shown = "".join(_folded(line) for line in example.splitlines(keepends=True))
    return f"\n## {report.name}\n\n{_wrapped(f'{report.title}. {report.about}')}\n{columns}\n```\n{shown}```\n"


def _wrapped(text: str, indent: str = "") -> str:
    lines = textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def _folded(line: str) -> str:
    """Return a line of an example, folded before a space where it is too long."""
    start = 0
    while len(line) - start > WIDTH:
        end = line.rfind(" ", start + 1, start + WIDTH - len(FOLD))
        end = end if end > start else start + WIDTH - len(FOLD)
        line = line[:end] + FOLD + line[end:]
        start = end + 2
    return line


if __name__ == "__main__":
    # --text takes the examples as they are.
    if "--text" not in sys.argv:
        from support.spark.report_examples import make_examples

        made = make_examples()
    else:
        made = written_examples()
    REPORTS_MD.write_text(document(made))
