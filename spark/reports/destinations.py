"""When each destination was dead, slow or deferring, and how much mail it held (what an episode is: episodes.py)."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.lake.schema import Tables
from spark.reports.episodes import DESTINATION, EPISODE, LEAST, episodes
from spark.reports.facts import LIFE, attempts, lives, recipients, time_of
from spark.reports.qshape import last_moment
from spark.reports.report import Report, View, seconds

_FOREVER = 2**63 - 1


def destinations(tables: Tables, view: View) -> DataFrame:
    last = last_moment(tables) or 0
    # Few rows, which are needed three times: kept, so that the deliveries are read once.
    found = episodes(tables.deliveries, last).localCheckpoint()
    end = F.coalesce("ended_ns", F.lit(last))
    if view.since is not None:
        found = found.where(end >= view.since)
    if view.until is not None:
        found = found.where(F.col("began_ns") < view.until)
    kind = F.when(F.col("slow"), "slow").when(F.col("dead"), "dead").otherwise("deferring")
    return (
        found.join(_held(tables, found), EPISODE, "left")
        .select(
            *DESTINATION,
            kind.alias("kind"),
            time_of(F.col("began_ns")).alias("began"),
            time_of(F.col("ended_ns")).alias("ended"),
            seconds(end - F.col("began_ns")).alias("seconds"),
            "attempts",
            "messages",
            "held",
            "reason",
        )
        .orderBy("began", *DESTINATION, "kind")
    )


def _held(tables: Tables, found: DataFrame) -> DataFrame:
    """Return the episodes' keys with held: the messages that waited for the destination at some time of it.

    That is, those that had begun to wait before it ended less those that had stopped before it began: two running
    counts at two moments, whatever the number of episodes and messages.
    """
    none, slow, began = F.lit(0).cast("long"), F.lit(None).cast("boolean"), F.lit(None).cast("long")
    one = F.lit(1).cast("long")
    steps = F.array(
        _event(F.col("from_ns"), one, none, slow, began),
        F.when(F.col("to_ns").isNotNull(), _event(F.col("to_ns"), none, one, slow, began)),
    )
    questions = F.array(
        *(
            _event(ns, none, none, F.col("slow"), F.col("began_ns"))
            for ns in (F.col("began_ns"), F.coalesce("ended_ns", F.lit(_FOREVER)))
        )
    )
    happened = _waits(tables, found).select(*DESTINATION, F.explode(F.array_compact(steps)).alias("e"))
    asked = found.select(*DESTINATION, F.explode(questions).alias("e"))
    events = happened.union(asked).select(*DESTINATION, "e.*", F.col("e.slow").isNotNull().alias("question"))
    # A question comes before what happens at the same time.
    so_far = (
        Window.partitionBy(*DESTINATION)
        .orderBy("ns", F.desc("question"))
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    counted = events.select(
        *EPISODE, "question", F.sum("begun").over(so_far).alias("begun"), F.sum("over").over(so_far).alias("over")
    )
    answers = counted.where("question").groupBy(*EPISODE)
    return answers.agg((F.max("begun") - F.min("over")).alias("held"))


def _event(ns: Column, begun: Column, over: Column, slow: Column, began_ns: Column) -> Column:
    names = ("ns", "begun", "over", "slow", "began_ns")
    columns = (ns, begun, over, slow, began_ns)
    return F.struct(*(column.alias(name) for column, name in zip(columns, names, strict=True)))


def _waits(tables: Tables, found: DataFrame) -> DataFrame:
    """Return from when to when (null: still) each message waited for a destination that had an episode."""
    tried = attempts(tables).join(found.select(*DESTINATION).distinct(), DESTINATION, "left_semi")
    each = recipients(tried).groupBy(*LIFE, "domain").agg(
        F.when(~F.bool_or("open"), F.max("settled_ns")).alias("settled_ns")
    )  # fmt: skip
    facts = lives(tables).select(*LIFE, F.coalesce("birth_ns", "first_ns").alias("from_ns"), "done_ns")
    end = F.coalesce("settled_ns", "done_ns")
    # Not before the beginning, which a clock that was set back could make of it.
    end = F.when(end.isNotNull(), F.greatest(F.col("from_ns"), end))
    return each.join(facts, LIFE).select(*DESTINATION, "from_ns", end.alias("to_ns"))


REPORT = Report(
    name="destinations",
    title="Destinations in trouble",
    about=f"One row an episode that reaches into the window, in order of its beginning. An episode is {LEAST} or more "
    "bad deliveries to a domain, in order of their end, without a good one between them and without a day between two. "
    "Bad is a deferral, or a failure with a temporary code (given up after waiting too long) or of class network; good "
    "is a success or any other failure. For kind slow, bad is a success or such a failure that took 60 s or more, good "
    "one that took less, and deferrals do not count. It begins at the end of the first bad delivery, and ends at the "
    "end of the next good one; where none comes within a day of the last bad one, at the end of that. What queue-send "
    "defers without an attempt has no delivery, and shows in held only.",
    columns={
        "host": "host",
        "queue": "queue",
        "domain": "domain of the recipients",
        "kind": "dead: every bad delivery was of class network; deferring: some host answered; slow",
        "began": "beginning, UTC",
        "ended": "end, UTC; null where it goes on at the end of the log",
        "seconds": "how long it took, up to the end of the log where it goes on",
        "attempts": "bad deliveries",
        "messages": "messages that had one",
        "held": "messages that waited for the domain at some time of it, whether tried then or not",
        "reason": "template of the first bad delivery's reason; null for slow where it was a success",
    },
    function=destinations,
    windowed=False,
    spaced=frozenset({"reason"}),
)
