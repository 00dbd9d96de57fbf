"""Exact percentiles of large groups without holding a group in memory.

Nearest rank: the p-th percentile of n values is the smallest one that at least p % of them do not exceed, the
ceil(p n / 100)-th in order. So it is always one of the values (Spark's percentile_disc, R's type 1).
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.reports.report import spread

# Values are first counted in bins of about 2 %; then only those in bins that hold a wanted rank are put in order.
_BINS_PER_E = 50


def percentiles(frame: DataFrame, by: Sequence[str], values: Sequence[str], shares: Mapping[str, int]) -> DataFrame:
    """Return the columns `by` (none of them null) and, for each value column V and share S: percent, V_S.

    Values are longs; nulls do not count. A group without values has no row; without `by` there is always one row.
    The values are looked at once already here, to find the bins.
    """
    # Numbers all of them, by which Spark groups several times faster than by names.
    pairs = [F.struct(F.lit(i).alias("measure"), F.col(value).alias("value")) for i, value in enumerate(values)]
    each = frame.select(*by, F.explode(F.array(*pairs)).alias("pair")).select(*by, "pair.measure", "pair.value")
    each = each.where(F.col("value").isNotNull()).withColumn("bin", _bin(F.col("value")))
    bin_keys = [*by, "measure", "bin"]
    wanted = spread(_wanted(each, by, shares))
    order = Window.partitionBy(*bin_keys).orderBy("value")
    ranked = each.join(wanted, bin_keys).withColumn("rank", F.row_number().over(order).cast("long"))
    found = ranked.where(F.array_contains("ranks", F.col("rank")))
    chosen = [
        F.max(F.when((F.col("measure") == i) & (F.col(f"rank_{share}") == F.col("rank")), F.col("value"))).alias(
            f"{value}_{share}"
        )
        for i, value in enumerate(values)
        for share in shares
    ]
    return found.groupBy(*by).agg(*chosen)


def _bin(value: Column) -> Column:
    """Return a number that grows with the value."""
    size = F.floor(F.log(F.abs(value).cast("double") + 1) * _BINS_PER_E).cast("int")
    return F.when(value < 0, -size).otherwise(size)


def _wanted(each: DataFrame, by: Sequence[str], shares: Mapping[str, int]) -> DataFrame:
    """Return the bins that hold a wanted rank: by, measure, bin, for each share the rank within that bin (from 1; null:
    it is in another), and all these ranks as an array."""
    group = Window.partitionBy(*by, "measure")
    before = group.orderBy("bin").rowsBetween(Window.unboundedPreceding, -1)
    bins = each.groupBy(*by, "measure", "bin").agg(F.count("*").alias("size"))
    bins = bins.withColumns(
        {"before": F.coalesce(F.sum("size").over(before), F.lit(0)), "total": F.sum("size").over(group)}
    )
    ranks = {}
    for share, percent in shares.items():
        rank = _nearest(percent) - F.col("before")
        ranks[f"rank_{share}"] = F.when((rank > 0) & (rank <= F.col("size")), rank)
    bins = bins.withColumns(ranks).withColumn("ranks", F.array_compact(F.array(*ranks)))
    return bins.where(F.size("ranks") > 0).select(*by, "measure", "bin", *ranks, "ranks")


def _nearest(percent: int) -> Column:
    return F.greatest(F.lit(1), F.call_function("div", F.col("total") * percent + 99, F.lit(100)))
