"""What qmailanalog's matchup prints, from the tables: `m` lines (ended messages) and `d` lines (ended deliveries).

Its rules, which its reports rest on (matchup.c): a message is born at its `info`; senders and recipients are folded to
lower case; a recipient is CHANNEL.RECIPIENT, a sender stands in angle brackets; `report mangled` is a deferral for the
reason `report_mangled`; a message without `info` (the log begins later) or without `end` makes no `m` line; a delivery
of a message without `info` counts with 0 bytes, sender `?`, and its own start as birth; one lost in a crash makes no
line.
"""

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.reports.report import NANO, View, day, within
from spark.schema import Tables

LIFE = ["host", "queue", "key"]


class Matched(NamedTuple):
    """messages: host, queue, key, birth_ns, done_ns, bytes, successes, failures, deferrals, sender, qp, uid.

    deliveries: host, queue, key, result (success, failure or deferral), birth_ns, start_ns, done_ns, bytes, sender,
    recipient, qp, uid, reason; qp and uid are null where matchup prints `?`.
    """

    messages: DataFrame
    deliveries: DataFrame


def match_up(tables: Tables, view: View) -> Matched:
    """Return the lines of the view's window. The tables must not be cut to it: a delivery's message may end later."""
    return Matched(ended_messages(within(tables, view)), _deliveries(tables, view))


def ended_messages(tables: Tables) -> DataFrame:
    """Return the `m` lines of all messages in the tables."""
    known = F.col("bytes").isNotNull() & (F.col("outcome") != "lost")
    return tables.messages.where(known).select(
        *LIFE, _birth(tables.messages).alias("birth_ns"), "done_ns", "bytes", "successes", "failures", "deferrals",
        _sender().alias("sender"), "qp", "uid",
    )  # fmt: skip


def ended_deliveries(tables: Tables) -> DataFrame:
    """Return the `d` lines of all deliveries in the tables, without what comes from the message."""
    mangled = F.col("result") == "mangled"
    return tables.deliveries.where(F.col("done_ns").isNotNull()).select(
        *LIFE,
        F.when(mangled, "deferral").otherwise(F.col("result")).alias("result"),
        "start_ns",
        "done_ns",
        F.lower(F.concat("channel", F.lit("."), "recipient")).alias("recipient"),
        F.when(mangled, "report_mangled").otherwise(F.col("reason")).alias("reason"),
    )


def _deliveries(tables: Tables, view: View) -> DataFrame:
    lives = _lives(tables, view)
    return (
        ended_deliveries(within(tables, view))
        .join(lives, LIFE, "left")
        .withColumn("birth_ns", F.coalesce("birth_ns", "start_ns"))
        .withColumn("bytes", F.coalesce("bytes", F.lit(0)))
        .withColumn("sender", F.coalesce("sender", F.lit("?")))
    )


def _lives(tables: Tables, view: View) -> DataFrame:
    """Return every message that a delivery in the window can be of: ended or not, but with its `info`."""
    messages = tables.messages
    if view.since is not None:
        # None ends before its deliveries do. The day more is for clocks that were set back.
        messages = messages.where(F.col("date") >= day(view.since - 86400 * NANO))
    pending = tables.pending.where(F.col("what") == "message")
    both = [
        table.where(F.col("bytes").isNotNull()).select(
            *LIFE, _birth(table).alias("birth_ns"), "bytes", _sender().alias("sender"), "qp", "uid"
        )
        for table in (messages, pending)
    ]
    return both[0].union(both[1])


def _birth(table: DataFrame) -> Column:
    return F.col("info_ns" if "info_ns" in table.columns else "birth_ns")


def _sender() -> Column:
    return F.lower(F.concat(F.lit("<"), "sender", F.lit(">")))
