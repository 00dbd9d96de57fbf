"""Rows that the rules found, in Arrow."""

from collections.abc import Mapping

import numpy as np

from queue_report.match.reasons import MANGLED, NOTHING, Describer, Said
from queue_report.match.rows import LEVEL, NAMES, TEXT_MAX, Columns, Rows, add_address, add_facts, column_of, fill
from queue_report.match.rules import AlertRow, DeliveryRow, Found
from queue_report.match.state import Message

# One for all matchers of a process: reasons are the same everywhere.
_DESCRIBER = Describer()


def to_rows(found: Found, place: Mapping[str, str]) -> Rows:
    """Return what was found as the rows of its tables; of those that it does not have, None. place: host and queue."""
    rows: Rows = dict.fromkeys(NAMES)
    if found.messages:
        rows["messages"] = fill("messages", _messages(found.messages), place, len(found.messages))
    if found.deliveries:
        rows["deliveries"] = fill("deliveries", _deliveries(found.deliveries), place, len(found.deliveries))
    if found.intervals or found.stretches:
        columns = _intervals(found)
        rows["intervals"] = fill("intervals", columns, place, len(columns["at_ns"]))
    found.smtp.add_to(rows, place)
    found.on_demand.add_to(rows, place)
    if found.alerts:
        rows["alerts"] = fill("alerts", _alerts(found.alerts), place, len(found.alerts))
    return rows


def _messages(found: list[tuple[Message, int, str]]) -> Columns:
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


def _say(result: str, reason: bytes | None) -> Said:
    if result == "success" or result == "lost":
        return NOTHING
    return MANGLED if reason is None else _DESCRIBER.describe(reason)


def _intervals(found: Found) -> Columns:
    stretches = list(found.stretches)
    if found.intervals:
        begins, ends, levels = zip(*found.intervals, strict=True)
        stretches.append((np.array(begins, np.int64), np.array(ends, np.int64), np.array(levels, np.int32)))
    begin, until, level = (np.concatenate(part) for part in zip(*stretches, strict=True))
    columns = {name: np.ascontiguousarray(level[:, place]) for place, name in enumerate(LEVEL)}
    return {"at_ns": begin, "until_ns": until} | columns


def _alerts(found: list[AlertRow]) -> Columns:
    texts = [text[: 4 * TEXT_MAX].decode(errors="ignore")[:TEXT_MAX] for _, _, text in found]
    return {
        "time_ns": column_of(found, 0),
        "kind": column_of(found, 1),
        "text": texts,
        # Its words are separated by spaces, those of a reason by `_`.
        "template": [_DESCRIBER.describe(text.replace(" ", "_").encode()).template for text in texts],
    }
