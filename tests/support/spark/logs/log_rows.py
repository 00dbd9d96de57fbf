"""Rows of the log pipeline's tables as plain tuples, without what follows from another column (dates, microseconds).

The simulation, the reference reader and what Spark stores are all brought to this form, and then compared.
"""

import re
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import pytest


class MessageRow(NamedTuple):
    """A message: schema.MESSAGES. done_ns and outcome are null for one that is pending."""

    host: str
    queue: str
    key: str
    id: int
    qp: int | None
    uid: int | None
    sender: str | None
    bytes: int | None
    birth_ns: int | None
    info_ns: int | None
    done_ns: int | None
    first_ns: int
    successes: int
    failures: int
    deferrals: int
    recipients: int
    bounce_qp: int | None
    bounce_of: str | None
    outcome: str | None


class DeliveryRow(NamedTuple):
    """A delivery: schema.DELIVERIES. done_ns, result and reason are null for one that is in flight."""

    host: str
    queue: str
    key: str
    id: int
    delivery: int
    channel: str
    recipient: str
    domain: str
    start_ns: int
    done_ns: int | None
    result: str | None
    reason: str | None
    qp: int | None
    uid: int | None
    sender: str | None
    bytes: int | None
    birth_ns: int | None
    info_ns: int | None


class IntervalRow(NamedTuple):
    """Deliveries in flight and limits: schema.INTERVALS."""

    host: str
    queue: str
    at_ns: int
    until_ns: int
    local_now: int
    local_limit: int
    remote_now: int
    remote_limit: int


class QuarantineRow(NamedTuple):
    """A line that could not be read; which words name the reason is the pipeline's own matter, but for `cut short`."""

    host: str
    queue: str
    time_ns: int | None
    cut_short: bool
    text: str


@dataclass
class Truth:
    """All tables; `waiting` and `flying` are what is pending. Order does not count."""

    messages: list[MessageRow] = field(default_factory=list)
    deliveries: list[DeliveryRow] = field(default_factory=list)
    intervals: list[IntervalRow] = field(default_factory=list)
    waiting: list[MessageRow] = field(default_factory=list)
    flying: list[DeliveryRow] = field(default_factory=list)
    quarantine: list[QuarantineRow] = field(default_factory=list)

    def add(self, other: "Truth") -> None:
        """Take another stream's rows in."""
        for table in fields(self):
            getattr(self, table.name).extend(getattr(other, table.name))


def differences(expected: Truth, got: Truth, most: int = 4) -> str:
    """Say, table by table, which rows are missing and which are too many; '' where all is the same."""
    said = []
    for table in fields(expected):
        wanted, had = Counter(getattr(expected, table.name)), Counter(getattr(got, table.name))
        for sign, rows in (("missing", wanted - had), ("too many", had - wanted)):
            said += [f"{table.name}: {sign}: {_short(row)}" for row in sorted(rows.elements(), key=repr)[:most]]
            if rows.total() > most:
                said.append(f"{table.name}: {sign}: {rows.total() - most} more")
    return "\n".join(said)


def _short(row: tuple[object, ...]) -> str:
    """Write a row with its long texts shortened."""
    return re.sub(r"(.)\1{9,}", r"\1…", str(row))


def agree(expected: Truth, got: Truth) -> None:
    """Fail with the differences, if there are any."""
    told = differences(expected, got)
    if told:
        pytest.fail(told, pytrace=False)
