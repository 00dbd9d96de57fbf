"""From lines to events, by the grammar of LOGS.md. What does not fit it is not guessed at: it goes to quarantine."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.grammar import TEMPLATES, Template, read_template
from spark.schema import EVENTS

PARSED = (*EVENTS.names, "wrong", "line", "print")
QUARANTINED = ("host", "queue", "seq", "time_ns", "wrong AS reason", "line AS text")
TEXT_MAX = 1000  # Characters that quarantine keeps of a line.
_TAI_LOW = 10  # Low 32 bits of 1970's label 2^62 + 10, with the 10 s that TAI was ahead.
_EPOCH = (1 << 62) + _TAI_LOW
_LABEL = r"^@[0-9a-f]{24} "
_FOREIGN = r"^[^ ]{25} [!-9;-~]+: (alert|warning|fatal): "  # PROGRAM: alert: …, from another program's stderr.


def parse(lines: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return events (schema.EVENTS) and what could not be read (host, queue, seq, time_ns, reason, text)."""
    parsed = parse_lines(lines)
    quarantined = parsed.filter("wrong IS NOT NULL").selectExpr(*QUARANTINED)
    return parsed.filter("wrong IS NULL").select(*EVENTS.names), quarantined


def parse_lines(lines: DataFrame) -> DataFrame:
    """Return the columns of schema.EVENTS, wrong (why it is no event, else null), line (its text, else null) and print.

    print: a hash of the line, null where it has no stamp or was cut short: what has one counts once.

    All lines come back, in the order in which they stand in Spark's partitions; `marks` needs that.
    """
    templates = [read_template(kind, template, F.col("words")) for kind, template in TEMPLATES]
    found = _find_time(lines.withColumn("value", F.make_valid_utf8("value"))).withColumn("words", _words())
    found = found.withColumn("kind", F.when(F.col("wrong").isNull(), _find_kind(templates)))
    found = found.withColumn("wrong", F.coalesce("wrong", F.when(F.col("kind").isNull(), "not a line of the log")))
    found = _find_fields(found, templates)
    text = F.when(F.col("wrong").isNotNull(), F.substring("value", 1, TEXT_MAX))
    mark = F.when(F.col("time_ns").isNotNull() & ~F.col("torn"), F.hash("value"))
    return _count_marks(found.withColumns({"line": text, "print": mark})).select(*PARSED)


def _find_time(lines: DataFrame) -> DataFrame:
    """Add time_ns and wrong. Labels from 1970 to 2106 take the short way: one number for seconds and nanoseconds."""
    low = F.when(
        F.substring("value", 1, 9) == "@40000000", F.conv(F.substring("value", 10, 16), 16, -10).cast("long")
    )
    read = lines.withColumn("low", low)
    nanoseconds = F.col("low").bitwiseAND(F.lit(0xFFFFFFFF))
    seconds = F.shiftrightunsigned("low", 32) - _TAI_LOW
    printed = F.lpad(F.lower(F.hex("low")), 16, "0")
    short = (printed == F.substring("value", 10, 16)) & (F.substring("value", 26, 1) == " ")
    short = short & (nanoseconds < 1_000_000_000)
    time = F.when(short, seconds * 1_000_000_000 + nanoseconds).otherwise(_any_time())
    read = read.withColumn("time_ns", time)
    stamped = F.col("value").rlike(_LABEL)
    unread = F.when(stamped, "stamp out of range").otherwise("not stamped")
    wrong = F.when(F.col("torn"), "cut short").when(F.col("time_ns").isNull(), unread)
    return read.withColumn("wrong", wrong)


def _any_time() -> Column:
    """Return the time of any label, null where there is none or 64 bits of nanoseconds do not hold it (1677-2262)."""
    seconds = F.conv(F.substring("value", 2, 16), 16, 10).cast("long") - F.lit(_EPOCH)
    nanoseconds = F.conv(F.substring("value", 18, 8), 16, 10).cast("long")
    sound = seconds.between(-9_223_372_035, 9_223_372_035) & (nanoseconds < 1_000_000_000)
    return F.when(F.col("value").rlike(_LABEL), F.when(sound, seconds * 1_000_000_000 + nanoseconds))


def _find_kind(templates: list[Template]) -> Column:
    """Return the kind of the event that `words` are, null if they are none."""
    word = F.get("words", F.lit(1))
    foreign = F.when(F.col("value").rlike(r" warning: "), "warning").otherwise("alert")
    kind = F.when(F.lit(False), F.lit(None).cast("string"))
    for first in dict.fromkeys(template.first for template in templates):
        these = [template for template in templates if template.first == first]
        found = F.when(these[0].fits, these[0].kind)
        for template in these[1:]:
            found = found.when(template.fits, template.kind)
        kind = kind.when(word == first, found)
    return kind.otherwise(F.when(F.col("value").rlike(_FOREIGN), foreign))


def _find_fields(lines: DataFrame, templates: list[Template]) -> DataFrame:
    """Add what an event of each kind has."""
    found: dict[str, Column] = {}
    for kind, fields in {template.kind: template.fields for template in reversed(templates)}.items():
        for field in fields:
            chain = found.get(field.name, F)
            found[field.name] = chain.when(F.col("kind") == kind, field.value)
    found["kind"] = F.when(F.col("kind") == "mangled", "done").otherwise(F.col("kind"))
    found["result"] = F.when(F.col("kind") == "mangled", "mangled").otherwise(found["result"])
    behind = F.substring("value", F.locate(" ", F.col("value"), 27) + 1, F.lit(1 << 30))
    found["text"] = F.when(F.col("kind").isin("corrupt", "hold", "dest", "inflow", "alert", "warning"), behind)
    return lines.withColumns({name: value for name, value in found.items() if name in EVENTS.names})


def _count_marks(events: DataFrame) -> DataFrame:
    """Add marks: how many rows of its Spark partition before it say that nothing is in flight (zero status, exiting).

    A running count without a sort: each mark is doubled, so the number of a row runs ahead of its number before.
    """
    zero = (F.col("kind") == "status") & (F.col("local_now") == 0) & (F.col("remote_now") == 0)
    mark = F.coalesce((F.col("kind") == "exiting") | zero, F.lit(False))
    copies = F.when(mark, F.array(F.lit(True), F.lit(False))).otherwise(F.array(F.lit(True)))
    doubled = events.withColumn("before", F.monotonically_increasing_id()).select("*", F.explode(copies).alias("first"))
    return doubled.withColumn("marks", F.monotonically_increasing_id() - F.col("before")).filter("first")


def _words() -> Column:
    """Return the words of a line; a sender with spaces in it, which qmail does not print, is one word of `info`."""
    words = F.split("value", " ")
    sender = F.array_join(F.slice(words, F.lit(8), F.size(words) - 11), " ")
    joined = F.concat(F.slice(words, 1, 7), F.array(sender), F.slice(words, -4, 4))
    return F.when((F.size(words) > 12) & (F.get(words, F.lit(1)) == "info"), joined).otherwise(words)
