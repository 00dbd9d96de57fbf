"""Which message a bounce reports: `bounce msg N qp Q` comes before the bounce's own `info … from <> qp Q`."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

BOUNCE_SENDERS = ("", "#@[]")


def link(lives: DataFrame, pending: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return links (host, queue, key of a bounce, reports) and the bounces that wait for their info (for pending).

    An info takes the last bounce before it with its qp, unless another took that. lives: of find_lives, with key.
    """
    place = ["host", "queue", "qp"]
    waiting = pending.filter("what = 'bounce'").select(
        "host", "queue", F.col("bounce_qp").alias("qp"), F.lit(-1).cast("long").alias("seq"), "id",
        F.col("first_ns").alias("time_ns"), F.lit("bounce").alias("kind"), "key",
    )  # fmt: skip
    said = lives.filter((F.col("kind") == "bounce") | (F.col("tells") & F.col("sender").isin(*BOUNCE_SENDERS)))
    said = said.select("host", "queue", F.col("bounce").alias("qp"), "seq", "id", "time_ns", "kind", "key")
    order = Window.partitionBy(*place).orderBy("seq")
    rows = said.unionByName(waiting).select(
        "*", F.lag(F.struct("kind", "key")).over(order).alias("before"), F.lead("seq").over(order).alias("next")
    )
    taken = rows.filter("kind = 'info' AND before.kind = 'bounce'")
    links = taken.select("host", "queue", "key", F.col("before")["key"].alias("reports"))
    left = rows.filter("kind = 'bounce' AND next IS NULL").select(
        F.lit("bounce").alias("what"), "host", "queue", "key", "id", F.col("qp").alias("bounce_qp"),
        F.col("time_ns").alias("first_ns"),
    )  # fmt: skip
    return links, left


def add_links(messages: DataFrame, links: DataFrame) -> DataFrame:
    """Fill bounce_of, which may be known from an earlier batch, of those messages that are bounces."""
    bounce = F.coalesce(F.col("sender").isin(*BOUNCE_SENDERS), F.lit(False))
    found = messages.filter(bounce).join(links, ["host", "queue", "key"], "left")
    found = found.withColumn("bounce_of", F.coalesce("bounce_of", "reports")).drop("reports")
    return messages.filter(~bounce).unionByName(found)
