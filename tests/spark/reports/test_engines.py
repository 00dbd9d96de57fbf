"""Spark and DuckDB give the same answers, to the byte: every report, of a lake of odd rows and of an empty one."""

import io
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from queue_base.errors import Failure, Permanent
from queue_report.commands.forms import print_result
from queue_report.reports import REPORTS
from queue_report.reports.duckdb_engine import DuckEngine
from queue_report.reports.engine import Engine, Result
from queue_report.reports.report import Report, View
from queue_report.reports.spark_engine import SparkEngine
from queue_report.reports.statement import OF_DOMAIN, TABLES, Statement, state
from support.plugins.amount import amount
from support.spark.extreme_rows import NOW, extreme_rows
from support.spark.lake_rows import LakeRows, ns
from support.spark.odd_rows import T, odd_rows

pytestmark = [pytest.mark.together, pytest.mark.timeout(900)]

VIEWS = (
    View(),
    View(since=ns(T + 1), until=ns(T + 86_400), host="it's", domain="x.example", limit=20),
)
MOMENT = View(at=ns(T + 3_601), domain="y.example")


@pytest.fixture(scope="module")
def odd_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of odd rows."""
    lake = tmp_path_factory.mktemp("odd") / "lake"
    odd_rows().write(lake)
    return lake


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


def own_texts(statement: Statement) -> list[tuple[str, str]]:
    """Return the texts of a statement but for those that cut the tables."""
    return [("", statement.select), *(each for each in statement.views if each[0] not in (*TABLES, OF_DOMAIN))]


def reads_view(report: Report, view: View) -> bool:
    """Return whether a report's own texts are others for a view, and not only the rows of its tables.

    For the rest it is enough that the tables are cut alike, which is asserted of each table by itself.
    """
    return own_texts(state(report, view._replace(limit=None))) != own_texts(state(report, View()))


def differences(
    spark: SparkSession, lake: Path, views: tuple[View, ...], reports: Sequence[Report] = tuple(REPORTS.values())
) -> list[str]:
    """Return where the engines differ, report by report."""
    wrong = []
    with closing(DuckEngine(str(lake))) as duckdb, closing(SparkEngine(spark, str(lake))) as other:
        for report in reports:
            others = [view for view in views[1:] if reads_view(report, view)]
            every = [views[0], *others, *([MOMENT] if report.momentary else [])]
            # The last one's texts have those of the others in them.
            for view in amount(every[-1:], every):
                expected, got = printed(duckdb, report, view), printed(other, report, view)
                if expected != got:
                    pairs = zip("\n".join(expected).split("\n"), "\n".join(got).split("\n"), strict=False)
                    first = next((f"{a!r} but {b!r}" for a, b in pairs if a != b), "another number of lines")
                    wrong.append(f"{report.name} {view}: {first}")
    return wrong


def test_every_report_of_odd_rows_is_the_same_by_both_engines(spark: SparkSession, odd_lake: Path) -> None:
    # Spark needs a second or two for each, so the usual run has a quarter. The next test has another one.
    assert differences(spark, odd_lake, VIEWS, [*REPORTS.values()][:: amount(4, 1)]) == []


@pytest.mark.exhaustive
def test_every_report_of_extreme_times_and_numbers_is_the_same_by_both_engines(
    spark: SparkSession, tmp_path: Path
) -> None:
    extreme_rows().write(tmp_path / "lake")
    assert differences(spark, tmp_path / "lake", (View(at=ns(NOW)),)) == []


def test_every_report_of_an_empty_lake_is_the_same_by_both_engines(spark: SparkSession, tmp_path: Path) -> None:
    # Spark plans each report anew, which takes it half a second. test_empty.py asks DuckDB for all of them.
    LakeRows().write(tmp_path / "lake")
    every = [*REPORTS.values()]
    assert differences(spark, tmp_path / "lake", (View(),), amount(every[1::4], every)) == []


@pytest.mark.parametrize("view", VIEWS, ids=["all", "cut"])
@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_the_same_rows_in_both_engines(
    spark: SparkSession, odd_lake: Path, table: str, view: View
) -> None:
    found = []
    for engine in (DuckEngine(str(odd_lake)), SparkEngine(spark, str(odd_lake))):
        result = engine.query(f"select * from {table}", view)
        found.append((result.kinds, sorted(map(repr, result.rows))))
    assert found[0] == found[1]


def test_a_question_of_ones_own_is_answered_alike(spark: SparkSession, odd_lake: Path) -> None:
    sql = """
        select
          host, date, start, done is null as running, cast(bytes as decimal(30, 2)) as size, seconds(done_ns - start_ns)
        from deliveries order by host, start_ns, key, delivery, recipient, queue"""
    first, second = DuckEngine(str(odd_lake)).query(sql), SparkEngine(spark, str(odd_lake)).query(sql)
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
