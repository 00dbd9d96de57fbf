"""From events to messages, deliveries and intervals: one batch."""

import copy
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark.lake import schema
from spark.lake.schema import Tables
from spark.logs.plan import Plan, State
from spark.logs.streams import Numbers, Stream, number_streams, with_names, with_numbers
from spark.runtime.local import make_table
from spark.windows.blocks import Block, add_run, count_kinds, gather, number_runs, overlap
from spark.windows.bounces import add_links, link
from spark.windows.intervals import find_intervals
from spark.windows.known import mark_known
from spark.windows.lifetime import find_lives
from spark.windows.pair import pair
from spark.windows.quarantine import place_lines
from spark.windows.read import read_lines
from spark.windows.stage import of_kinds, write_parts, write_staged

_BYTES_A_PARTITION = 96 << 20


class Batch(NamedTuple):
    """What a batch adds, to be written as it is: rows for messages, deliveries and so on; `pending` replaces all.

    deliveries lack template, code and class: reasons.describe(deliveries) adds them. state: for the manifest.
    counts: by "host/queue" lines read by kind (quarantined ones under `quarantine`).
    """

    messages: DataFrame
    deliveries: DataFrame
    intervals: DataFrame
    pending: DataFrame
    quarantine: DataFrame
    lines: DataFrame
    state: State
    counts: dict[str, dict[str, int]]


class Matched(NamedTuple):
    """What match makes; a Batch says more."""

    messages: DataFrame
    deliveries: DataFrame
    intervals: DataFrame
    pending: DataFrame


def match(
    events: DataFrame,
    pending: DataFrame,
    partitions: int,
    streams: Mapping[Stream, Mapping[int, Block]],
    numbers: Numbers,
    staging: str,
    careful: bool = False,
) -> Matched:
    """Return what the events make of what was pending. Rows that several tables are made of are written to staging.

    careful: some events may be there a second time. Without it they are not looked for, since that takes long; but
    what they lead to is noticed, and then all is done again, carefully.
    """
    doubts: list[Observation] = []
    paired = lived = sampled = None
    if not careful and not overlap(streams):
        doubts = [paired, lived, sampled] = [Observation() for _ in range(3)]
    fresh = events.filter("NOT known")
    before = with_numbers(pending, numbers)
    runs, last_runs = number_runs(events, streams, numbers, not doubts)
    starts = add_run(of_kinds(fresh, "start", "done"), runs)
    deliveries = pair(starts, before, last_runs, partitions, paired)
    lives = find_lives(fresh, deliveries, before, partitions, lived)
    samples = find_intervals(of_kinds(fresh, "status", "exiting"), before, partitions, sampled)
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(write_parts, samples.withColumn("part", F.lit("samples")), f"{staging}/samples")
        lives = write_parts(lives.withColumn("part", _part()), f"{staging}/lives")
        samples = writing.result()
    if any(one.get["doubtful"] for one in doubts):
        return match(events, pending, partitions, streams, numbers, staging, careful=True)
    return _divide(with_names(lives, numbers), with_names(samples, numbers), pending)


def _part() -> Column:
    """Return who reads a row of find_lives: `starts` deliveries, `ends` messages, `both` these or bounces too."""
    start = F.col("kind").isin("start", "orphan")
    bounce = (F.col("kind") == "bounce") | F.col("tells")
    return F.when(bounce | (start & F.col("is_last")), "both").when(start, "starts").otherwise("ends")


def _divide(lives: DataFrame, samples: DataFrame, pending: DataFrame) -> Matched:
    """Return the tables that these rows make."""
    links, waiting = link(lives.filter("part = 'both'"), pending)
    messages = add_links(lives.filter("part <> 'starts' AND is_last"), links)
    # Most messages have one recipient; others more.
    place = ["host", "queue", "key"]
    more = lives.filter("part <> 'ends' AND more").groupBy(*place).agg(F.collect_set("hashed").alias("rest"))
    several = messages.filter("others").join(more, place).withColumn("seen", F.array_union("seen", "rest"))
    messages = messages.filter("NOT others").unionByName(several.drop("rest"))
    messages = messages.withColumn("recipients", F.size("seen").cast("long"))
    messages = messages.withColumn("done_ns", F.coalesce("end_ns", "next_ns"))
    flights = _flights(lives.filter("part <> 'ends' AND kind IN ('start', 'orphan')"))
    open_ones = (
        messages.filter("done_ns IS NULL").withColumn("what", F.lit("message")),
        flights.filter("result IS NULL").withColumn("what", F.lit("delivery")),
        samples.filter("until_ns IS NULL").withColumns({"what": F.lit("status"), "first_ns": F.col("at_ns")}),
        waiting,
    )
    still = _fit(open_ones[0], schema.PENDING)
    for one in open_ones[1:]:
        still = still.unionByName(_fit(one, schema.PENDING))
    return Matched(
        _fit(messages.filter("done_ns IS NOT NULL").withColumn("outcome", _outcome()), schema.MESSAGES, "done_ns"),
        _fit(flights.filter("result IS NOT NULL"), _UNDESCRIBED, "done_ns", "start_ns"),
        _fit(samples.filter("until_ns IS NOT NULL"), schema.INTERVALS, "at_ns"),
        still,
    )


def _flights(rows: DataFrame) -> DataFrame:
    """Return deliveries, with what was known of the message when each started: in an earlier batch, for some."""
    before = F.col("flight")
    known = {name: F.when(before.isNotNull(), before[name]).otherwise(F.col(name)) for name in schema.OF_MESSAGE}
    return rows.withColumns({"start_ns": F.col("time_ns")} | known)


_UNDESCRIBED = StructType([field for field in schema.DELIVERIES if field.name not in ("template", "code", "class")])


def _outcome() -> Column:
    failed = (F.col("failures") > 0) | F.col("bounce_qp").isNotNull()
    ended = F.coalesce(F.col("fate"), F.when(~failed, "delivered").when(F.col("successes") > 0, "partly"))
    return F.when(F.col("end_ns").isNull(), "lost").otherwise(F.coalesce(ended, F.lit("bounced")))


def _fit(rows: DataFrame, wanted: StructType, *ends: str) -> DataFrame:
    """Return rows with the columns of a table: those that are missing made of others, or null. ends: what dates it."""
    missing = {}
    for name in wanted.names:
        if name in rows.columns:
            continue
        if f"{name}_ns" in wanted.names and f"{name}_ns" in rows.columns:
            missing[name] = _timestamp(f"{name}_ns")
        elif name == "domain" and "recipient" in rows.columns:
            address = F.col("recipient")
            missing[name] = F.when(address.contains("@"), F.lower(F.substring_index(address, "@", -1))).when(
                address.isNotNull(), ""
            )
        elif name == "date":
            missing[name] = F.to_date(_timestamp(*ends))
    return rows.withColumns(missing).to(wanted)


def _timestamp(*nanoseconds: str) -> Column:
    time = F.coalesce(*nanoseconds)
    # In whole numbers: a double does not hold them. div rounds towards zero, microseconds go down.
    return F.timestamp_micros(F.call_function("div", time - F.pmod(time, F.lit(1000)), F.lit(1000)))


def make_batch(session: SparkSession, plan: Plan, stored: Tables | None) -> Batch:
    """Run a plan: read, parse (events go to files in plan.staging, so that lines are read once), match.

    stored: the lake's tables as they are (pending is where the batch starts), None for a new lake. The DataFrames of
    the result read from plan.staging: write them, then remove it.
    """
    numbers = number_streams(plan.state)
    staged = write_staged(read_lines(session, plan, numbers), plan.staging)
    streams = gather(staged, numbers)
    pending = make_table(session, [], schema.PENDING) if stored is None else stored.pending
    cores = session.sparkContext.defaultParallelism
    partitions = max(1, min(cores, plan.bytes >> 20), -(-plan.bytes // _BYTES_A_PARTITION))
    state = copy.deepcopy(plan.state)
    staged, careful = mark_known(staged, None if stored is None else stored.lines, streams, numbers, state)
    matched = match(staged.filter("wrong IS NULL"), pending, partitions, streams, numbers, plan.staging, careful)
    quarantine = place_lines(staged.filter("NOT known"), plan, streams, numbers, state)
    quarantine = _fit(quarantine, schema.QUARANTINE, "time_ns")
    lines = with_names(staged.filter("print IS NOT NULL AND NOT known"), numbers)
    lines = _fit(lines, schema.LINES, "time_ns")
    return Batch(*matched, quarantine, lines, state, count_kinds(streams))
