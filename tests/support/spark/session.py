"""The Spark session that all tests of one process share: it takes seconds to start, so nobody has one of his own."""

import functools

from pyspark.sql import SparkSession

from spark.session import start_session


@functools.cache
def session() -> SparkSession:
    """Start Spark in this process as queue-report does, but small."""
    settings = {
        "spark.driver.memory": "1500m",
        "spark.sql.shuffle.partitions": "2",
        # Each test is a little work of another kind: the better compiler's own work would never pay.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    return start_session("local[2]", settings)
