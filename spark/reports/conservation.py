"""Whether every recipient that was accepted was delivered, has failed, or waits; and what does not add up.

Two counts that were made apart are held against each other: what each message says of itself (match.py counts while
it goes through the log) and its deliveries. Messages are those received in the window, followed to their end.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.lake.schema import Tables
from spark.reports.facts import LIFE, attempts, lives, recipients, time_of
from spark.reports.report import Report, View

_STATES = ("delivered", "failed", "pending", "deleted")


def conservation(tables: Tables, view: View) -> DataFrame:
    each = _balanced(tables, view)
    known = F.col("first_ns").isNotNull()
    waits = known & F.col("done_ns").isNull()
    sums = each.withColumn("problems", F.size(_problems())).groupBy("host", "queue").agg(
        F.count_if(known).alias("messages"),
        F.count_if(F.col("done_ns").isNotNull()).alias("ended"),
        F.count_if(waits).alias("waiting"),
        F.count_if(waits & (F.col("recipients") == 0)).alias("untried"),
        F.sum("recipients").alias("recipients"),
        *(F.sum(state).alias(state) for state in _STATES),
        F.sum("repeated").alias("repeated"),
        F.count_if(F.col("problems") > 0).alias("problems"),
    )  # fmt: skip
    return sums.withColumn("difference", F.col("recipients") - _settled()).orderBy("host", "queue")


def problems(tables: Tables, view: View) -> DataFrame:
    found = _balanced(tables, view).select(
        "host", "queue", "key", "sender", "outcome",
        time_of(F.coalesce("birth_ns", "first_ns")).alias("born"), time_of(F.col("done_ns")).alias("ended"),
        F.explode(_problems()).alias("p"),
    )  # fmt: skip
    return found.select("*", "p.problem", "p.count").orderBy("host", "queue", "born", "key", "problem")


def _settled() -> Column:
    return sum((F.col(state) for state in _STATES[1:]), F.col(_STATES[0]))


def _balanced(tables: Tables, view: View) -> DataFrame:
    """Return lives, joined with what their deliveries say; deliveries of no known message have first_ns null.

    Counted in deliveries: found_successes, found_failures, repeated; in recipients: found, and what became of them:
    delivered, failed, pending, deleted, unsettled (undecided is the last three together).
    """
    sums = _sums(tables)
    both = lives(tables).join(sums, LIFE, "full")
    born = F.coalesce("birth_ns", "first_ns")
    if view.since is not None:
        both = both.where(born >= view.since)
    if view.until is not None:
        both = both.where(born < view.until)
    if view.domain is not None:  # Only the deliveries are to that domain, not what a message counted.
        instead = {"recipients": "found", "successes": "found_successes", "failures": "found_failures"}
        both = both.withColumns({name: F.when(born.isNotNull(), F.col(found)) for name, found in instead.items()})
    numbers = ["successes", "failures", "recipients", *sums.columns[len(LIFE) :]]
    both = both.withColumns({name: F.coalesce(name, F.lit(0)) for name in numbers})
    waits = F.col("first_ns").isNotNull() & F.col("done_ns").isNull()
    deleted = F.coalesce(F.col("outcome") == "deleted", F.lit(False))
    # Where the message has ended, all of it was settled: it is open only because the clock was set back.
    on, none = waits | deleted, F.lit(0).cast("long")
    for state in ("delivered", "failed"):
        again = F.col(f"again_{state}")
        both = both.withColumns(
            {
                state: F.col(state) + F.when(on, none).otherwise(again),
                "undecided": F.col("undecided") + F.when(on, again).otherwise(none),
            }
        )
    undecided = F.col("undecided")
    return both.withColumns(
        {
            "pending": F.when(waits, undecided).otherwise(none),
            "deleted": F.when(deleted, undecided).otherwise(none),
            "unsettled": F.when(on, none).otherwise(undecided),
        }
    )


def _sums(tables: Tables) -> DataFrame:
    """Return what the deliveries of each message say. again_*: settled once, and open by its latest attempt."""
    done, good = F.col("successes") + F.col("failures"), F.col("successes") > 0
    is_open = F.col("open")
    tried = recipients(attempts(tables)).select(*LIFE, "successes", "failures", "open").groupBy(*LIFE)
    return tried.agg(
        F.count("*").alias("found"),
        F.sum("successes").alias("found_successes"),
        F.sum("failures").alias("found_failures"),
        F.count_if(~is_open & good).alias("delivered"),
        F.count_if(~is_open & ~good).alias("failed"),
        F.count_if(is_open & good).alias("again_delivered"),
        F.count_if(is_open & (done > 0) & ~good).alias("again_failed"),
        F.count_if(is_open & (done == 0)).alias("undecided"),
        F.sum(F.greatest(done - 1, F.lit(0))).alias("repeated"),
    )


def _problems() -> Column:
    """Return an array of problem and count, empty where all adds up."""
    known = F.col("first_ns").isNotNull()
    lost = F.coalesce(F.col("outcome") == "lost", F.lit(False))
    ended = F.col("done_ns").isNotNull() & ~lost
    whole = F.col("birth_ns").isNotNull() & (F.col("outcome") != "deleted")
    counted = F.col("successes") + F.col("failures")
    seen = F.col("found_successes") + F.col("found_failures")
    wrong = (F.col("successes") != F.col("found_successes")) | (F.col("failures") != F.col("found_failures"))
    found = {
        "unknown message": (~known, F.col("found")),
        "lost": (lost, F.col("undecided")),
        "unsettled": (ended & (F.col("unsettled") > 0), F.col("unsettled")),
        "never tried": (ended & whole & (F.col("recipients") == 0) & (F.col("found") == 0), F.lit(0).cast("long")),
        "recipients differ": (known & (F.col("found") != F.col("recipients")), F.col("found") - F.col("recipients")),
        "deliveries differ": (known & wrong, seen - counted),
    }
    each = [
        F.when(when, F.struct(F.lit(name).alias("problem"), count.alias("count")))
        for name, (when, count) in found.items()
    ]
    return F.array_compact(F.array(*each))


REPORT = Report(
    name="conservation",
    title="Conservation of recipients",
    about="One row a host and queue: recipients = delivered + failed + pending + deleted, or difference says how many "
    "are missing; conservation-messages lists them. Messages are those received in the window (older than the log: "
    "seen first), followed to the end of the log.",
    columns={
        "host": "host",
        "queue": "queue",
        "messages": "messages",
        "ended": "of these, messages that have ended",
        "waiting": "of these, messages that have not",
        "untried": "of those, messages of which nothing was tried yet: the log does not name their recipients",
        "recipients": "recipients by the messages' own count; the same recipient of a message counts once",
        "delivered": "recipients with a success",
        "failed": "recipients with a failure and no success",
        "pending": "recipients of waiting messages whose latest delivery was deferred, or is in flight",
        "deleted": "such recipients of messages that the administrator deleted",
        "difference": "recipients - delivered - failed - pending - deleted; 0 where all adds up",
        "repeated": "deliveries beyond the first that settled a recipient: named twice, or a crash came between",
        "problems": "messages that conservation-messages lists",
    },
    function=conservation,
    windowed=False,
)
PROBLEMS = Report(
    name="conservation-messages",
    title="What does not add up",
    about="One row a message and problem, by host, queue and time. unsettled: it has ended, and count recipients were "
    "neither delivered nor failed. lost: its number was used again and no `end` was logged; count recipients are "
    "undecided. never tried: it has ended without any delivery. recipients differ, deliveries differ: its deliveries "
    "show count more (or fewer, negative) recipients, or successes and failures, than it counted; lines came after "
    "its end, or part of the lake is gone. unknown message: count recipients of a message that the lake does not have.",
    columns={
        "host": "host",
        "queue": "queue",
        "key": "key of the message: its number, a dot, the nanosecond of its first line",
        "sender": "envelope sender; null where it is not known",
        "born": "birth, or else first line, UTC",
        "ended": "end, UTC; null while it waits",
        "outcome": "delivered, bounced, partly, discarded, deleted, lost; null while it waits",
        "problem": "see above",
        "count": "how many recipients or deliveries",
    },
    function=problems,
    windowed=False,
)
