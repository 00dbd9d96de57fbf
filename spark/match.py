"""From events to messages, deliveries and intervals: one batch."""

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from spark.schema import Tables
from spark.sources import Plan, State


class Batch(NamedTuple):
    """What a batch adds, to be written as it is: rows for messages, deliveries and so on; `pending` replaces all.

    deliveries lack template, code and class: spark.reasons.describe(deliveries) adds them. state: for the manifest.
    counts: by "host/queue" lines read by kind (quarantined ones under `quarantine`). close() frees what Spark keeps.
    """

    messages: DataFrame
    deliveries: DataFrame
    intervals: DataFrame
    pending: DataFrame
    quarantine: DataFrame
    state: State
    counts: dict[str, dict[str, int]]
    close: Callable[[], None]


def match(events: DataFrame, pending: DataFrame, stored: Tables | None = None) -> Batch:
    """Return what the events make of what was pending. `stored` is looked at only where lines may be read again."""
    raise NotImplementedError


def make_batch(session: SparkSession, plan: Plan, stored: Tables | None) -> Batch:
    """Run a plan: read, parse (events go to files in plan.staging, so that lines are read once), match.

    stored: the lake's tables as they are (pending is where the batch starts), None for a new lake. The DataFrames of
    the result read from plan.staging; write them, then close(), then remove it.
    """
    raise NotImplementedError
