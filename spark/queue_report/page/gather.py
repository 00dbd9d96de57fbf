"""From a lake to a page's data: the statements of page/sql, asked through an engine, and typed rows of them.

A statement has no parameters of the engine's: {names} in it are whole numbers, or constants of ours, which are filled
in here. Its columns that end with _ns are nanoseconds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from importlib.resources import files
from itertools import accumulate, islice
from typing import Any, TypeVar

from queue_report.page.data import (
    AGES,
    Alert,
    Attempts,
    Channel,
    Conserved,
    Day,
    Deferral,
    Delays,
    Domain,
    Episode,
    Guesses,
    HandedIn,
    OnDemand,
    Origin,
    PageData,
    Problem,
    Quarantined,
    Reason,
    Received,
    Refusal,
    SmtpClient,
    Stop,
    Stream,
    Waiting,
)
from queue_report.page.scales import DAY, HOUR, Bins, make_bins
from queue_report.reports import REPORTS
from queue_report.reports.engine import Engine, Result
from queue_report.reports.report import View

NANO = 1_000_000_000

# Rows of a page. What is left out is said where it stands.
DOMAINS, REASONS, DESTINATIONS, EACH, ORIGINS, WAITING, OLDEST = 25, 40, 20, 3, 10, 15, 10
EPISODES, PLOTTED, PROBLEMS, ALERTS, QUARANTINED, CLIENTS = 500, 6, 50, 10, 20, 15

# The stamps that a page can show, from 1970 to 2191: sums of what is between and of a few years fit 64 bits.
LATEST = 7 * 10**18
_YEARS = 2 * 10**18
_NEVER = 9 * 10**18

ROW = TypeVar("ROW")


def gather(engine: Engine, view: View, made: float, only: str, phase: Callable[[str], None]) -> PageData:
    """Return the data of a page. made: the time (Unix, s). phase is called with what is looked at."""
    return _Gathering(engine, view, phase).gather(made, only)


def statement(name: str, numbers: Mapping[str, int | str]) -> str:
    """Return the text of a statement of ours with its numbers filled in."""
    return files("queue_report.page").joinpath("sql", f"{name}.sql").read_text().format_map(numbers)


class _Gathering:
    """Asks one page's questions."""

    def __init__(self, engine: Engine, view: View, phase: Callable[[str], None]) -> None:
        self._engine = engine
        self._view = view
        # The tables of a host and a domain; the statements cut them to the window themselves.
        self._place = View(host=view.host, domain=view.domain)
        self._phase = phase

    def gather(self, made: float, only: str) -> PageData:
        ends = list(self._query("span", {}).rows)
        streams = [Stream(host, queue, first / NANO, last / NANO) for host, queue, first, last in ends]
        begin, last = self._window([row[2] for row in ends], [row[3] for row in ends])
        end = begin if last is None else last
        lake, counts = self._engine.lake, self._engine.counts()
        data = PageData(
            made, lake.made, lake.number, only, begin / NANO, end / NANO, None if last is None else end / NANO,
            make_bins(begin / NANO, end / NANO), streams,
            {name: kinds for name, kinds in counts.items() if self._view.host in (None, name.split("/")[0])},
        )  # fmt: skip
        return data if last is None else replace(data, **self._rows(data, begin, last))

    def _window(self, firsts: Sequence[int], lasts: Sequence[int]) -> tuple[int, int | None]:
        """Return from when to when (ns) the page goes: where there is a log, within what was asked for.

        The end is None where there is nothing.
        """
        since, until = self._view.since, self._view.until
        begin = max(min(firsts, default=0), 0 if since is None else since, 0)
        end = min(max(lasts, default=-1), LATEST if until is None else until, LATEST)
        return (begin, end) if begin <= end else (min(begin, LATEST), None)

    def _rows(self, data: PageData, begin: int, last: int) -> dict[str, Any]:
        """Return what a page has beyond its window."""
        bins, end = data.bins, last + 1
        start, length = bins.start * NANO, bins.length * NANO
        window = {"begin": begin, "end": end}
        binned = {"begin": start, "end": end, "length": length}
        queue = {"at": last, "floor": begin - _YEARS, "most": WAITING, "few": OLDEST}
        origins = {**window, "middle": end - DAY * NANO, "most": ORIGINS, "few": ORIGINS // 2}
        today, yesterday = self._days(data.end - data.begin, end)
        conserved = list(self._report("conservation", Conserved))
        return {
            "received": self._ask("received", Received, binned),
            "attempts": self._ask("attempts", Attempts, binned),
            "today": today,
            "yesterday": yesterday,
            "delays": self._ask("delays", Delays, {**window, "bin": f"div(done_ns - {start}, {length})"}),
            "all_delays": next(iter(self._ask("delays", Delays, {**window, "bin": 0})), None),
            "domains": self._ask("domains", Domain, {**window, "most": DOMAINS}),
            "reasons": self._ask("reasons", Reason, {**window, "most": REASONS}),
            "deferrals": self._ask("deferrals", Deferral, {**window, "most": DESTINATIONS, "each": EACH}),
            "senders": self._ask("origins", Origin, {**origins, "origin": "lower(sender)"}),
            "users": self._ask("origins", Origin, {**origins, "origin": "cast(uid as string)"}),
            "waiting": sorted(self._ask("waiting", _waiting, queue), key=_place),
            "backlog": self._backlog(bins, {**binned, "number": bins.number, "floor": begin - _YEARS, "never": _NEVER}),
            **self._channels(window, binned),
            **self._episodes(window),
            "conserved": conserved,
            "problems": self._problems() if any(row.problems for row in conserved) else (),
            "alerts": self._ask("alerts", Alert, {**window, "middle": end - DAY * NANO, "most": ALERTS}),
            "clients": self._first("clients", SmtpClient),
            "refusals": self._first("refusals", Refusal),
            "guesses": self._first("auth-failures", Guesses),
            "handed_in": list(self._report("conservation-sessions", HandedIn)),
            "on_demand": self._first("ondemand", OnDemand),
            "stops": self._ask("stops", Stop, window),
            "quarantined": self._ask("quarantine", Quarantined, {"each": 5, "most": QUARANTINED}),
        }

    def _days(self, length: float, end: int) -> tuple[Day | None, Day | None]:
        """Return the last day of the page, and the one before it; None for one that the page does not cover."""
        found: list[dict[str, int]] = [{}, {}]
        numbers = {"middle": end - DAY * NANO, "before": end - 2 * DAY * NANO, "end": end}
        for recent, result, number in self._ask("changes", _row, numbers):
            if result in Day._fields:
                found[recent][result] = number
        # A log of two days may lack the first minutes.
        return Day(**found[1]) if length >= DAY - HOUR else None, Day(**found[0]) if length >= 2 * DAY - HOUR else None

    def _backlog(self, bins: Bins, numbers: Mapping[str, int | str]) -> list[list[int]]:
        """Return for each age how many messages waited at the end of each bin."""
        steps = [[0] * (bins.number + 1) for _ in AGES]
        for age, i, step in self._ask("backlog", _row, numbers):
            if i < bins.number:
                steps[age][i + 1] += step
        return [list(accumulate(row))[1:] for row in steps]

    def _channels(self, window: Mapping[str, int], binned: Mapping[str, int]) -> dict[str, list[Channel]]:
        """Return all queues' channels as a whole, and those of the busiest queues by bin."""
        found = [one for row in self._ask("channels", _row, window) for one in _channels(row)]
        found.sort(key=lambda one: (-one.full / one.seconds, -one.average, one.host, one.queue))
        queues = dict.fromkeys((one.host, one.queue) for one in found)
        plotted = set(islice(queues, PLOTTED))
        # A host at a time: others' files are not even opened.
        rows = (
            row for host in sorted({host for host, _ in plotted}) for row in self._ask("flights", _row, binned, host)
        )
        flights = [one for row in rows if (row[0], row[1]) in plotted for one in _channels(row)]
        return {"channels": found, "flights": flights}

    def _episodes(self, window: Mapping[str, int]) -> dict[str, Any]:
        """Return the worst episodes, and how many there are."""
        rows = self._ask("episodes", _row, {**window, "most": EPISODES})
        return {"episodes": [Episode(*row[:-1]) for row in rows], "all_episodes": rows[0][-1] if rows else 0}

    def _problems(self) -> list[Problem]:
        return list(islice(self._report("conservation-messages", Problem), PROBLEMS + 1))

    def _first(self, name: str, row: Callable[..., ROW]) -> list[ROW]:
        return list(islice(self._report(name, row), CLIENTS))

    def _ask(
        self, name: str, row: Callable[..., ROW], numbers: Mapping[str, int | str], host: str | None = None
    ) -> list[ROW]:
        result = self._query(name, numbers, host)
        scaled = [column.endswith("_ns") for column in result.names]
        return [row(*map(_plain, values, scaled)) for values in result.rows]

    def _query(self, name: str, numbers: Mapping[str, int | str], host: str | None = None) -> Result:
        self._phase(name)
        place = self._place if host is None else self._place._replace(host=host)
        return self._engine.query(statement(name, numbers), place)

    def _report(self, name: str, row: Callable[..., ROW]) -> Iterator[ROW]:
        """Yield a report's rows, of the columns that the row has fields for."""
        self._phase(name)
        result = self._engine.report(REPORTS[name], self._view)
        places = [result.names.index(field.rstrip("_")) for field in row._fields]  # type: ignore[attr-defined]
        for values in result.rows:
            yield row(*(_plain(values[place], False) for place in places))


def _row(*values: Any) -> tuple[Any, ...]:
    return values


def _plain(value: Any, nanoseconds: bool) -> Any:
    """Return a value of a result as the page has it: times and durations in seconds, whole numbers as int."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC).timestamp()
    if nanoseconds:
        return int(value) / NANO
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else float(value)
    return value


def _waiting(*values: Any) -> Waiting:
    return Waiting._make((*values[:13], values[13:]))


def _place(row: Waiting) -> tuple[Any, ...]:
    """Return what the rows of each part are put in order by: the oldest messages, and the largest of all else."""
    first = (row.oldest, row.host, row.queue, row.id) if row.part == "oldest" else (-row.recipients,)
    return row.part, *first, row.state, row.class_, row.reason, row.domain


def _channels(row: Sequence[Any]) -> Iterator[Channel]:
    """Yield the local and the remote channel of a row of channels.sql or flights.sql, where there is any."""
    host, queue, i, seconds, *rest = row
    for name, (work, peak, limit, full) in (("local", rest[:4]), ("remote", rest[4:])):
        if seconds and limit is not None:
            yield Channel(host, queue, name, i, seconds, work / seconds, peak, limit, full)
