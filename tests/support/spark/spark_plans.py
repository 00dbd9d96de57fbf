"""Plans as Spark runs them, in Spark's own words, and what in one tells that a Python process takes part."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

# User-defined functions of every kind, and rows that a Python process makes (createDataFrame, RDDs).
_PYTHON = re.compile(
    r"\w*(?:EvalPython|MapInPandas|MapInArrow|PythonMapIn|InPandas|InArrow|PythonUD|pythonUDF|PythonData)\w*"
    r"|Scan ExistingRDD"
)


def python_in(plan: str) -> set[str]:
    """Return the names of what needs Python, none for a plan that runs in Java alone."""
    return set(_PYTHON.findall(plan))


def plan_of(frame: DataFrame) -> str:
    """Return the plan by which Spark would make a frame's rows."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


@contextmanager
def executed(spark: SparkSession) -> Iterator[list[str]]:
    """Yield a list that has, behind the block, the plan of each query that ran in it, as it ran."""
    before = {number for number, _ in _executions(spark)}
    plans: list[str] = []
    yield plans
    plans += [plan for number, plan in _executions(spark) if number not in before]


def _executions(spark: SparkSession) -> list[tuple[int, str]]:
    """Return number and plan of the queries that Spark remembers, which are the last thousand."""
    # What it remembers it hears through a queue.
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    queries = (found.apply(number) for number in range(found.size()))
    return [(query.executionId(), str(query.physicalPlanDescription())) for query in queries]
