"""Reports on a lake in which nothing has happened yet."""

import pytest
from pyspark.sql import SparkSession

from spark.reports.queues import QUEUES
from support.spark.lake_rows import LakeRows, ask

pytestmark = pytest.mark.together

# The others have no row.
ROWS = {"daytime": 24, "qshape": 1, "qshape-senders": 1, "delays": 1}


def test_reports_on_an_empty_lake_are_empty_or_zero(spark: SparkSession) -> None:
    tables = LakeRows().tables(spark)
    found = {report.name: ask(report.name, tables) for report in QUEUES}
    assert {name: len(rows) for name, rows in found.items() if rows} == ROWS
    assert found["qshape"] == found["qshape-senders"] == [("TOTAL", *[0] * 11)]
    assert found["delays"] == [(0, *[None] * 8)]
    assert {value for row in found["daytime"] for value in row[1:]} == {0}
