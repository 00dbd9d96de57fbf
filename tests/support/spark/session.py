"""The Spark session that all tests of one process share: it takes seconds to start, so nobody has one of his own."""

import functools

from pyspark.sql import SparkSession

from queue_report.runtime.session import start_session
from support.plugins.amount import amount

_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@functools.cache
def session() -> SparkSession:
    """Start Spark in this process as queue-report does, but small."""
    settings = {
        "spark.driver.memory": "1500m",
        "spark.sql.shuffle.partitions": "2",
        # Each test is a little work of another kind, so the better compiler's own work would never pay. Without that
        # compiler Java keeps 48 MB of compiled code at most, which Spark fills: it would throw it away and begin anew.
        # The part of the heap for new objects holds what a query's planning makes, nearly all of which goes again.
        "spark.driver.extraJavaOptions": (
            "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xmn500m"
        ),
        # Most of the time goes into planning queries over a few rows. These change no result: filters that Spark infers
        # from others to read less, and its check of its own optimizer after each step.
        "spark.sql.constraintPropagation.enabled": "false",
        "spark.sql.lightweightPlanChangeValidation": "false",
        # Nor does the Java code that Spark makes of a plan, and the plan that it makes anew after each stage. With
        # --exhaustive it makes them, as for users.
        **amount(_INTERPRETED, {}),
    }
    return start_session("local[2]", settings)
