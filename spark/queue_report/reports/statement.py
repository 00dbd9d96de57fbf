"""The statements of a report: its SELECT and the views that it names, with the parameters filled in. Pure.

Texts name tables and views after `from` and `join`. The tables with `all_` before their name, such as all_messages, are
the lake's; without it they are cut to what the view of a report asks for. Other views are those of
spark/queue_report/reports/views. Parameters are :since, :until, :at, :host and :domain.
"""

import re
from collections.abc import Sequence
from datetime import date, timedelta
from functools import cache
from typing import NamedTuple

from queue_report.reports.report import Report, View, read_text

TABLES = (
    "messages", "deliveries", "intervals", "alerts", "sessions", "accepted", "refusals", "filters", "stored", "runs",
    "pending", "quarantine",
)  # fmt: skip
# The messages that have a delivery to the view's domain.
OF_DOMAIN = "messages_of_domain"

# What a question may begin with, in either engine.
_QUESTIONS = ("select", "with", "values", "from", "table", "explain", "describe", "desc", "show", "summarize")
_COMMENT = re.compile(r"--[^\n]*")
_SOURCE = re.compile(r"\b(?:from|join)\s+([a-z_]+)", re.IGNORECASE)
_PARAMETER = re.compile(r"(?<![:\w]):(since|until|at|host|domain)\b")
_DAY = 86400 * 10**9


class Statement(NamedTuple):
    """views: name and SELECT of each view, after those that it names. select: the report's own."""

    views: tuple[tuple[str, str], ...]
    select: str

    def script(self) -> str:
        """Return all of it as it can be given to a shell of SQL."""
        made = [f"create or replace temporary view {name} as\n{text};\n" for name, text in self.views]
        return "\n".join([*made, f"{self.select};\n"])

    def tables(self) -> list[str]:
        """Return the tables of the lake that it reads, without `all_`."""
        words = set(re.findall(r"\w+", self.script().lower()))
        return [table for table in TABLES if f"all_{table}" in words]

    def functions(self, creations: Sequence[str]) -> list[str]:
        """Return those of the statements `create … function|macro NAME(…) …` whose function it uses, or another of
        these uses; each function uses only those before it."""
        found: list[str] = []
        text = self.script()
        for create in reversed(creations):
            name = re.findall(r"(?:macro|function) (\w+)\(", create)[0]
            if re.search(rf"\b{name}\s*\(", text):
                found.insert(0, create)
                text += create
        return found


def state(report: Report, view: View) -> Statement:
    """Return the statements of a report, at most view.limit rows."""
    return compose(report.text(), view, report.windowed)


def compose(text: str, view: View, windowed: bool) -> Statement:
    """Return the statements of a SELECT of ours. windowed: its tables are cut to the view's window."""
    views = _views(_SOURCE.findall(_COMMENT.sub("", text)), view, windowed)
    select = fill(_trimmed(text), view)
    if view.limit is not None:
        select += f"\nlimit {view.limit}"
    return Statement(views, select)


def ask(sql: str, view: View | None) -> Statement:
    """Return the statements of anybody's SELECT, which may name the views as it likes. Without a view it has no
    parameters. Raises ValueError for what is no question."""
    word = re.search(r"\w+", _COMMENT.sub("", sql))
    if word is None or word[0].lower() not in _QUESTIONS:
        raise ValueError(f"{word[0] if word else 'nothing'} is no question; begin with select")
    views = _views(re.findall(r"\w+", sql.lower()), view or View(), windowed=True)
    return Statement(views, _trimmed(sql) if view is None else fill(_trimmed(sql), view))


def _views(names: list[str], view: View, windowed: bool) -> tuple[tuple[str, str], ...]:
    """Return the views of these names, and those that they name, each after those that it names."""
    texts = cut_tables(view, windowed)
    found: dict[str, str] = {}
    _add_views(names, texts, found)
    return tuple((name, fill(_trimmed(text), view)) for name, text in found.items())


def _add_views(names: list[str], texts: dict[str, str], found: dict[str, str]) -> None:
    for name in names:
        text = None if name in found else texts.get(name) or _shared_view(name)
        if text is not None:
            _add_views(_SOURCE.findall(_COMMENT.sub("", text)), texts, found)
            found[name] = text


def _trimmed(text: str) -> str:
    return text.strip().removesuffix(";").rstrip()


def fill(text: str, view: View) -> str:
    """Return the text with the view's values as literals."""
    values = view._asdict()
    return _PARAMETER.sub(lambda found: _literal(found[1], values[found[1]]), text)


def _literal(name: str, value: int | str | None) -> str:
    if value is None:
        return f"cast(null as {'string' if name in ('host', 'domain') else 'bigint'})"
    return str(value) if isinstance(value, int) else quote(value)


def quote(text: str) -> str:
    """Return a text as a literal that all engines read alike: none of their escapes is needed in it."""
    if re.fullmatch(r"[^'\\\0-\x1f]*", text):
        return f"'{text}'"
    return f"decode(unhex('{text.encode('utf-8', 'replace').hex()}'), 'UTF-8')"


@cache
def _shared_view(name: str) -> str | None:
    """Return the text of views/NAME.sql; None where there is none."""
    try:
        return read_text(f"views/{name}.sql")
    except OSError:
        return None


def cut_tables(view: View, windowed: bool) -> dict[str, str]:
    """Return the SELECTs of the tables as the view lets see them: rows of its host, of its window, about its domain.

    A message, a delivery or a session is in a window when it ended in it (one without an end: started), an interval
    when it reaches into it, an alert, an accepted message, a refusal, a filter's verdict and a quarantined line by its
    stamp (those without one are in no window). What is pending has no end, so it is cut by host and domain only. A
    message is about a domain when it has a delivery to it, then or earlier.
    """
    host = [] if view.host is None else ["host = :host"]
    since, until = (view.since, view.until) if windowed else (None, None)
    to_domain = [] if view.domain is None else ["domain = :domain"]
    about = [] if view.domain is None else [_about("all_messages")]
    reaching = [
        *(["until_ns > :since"] if since is not None else []),
        *(["at_ns < :until"] if until is not None else []),
    ]
    texts = {
        "messages": _select("all_messages", host + _within("done_ns", since, until) + about),
        "deliveries": _select(
            "all_deliveries", host + _within("coalesce(done_ns, start_ns)", since, until) + to_domain
        ),
        "intervals": _select("all_intervals", host + reaching),
        "alerts": _select("all_alerts", host + _within("time_ns", since, until)),
        "sessions": _select("all_sessions", host + _within("coalesce(done_ns, start_ns)", since, until)),
        "accepted": _select("all_accepted", host + _within("time_ns", since, until)),
        "refusals": _select("all_refusals", host + _within("time_ns", since, until)),
        "filters": _select("all_filters", host + _within("time_ns", since, until)),
        "stored": _select("all_stored", host + _within("done_ns", since, until) + to_domain),
        "runs": _select("all_runs", host + _within("coalesce(done_ns, start_ns)", since, until) + to_domain),
        "quarantine": _select("all_quarantine", host + _within("time_ns", since, until)),
    }
    if view.domain is None:
        return texts | {"pending": _select("all_pending", host)}
    in_flight = ["what = 'delivery'", *to_domain]
    of_domain = ["what in ('stored', 'run')", *to_domain]
    parts = (in_flight, ["what = 'message'", _about("all_pending")], ["what = 'status'"], of_domain)
    keys = "select host, queue, key from "
    return texts | {
        "pending": "\nunion all\n".join(_select("all_pending", host + part) for part in parts),
        OF_DOMAIN: keys + _where("all_deliveries", host + to_domain) + "\nunion\n"
        + keys + _where("all_pending", host + in_flight),
    }  # fmt: skip


def _about(table: str) -> str:
    same = " and ".join(f"d.{name} = {table}.{name}" for name in ("host", "queue", "key"))
    return f"exists (select 1 from {OF_DOMAIN} as d where {same})"


def _within(time: str, since: int | None, until: int | None) -> list[str]:
    # The date is what the table is stored by: files of days outside of the window are not even opened.
    found = []
    if since is not None:
        found += [f"{time} >= :since", f"date >= date '{_day(since)}'"]
    if until is not None:
        found += [f"{time} < :until", f"date <= date '{_day(until)}'"]
    return found


def _day(time_ns: int) -> date:
    """Return the UTC date of a Unix time in nanoseconds, as the tables' date column has it."""
    return date(1970, 1, 1) + timedelta(days=time_ns // _DAY)


def _select(table: str, conditions: list[str]) -> str:
    return f"select * from {_where(table, conditions)}"


def _where(table: str, conditions: list[str]) -> str:
    return table + ("\nwhere " + "\n  and ".join(conditions) if conditions else "")
