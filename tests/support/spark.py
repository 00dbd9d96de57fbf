"""The Spark session that all tests of one process share: it takes seconds to start, so nobody has one of his own."""

import functools

from pyspark.sql import SparkSession


@functools.cache
def session() -> SparkSession:
    """Start Spark in this process, small and quiet, and set as queue-report sets it where that changes results."""
    settings = {
        "spark.driver.memory": "1g",
        # Each test is a little work of another kind: the better compiler's own work would never pay.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.files.openCostInBytes": "262144",
    }
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    return started
