"""The Spark session that all tests of one process share: it takes seconds to start, so nobody has one of his own."""

import functools

from pyspark.sql import SparkSession

from spark.session import start_session


@functools.cache
def session() -> SparkSession:
    """Start Spark in this process as queue-report does, but small."""
    return start_session("local[2]", {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"})
