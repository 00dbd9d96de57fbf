"""What the rules find in the lines of a block: rows that are complete, and counts of lines."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from queue_report.match.reasons import MANGLED, NOTHING, Said, describe
from queue_report.match.rows import TEXT_MAX, Columns, Rows, add_address, add_facts, column_of, fill
from queue_report.match.state import Facts, Message
from queue_report.schema.columns import LEVEL

# Takes a line: the state (changed as the line says), what was found (added to), the stamp, the values of the fields.
Rule: TypeAlias = Callable[..., None]
# A row of the table of lines (grammar.py): the kind that a line is counted under, its template, and the rule that takes
# it; None: it is counted, no more.
LineRow: TypeAlias = tuple[str, str, Rule | None]

# A row by column name, but for host and queue; texts may be bytes.
Row: TypeAlias = dict[str, Any]
# With the end and the outcome.
MessageRow: TypeAlias = tuple[Message, int, str]
# key, id, delivery, address, start, done, result, reason, facts; done and reason may be None.
DeliveryRow: TypeAlias = tuple[str, int, int, bytes, int, int | None, bytes, bytes | None, Facts]
# From when until when (ns), and levels, a row each.
Stretches: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]


class Found:
    """Rows that are complete, and counts: lines by kind. rows: of the tables that have few, by table."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.messages: list[MessageRow] = []
        self.deliveries: list[DeliveryRow] = []
        self.stretches: list[Stretches] = []
        self.rows: defaultdict[str, list[Row]] = defaultdict(list)

    def add_alert(self, at: int, kind: str, text: bytes) -> None:
        shown = text[: 4 * TEXT_MAX].decode(errors="ignore")[:TEXT_MAX]
        # Its words are separated by spaces, those of a reason by `_`.
        folded = describe(shown.replace(" ", "_").encode()).template
        self.rows["alerts"].append({"time_ns": at, "kind": kind, "text": shown, "template": folded})

    def take(self, place: Mapping[str, str]) -> Rows:
        """Return the rows of each table that has some, and forget them. place: host and queue."""
        columns: dict[str, Columns] = {}
        if self.messages:
            columns["messages"] = _messages(self.messages)
        if self.deliveries:
            columns["deliveries"] = _deliveries(self.deliveries)
        if self.stretches:
            columns["intervals"] = _intervals(self.stretches)
        for table, rows in self.rows.items():
            columns[table] = {name: [row.get(name) for row in rows] for name in {name for row in rows for name in row}}
        for found in (self.messages, self.deliveries, self.stretches, self.rows):
            found.clear()
        return {table: fill(table, each, place, len(next(iter(each.values())))) for table, each in columns.items()}


def _messages(found: list[MessageRow]) -> Columns:
    messages = [row[0] for row in found]
    columns: Columns = {
        "id": [one.number for one in messages],
        "key": [one.key for one in messages],
        "done_ns": column_of(found, 1),
        "first_ns": [one.first_ns for one in messages],
        "successes": [one.successes for one in messages],
        "failures": [one.failures for one in messages],
        "deferrals": [one.deferrals for one in messages],
        "recipients": [one.recipients() for one in messages],
        "bounce_qp": [one.bounce_qp for one in messages],
        "bounce_of": [one.bounce_of for one in messages],
        "outcome": column_of(found, 2),
    }
    add_facts(columns, [one.facts for one in messages])
    return columns


def _deliveries(found: list[DeliveryRow]) -> Columns:
    names = ("key", "id", "delivery", "address", "start_ns", "done_ns", "result", "reason", "facts")
    columns: Columns = {name: column_of(found, place) for place, name in enumerate(names)}
    said = list(map(_say, columns["result"], columns["reason"]))
    for place, name in enumerate(("template", "code", "class")):
        columns[name] = column_of(said, place)
    add_address(columns, columns.pop("address"))
    add_facts(columns, columns.pop("facts"))
    return columns


def _say(result: bytes, reason: bytes | None) -> Said:
    if result == b"success" or result == b"lost":
        return NOTHING
    return MANGLED if reason is None else describe(reason)


def _intervals(found: list[Stretches]) -> Columns:
    begin, until, level = (np.concatenate(part) for part in zip(*found, strict=True))
    columns = {name: np.ascontiguousarray(level[:, place]) for place, name in enumerate(LEVEL)}
    return {"at_ns": begin, "until_ns": until} | columns
