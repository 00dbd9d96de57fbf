"""Spark and DuckDB give the same answers, to the byte: every report, of a lake of odd rows and of an empty one."""

import io
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from queue_base.errors import Failure, Permanent
from spark.commands.forms import print_result
from spark.reports import REPORTS
from spark.reports.duckdb_engine import DuckEngine
from spark.reports.engine import Engine, Result
from spark.reports.report import Report, View
from spark.reports.spark_engine import SparkEngine
from support.spark.extreme_rows import NOW, extreme_rows
from support.spark.lake_rows import LakeRows, ns
from support.spark.odd_rows import T, odd_rows

pytestmark = [pytest.mark.together, pytest.mark.timeout(900)]

VIEWS = (
    View(),
    View(since=ns(T + 1), until=ns(T + 86_400), host="it's", domain="x.example", limit=20),
)
MOMENT = View(at=ns(T + 3_601), domain="y.example")


def printed(engine: Engine, report: Report, view: View) -> tuple[str, ...]:
    """Return what a report prints, in csv and in json, or the words of its failure."""
    try:
        found = engine.report(report, view)
        rows = list(found.rows)
    except Failure as failure:
        return (str(failure),)
    forms = []
    for form in ("csv", "json"):
        out = io.StringIO()
        print_result(Result(found.names, found.kinds, iter(rows)), form, out)
        forms.append(out.getvalue())
    return (*forms, " ".join(found.kinds))


def differences(spark: SparkSession, lake: Path, views: tuple[View, ...]) -> list[str]:
    duckdb, other = DuckEngine(str(lake)), SparkEngine(spark, str(lake))
    wrong = []
    for report in REPORTS.values():
        for view in (*views, MOMENT) if report.momentary else views:
            expected, got = printed(duckdb, report, view), printed(other, report, view)
            if expected != got:
                pairs = zip("\n".join(expected).split("\n"), "\n".join(got).split("\n"), strict=False)
                first = next((f"{one!r} but {two!r}" for one, two in pairs if one != two), "another number of lines")
                wrong.append(f"{report.name} {view}: {first}")
    return wrong


def test_every_report_of_odd_rows_is_the_same_by_both_engines(spark: SparkSession, tmp_path: Path) -> None:
    odd_rows().write(tmp_path / "lake")
    assert differences(spark, tmp_path / "lake", VIEWS) == []


def test_every_report_of_extreme_times_and_numbers_is_the_same_by_both_engines(
    spark: SparkSession, tmp_path: Path
) -> None:
    extreme_rows().write(tmp_path / "lake")
    assert differences(spark, tmp_path / "lake", (View(at=ns(NOW)),)) == []


def test_every_report_of_an_empty_lake_is_the_same_by_both_engines(spark: SparkSession, tmp_path: Path) -> None:
    LakeRows().write(tmp_path / "lake")
    assert differences(spark, tmp_path / "lake", (View(),)) == []


def test_a_question_of_ones_own_is_answered_alike(spark: SparkSession, tmp_path: Path) -> None:
    odd_rows().write(tmp_path / "lake")
    sql = """
        select
          host, date, start, done is null as running, cast(bytes as decimal(30, 2)) as size, seconds(done_ns - start_ns)
        from deliveries order by host, start_ns, key, delivery, recipient, queue"""
    first, second = DuckEngine(str(tmp_path / "lake")).query(sql), SparkEngine(spark, str(tmp_path / "lake")).query(sql)
    assert (first.kinds, list(first.rows)) == (second.kinds, list(second.rows))
    assert first.kinds == ("text", "date", "timestamp", "boolean", "decimal", "decimal")


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("selct 1", "selct is no question; begin with select"),
        ("select nothing from messages", "[UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ("select 1 from nowhere", "[TABLE_OR_VIEW_NOT_FOUND]"),
        ("select 1 +", "[PARSE_SYNTAX_ERROR]"),
    ],
)
def test_a_question_that_spark_cannot_answer_is_refused_in_one_line(
    spark: SparkSession, tmp_path: Path, sql: str, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    LakeRows().write(tmp_path / "lake")
    with pytest.raises(Permanent) as caught:
        SparkEngine(spark, str(tmp_path / "lake")).query(sql)
    text = str(caught.value)
    assert text.startswith("unable to run the statement: ") and why in text and "\n" not in text
    assert capfd.readouterr() == ("", "")
