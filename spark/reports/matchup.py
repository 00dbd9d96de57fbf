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

from spark.lake.schema import Tables
from spark.reports.facts import LIFE


class Matched(NamedTuple):
    """messages: host, queue, key, birth_ns, done_ns, bytes, successes, failures, deferrals, sender, qp, uid.

    deliveries: host, queue, key, result (success, failure or deferral), birth_ns, start_ns, done_ns, bytes, sender,
    recipient, qp, uid, reason; qp and uid are null where matchup prints `?`.
    """

    messages: DataFrame
    deliveries: DataFrame


def match_up(tables: Tables) -> Matched:
    """Return the lines of the tables."""
    return Matched(ended_messages(tables), ended_deliveries(tables))


def ended_messages(tables: Tables) -> DataFrame:
    """Return the `m` lines of all messages in the tables."""
    known = F.col("bytes").isNotNull() & (F.col("outcome") != "lost")
    return tables.messages.where(known).select(
        *LIFE, F.col("info_ns").alias("birth_ns"), "done_ns", "bytes", "successes", "failures", "deferrals",
        _sender().alias("sender"), "qp", "uid",
    )  # fmt: skip


def ended_deliveries(tables: Tables) -> DataFrame:
    """Return the `d` lines of all deliveries in the tables."""
    mangled, known = F.col("result") == "mangled", F.col("bytes").isNotNull()
    return tables.deliveries.where(F.col("done_ns").isNotNull()).select(
        *LIFE,
        F.when(mangled, "deferral").otherwise(F.col("result")).alias("result"),
        F.when(known, F.col("info_ns")).otherwise(F.col("start_ns")).alias("birth_ns"),
        "start_ns",
        "done_ns",
        F.coalesce("bytes", F.lit(0)).alias("bytes"),
        F.when(known, _sender()).otherwise("?").alias("sender"),
        F.lower(F.concat("channel", F.lit("."), "recipient")).alias("recipient"),
        "qp",
        "uid",
        F.when(mangled, "report_mangled").otherwise(F.col("reason")).alias("reason"),
    )


def _sender() -> Column:
    return F.lower(F.concat(F.lit("<"), "sender", F.lit(">")))
