"""From lines to events, by the grammar of docs/logs.md. What does not fit it goes to quarantine."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.lake.schema import EVENTS
from spark.windows.grammar import FIRST_WORDS, find_fields, find_kind, lacks, line_pattern

PARSED = (*EVENTS.names, "wrong", "line", "print")
TEXT_MAX = 1000  # Characters that quarantine keeps of a line.
_TAI_LOW = 10  # Low 32 bits of 1970's label 2^62 + 10, with the 10 s that TAI was ahead.
_EPOCH = (1 << 62) + _TAI_LOW
_LABEL = r"^@[0-9a-f]{24} "
_FOREIGN = r"^[^ ]{25} [!-9;-~]+: (alert|warning|fatal): "  # PROGRAM: alert: …, from another program's stderr.


def parse_lines(lines: DataFrame) -> DataFrame:
    """Return the columns of schema.EVENTS, wrong (why it is no event, else null), line (its text, else null) and print.

    print: a hash of the line, null where it has no stamp or was cut short: what has one counts once.

    All lines come back, in the order in which they stand in Spark's partitions; `marks` needs that.
    """
    value, words, kind = F.col("value"), F.col("words"), F.col("kind")
    read = lines.withColumn("value", F.make_valid_utf8("value"))
    read = read.withColumns({"fits": value.rlike(line_pattern()), "words": F.split("value", " ")})
    low = F.conv(F.substring("value", 10, 16), 16, -10).cast("long")
    read = read.withColumn("low", F.when(F.substring("value", 1, 9) == "@40000000", low))
    known = F.get("words", F.lit(1)).isin(*FIRST_WORDS)
    foreign = F.when(value.rlike(_FOREIGN) & ~known, F.when(value.rlike(r" warning: "), "warning").otherwise("alert"))
    found = F.when(F.col("fits"), find_kind(words)).otherwise(foreign)
    read = read.withColumns({"kind": found, "time_ns": _find_time()})
    fields = find_fields(words, kind)
    read = read.withColumns({name: field for name, field in fields.items() if name in EVENTS.names})
    unfit = kind.isNull() | lacks(kind, {name: F.col(name) for name in fields if name in EVENTS.names})
    unread = F.when(value.rlike(_LABEL), "stamp out of range").otherwise("not stamped")
    wrong = F.when(F.col("torn"), "cut short").when(F.col("time_ns").isNull(), unread)
    read = read.withColumn("wrong", wrong.when(unfit, "not a line of the log"))
    bad = F.col("wrong").isNotNull()
    behind = F.substring("value", F.locate(" ", value, 27) + 1, F.lit(1 << 30))
    read = read.withColumns(
        {
            "kind": F.when(bad, None).when(kind == "mangled", "done").otherwise(kind),
            "result": F.when(kind == "mangled", "mangled").otherwise(F.col("result")),
            "text": F.when(kind.isin("corrupt", "hold", "dest", "inflow", "alert", "warning"), behind),
            "line": F.when(bad, F.substring("value", 1, TEXT_MAX)),
            "print": F.when(F.col("time_ns").isNotNull() & ~F.col("torn"), F.hash("value")),
        }
    )
    return _count_marks(read).select(*PARSED)


def _find_time() -> Column:
    """Return time_ns. Labels from 1970 to 2106 take the short way: one number for seconds and nanoseconds."""
    low = F.col("low")
    nanoseconds = low.bitwiseAND(F.lit(0xFFFFFFFF))
    seconds = F.shiftrightunsigned(low, 32) - _TAI_LOW
    short = F.col("fits") & (nanoseconds < 1_000_000_000)
    return F.when(short, seconds * 1_000_000_000 + nanoseconds).otherwise(_any_time())


def _any_time() -> Column:
    """Return the time of any label, null where there is none or 64 bits of nanoseconds do not hold it (1677-2262)."""
    seconds = F.conv(F.substring("value", 2, 16), 16, 10).cast("long") - F.lit(_EPOCH)
    nanoseconds = F.conv(F.substring("value", 18, 8), 16, 10).cast("long")
    sound = seconds.between(-9_223_372_035, 9_223_372_035) & (nanoseconds < 1_000_000_000)
    return F.when(F.col("value").rlike(_LABEL), F.when(sound, seconds * 1_000_000_000 + nanoseconds))


def _count_marks(events: DataFrame) -> DataFrame:
    """Add marks: how many rows of its Spark partition before it say that nothing is in flight (zero status, exiting).

    A running count without a sort: each mark is doubled, so the number of a row runs ahead of its number before.
    """
    zero = (F.col("kind") == "status") & (F.col("local_now") == 0) & (F.col("remote_now") == 0)
    mark = F.coalesce((F.col("kind") == "exiting") | zero, F.lit(False))
    copies = F.when(mark, F.array(F.lit(True), F.lit(False))).otherwise(F.array(F.lit(True)))
    doubled = events.withColumn("before", F.monotonically_increasing_id()).select("*", F.explode(copies).alias("first"))
    return doubled.withColumn("marks", F.monotonically_increasing_id() - F.col("before")).filter("first")
