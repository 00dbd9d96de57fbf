"""Exact percentiles of large groups without holding a group in memory.

Nearest rank: the p-th percentile of n values is the smallest one that at least p % of them do not exceed, the
ceil(p n / 100)-th in order. So it is always one of the values (Spark's percentile_disc, R's type 1).
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

# Values are first counted in bins of about 2 %; then only those in bins that hold a wanted rank are put in order.
_BINS_PER_E = 50


def percentiles(frame: DataFrame, by: Sequence[str], values: Sequence[str], shares: Mapping[str, int]) -> DataFrame:
    """Return the columns `by` (none of them null) and, for each value column V and share S: percent, V_S.

    Values are longs; nulls do not count. A group without values has no row; without `by` there is always one row.
    """
    pairs = F.array(*(F.struct(F.lit(value).alias("measure"), F.col(value).alias("value")) for value in values))
    each = frame.select(*by, F.explode(pairs).alias("pair")).select(*by, "pair.measure", "pair.value")
    each = each.where(F.col("value").isNotNull()).withColumn("bin", _bin(F.col("value")))
    bin_keys = [*by, "measure", "bin"]
    ranks = _ranks(each, by, shares)
    # The window looks only at the bins that hold a rank.
    inside = each.join(ranks.select(*bin_keys).distinct(), bin_keys, "left_semi")
    order = Window.partitionBy(*bin_keys).orderBy("value")
    found = inside.withColumn("rank", F.row_number().over(order).cast("long")).join(ranks, [*bin_keys, "rank"])
    chosen = [
        F.max(F.when((F.col("measure") == value) & (F.col("share") == share), F.col("value"))).alias(f"{value}_{share}")
        for value in values
        for share in shares
    ]
    return found.groupBy(*by).agg(*chosen)


def _bin(value: Column) -> Column:
    """Return a number that grows with the value."""
    size = F.floor(F.log(F.abs(value).cast("double") + 1) * _BINS_PER_E).cast("int")
    return F.when(value < 0, -size).otherwise(size)


def _ranks(each: DataFrame, by: Sequence[str], shares: Mapping[str, int]) -> DataFrame:
    """Return by, measure, bin, rank (within that bin, from 1) and share, of each percentile wanted."""
    group = Window.partitionBy(*by, "measure")
    before = group.orderBy("bin").rowsBetween(Window.unboundedPreceding, -1)
    bins = each.groupBy(*by, "measure", "bin").agg(F.count("*").alias("size"))
    bins = bins.withColumns(
        {"before": F.coalesce(F.sum("size").over(before), F.lit(0)), "total": F.sum("size").over(group)}
    )
    wanted = F.array(
        *(
            F.struct(F.lit(share).alias("share"), _nearest(percent).alias("rank"))
            for share, percent in shares.items()
        )
    )
    asked = bins.select("*", F.explode(wanted).alias("asked"))
    here = (F.col("asked.rank") > F.col("before")) & (F.col("asked.rank") <= F.col("before") + F.col("size"))
    return asked.where(here).select(
        *by, "measure", "bin", (F.col("asked.rank") - F.col("before")).alias("rank"), "asked.share"
    )


def _nearest(percent: int) -> Column:
    return F.greatest(F.lit(1), F.call_function("div", F.col("total") * percent + 99, F.lit(100)))
