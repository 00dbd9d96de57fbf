"""From lines to events."""

from pyspark.sql import DataFrame


def parse(lines: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return events (schema.EVENTS) and what could not be read (host, queue, seq, time_ns, reason, text)."""
    raise NotImplementedError
