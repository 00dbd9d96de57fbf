"""From files to lines in order."""

from pyspark.sql import DataFrame, SparkSession

from spark.sources import Plan


def read_lines(session: SparkSession, plan: Plan) -> DataFrame:
    """Return the plan's lines: host, queue, seq (orders the lines of a stream), torn, value."""
    raise NotImplementedError
