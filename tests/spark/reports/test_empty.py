"""Reports on a lake in which nothing has happened yet."""

from queue_report.reports.queues import QUEUES
from queue_report.reports.traffic import TRAFFIC
from support.spark.lake_rows import LakeRows, ask

# The others have no row.
ROWS = {"daytime": 24, "qshape": 1, "qshape-senders": 1, "delays": 1}


def test_reports_on_an_empty_lake_are_empty_or_zero() -> None:
    engine = LakeRows().engine()
    found = {report.name: ask(report.name, engine) for report in (*TRAFFIC, *QUEUES)}
    assert {name: len(rows) for name, rows in found.items() if rows} == ROWS
    assert found["qshape"] == found["qshape-senders"] == [("TOTAL", *[0] * 11)]
    assert found["delays"] == [(0, *[None] * 8)]
    assert {value for row in found["daytime"] for value in row[1:]} == {0}
