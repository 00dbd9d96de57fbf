"""From events to messages, deliveries and intervals: one batch."""

import copy
from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.storagelevel import StorageLevel

from spark import schema
from spark.blocks import Block, Stream, add_run, count_kinds, gather, last_runs, number_runs
from spark.bounces import add_links, link
from spark.intervals import find_intervals
from spark.known import mark_known
from spark.lifetime import find_lives
from spark.local import make_table
from spark.pair import pair
from spark.plan import Plan, State
from spark.quarantine import place_lines
from spark.read import read_lines
from spark.schema import Tables
from spark.stage import of_kinds, open_staged, write_staged

_BYTES_A_PARTITION = 96 << 20


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
    lines: DataFrame
    state: State
    counts: dict[str, dict[str, int]]
    close: Callable[[], None]


class Matched(NamedTuple):
    """What match makes; a Batch says more."""

    messages: DataFrame
    deliveries: DataFrame
    intervals: DataFrame
    pending: DataFrame
    close: Callable[[], None]


def match(
    events: DataFrame,
    pending: DataFrame,
    partitions: int = 2,
    streams: dict[Stream, dict[int, Block]] | None = None,
) -> Matched:
    """Return what the events make of what was pending."""
    if "known" not in events.columns:
        events = events.withColumn("known", F.lit(False))
    runs, last, repeats = number_runs(events, gather(events) if streams is None else streams)
    fresh = events.filter("NOT known")
    starts = add_run(of_kinds(fresh, "start", "done"), runs)
    paired = pair(starts, pending, last_runs(events, last), partitions)
    alive = F.coalesce("open", F.lit(True))
    # What was in flight when its message ended belongs to a life that is over.
    orphans = paired.filter(~alive)
    lives = find_lives(fresh, paired.filter(alive).drop("key", "open"), pending, partitions)
    lives = lives.withColumn("key", F.concat_ws(".", "id", "first_ns")).persist(StorageLevel.DISK_ONLY)
    links, waiting = link(lives, pending)
    messages = add_links(lives.filter("is_last"), links)
    messages = messages.withColumn("recipients", F.size("seen").cast("long"))
    messages = messages.withColumn("done_ns", F.coalesce("end_ns", "next_ns"))
    flights = lives.filter("kind = 'start'").withColumn("start_ns", F.col("time_ns"))
    flights = flights.select(*_FLIGHT, "open").unionByName(orphans.select(*_FLIGHT, "open"))
    samples = find_intervals(of_kinds(fresh, "status", "exiting"), pending, partitions)
    open_ones = (
        messages.filter("done_ns IS NULL").withColumn("what", F.lit("message")),
        flights.filter("result IS NULL").withColumn("what", F.lit("delivery")),
        samples.filter("until_ns IS NULL").withColumns({"what": F.lit("status"), "first_ns": F.col("at_ns")}),
        waiting,
    )
    still = _fit(open_ones[0], schema.PENDING)
    for one in open_ones[1:]:
        still = still.unionByName(_fit(one, schema.PENDING))

    def close() -> None:
        lives.unpersist()
        repeats.unpersist()

    return Matched(
        _fit(messages.filter("done_ns IS NOT NULL").withColumn("outcome", _outcome()), schema.MESSAGES, "done_ns"),
        _fit(flights.filter("result IS NOT NULL"), _UNDESCRIBED, "done_ns", "start_ns"),
        _fit(samples.filter("until_ns IS NOT NULL"), schema.INTERVALS, "at_ns"),
        still,
        close,
    )


_FLIGHT = (
    "host", "queue", "key", "id", "delivery", "channel", "recipient", "start_ns", "done_ns", "result", "reason",
)  # fmt: skip
_UNDESCRIBED = StructType([field for field in schema.DELIVERIES if field.name not in ("template", "code", "class")])


def _outcome() -> Column:
    failed = (F.col("failures") > 0) | F.col("bounce_qp").isNotNull()
    ended = F.coalesce(F.col("fate"), F.when(~failed, "delivered").when(F.col("successes") > 0, "partly"))
    return F.when(F.col("end_ns").isNull(), "lost").otherwise(F.coalesce(ended, F.lit("bounced")))


def _fit(rows: DataFrame, wanted: StructType, *ends: str) -> DataFrame:
    """Return rows with the columns of a table: those that are missing made of others, or null. ends: what dates it."""
    columns = []
    for column in wanted:
        name = column.name
        if name in rows.columns:
            value = F.col(name)
        elif f"{name}_ns" in wanted.names and f"{name}_ns" in rows.columns:
            value = _timestamp(f"{name}_ns")
        elif name == "domain" and "recipient" in rows.columns:
            address = F.col("recipient")
            value = F.when(address.contains("@"), F.lower(F.substring_index(address, "@", -1))).when(
                address.isNotNull(), ""
            )
        elif name == "date":
            value = F.to_date(_timestamp(*ends))
        else:
            value = F.lit(None)
        columns.append(value.cast(column.dataType).alias(name))
    return rows.select(*columns)


def _timestamp(*nanoseconds: str) -> Column:
    time = F.coalesce(*nanoseconds)
    # In whole numbers: a double does not hold them. div rounds towards zero, microseconds go down.
    return F.timestamp_micros(F.call_function("div", time - F.pmod(time, F.lit(1000)), F.lit(1000)))


def make_batch(session: SparkSession, plan: Plan, stored: Tables | None) -> Batch:
    """Run a plan: read, parse (events go to files in plan.staging, so that lines are read once), match.

    stored: the lake's tables as they are (pending is where the batch starts), None for a new lake. The DataFrames of
    the result read from plan.staging; write them, then close(), then remove it.
    """
    write_staged(read_lines(session, plan), plan.staging)
    staged = open_staged(session, plan.staging)
    streams = gather(staged)
    pending = make_table(session, [], schema.PENDING) if stored is None else stored.pending
    cores = session.sparkContext.defaultParallelism
    partitions = max(1, min(cores, plan.bytes >> 20), -(-plan.bytes // _BYTES_A_PARTITION))
    state = copy.deepcopy(plan.state)
    staged = mark_known(staged, None if stored is None else stored.lines, streams, state)
    matched = match(staged.filter("wrong IS NULL"), pending, partitions, streams)
    quarantine = place_lines(staged.filter("NOT known"), plan, streams, state)
    quarantine = _fit(quarantine, schema.QUARANTINE, "time_ns")
    lines = _fit(staged.filter("print IS NOT NULL AND NOT known"), schema.LINES, "time_ns")
    return Batch(*matched[:4], quarantine, lines, state, count_kinds(streams), matched.close)
