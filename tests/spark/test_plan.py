"""No Python has a part in what is done for a line, in a build or in a report: it would cost more than all else."""

import random
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.lake.build import Order, build
from spark.lake.schema import TABLES, Tables
from spark.lake.storage import Storage
from spark.lake.store import open_tables, read_table
from spark.logs import sources
from spark.logs.streams import number_streams
from spark.reports import REPORTS
from spark.reports.report import View, run
from spark.runtime.progress import Progress
from spark.windows.match import make_batch
from spark.windows.parse import parse_lines
from spark.windows.read import read_lines
from support.spark.log_files import damage, rotated, write_files
from support.spark.log_world import World
from support.spark.spark_plans import executed, plan_of, python_in

pytestmark = pytest.mark.together


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the logs of two hosts, one of them damaged."""
    root = tmp_path_factory.mktemp("plan") / "logs"
    for host in ("a", "b"):
        rng = random.Random(host)
        files = rotated(World(3, host, "main").run(150).lines, rng, 4)
        write_files(root / host / "main", damage(files, rng) if host == "b" else files)
    return root


@pytest.fixture(scope="module")
def built(spark: SparkSession, logs: Path) -> list[str]:
    """Make a lake of those logs in two batches, the second of which begins with what is pending: what Spark ran."""
    part = logs.parent / "part"
    files = sorted((logs / "a" / "main").glob("@*"))[:2]
    write_files(part / "a" / "main", [(path.name, path.read_bytes()) for path in files])
    with executed(spark) as plans:
        for place in (part, logs):
            assert build(spark, Order(str(place), f"{logs.parent}/lake", compact=True), Progress()).rows["messages"]
    return plans


@pytest.fixture(scope="module")
def tables(spark: SparkSession, logs: Path, built: list[str]) -> Tables:
    """Return the tables of that lake."""
    return open_tables(spark, f"{logs.parent}/lake")


def test_no_query_of_a_build_needs_python(built: list[str]) -> None:
    plans = built
    assert any("Scan text" in plan for plan in plans), "the parse is not among them"
    assert any("Window" in plan for plan in plans), "nor is the pairing"
    assert [python_in(plan) for plan in plans] == [set()] * len(plans)


@pytest.mark.exhaustive  # A build's queries, above, are nearly the same.
def test_no_table_of_a_batch_needs_python(spark: SparkSession, logs: Path, tables: Tables, tmp_path: Path) -> None:
    wanted = sources.plan(spark, str(logs), {}, str(tmp_path), None, None)
    parsed = plan_of(parse_lines(read_lines(spark, wanted, number_streams(wanted.state))))
    assert "Scan text" in parsed and not python_in(parsed)
    batch = make_batch(spark, wanted, tables)
    assert {name: python_in(plan_of(getattr(batch, name))) for name in TABLES} == {name: set() for name in TABLES}


# Rows that Java keeps (localCheckpoint); what makes them is among the queries that ran.
KEEPS = ("deferrals", "failures", "successes", "delays", "delays-domains", "delays-hours", "destinations")

NARROW = View(0, 1 << 60, 1_700_000_100 * 10**9, "a", "d1.example", 5)


# All reports are planned, which takes 10 s for each view.
@pytest.mark.parametrize("view", [View(), pytest.param(NARROW, marks=pytest.mark.exhaustive)])
def test_no_report_needs_python(spark: SparkSession, tables: Tables, view: View) -> None:
    with executed(spark) as ran:
        plans = {name: plan_of(run(report, tables, view)) for name, report in REPORTS.items()}
    assert {name for name, plan in plans.items() if "Scan parquet" not in plan} == set()
    kept = {name: {"Scan ExistingRDD"} if name in KEEPS else set() for name in REPORTS}
    assert {name: python_in(plan) for name, plan in plans.items()} == kept
    assert ran and not any(python_in(plan) - {"Scan ExistingRDD"} for plan in ran)


def test_a_table_without_files_needs_none(spark: SparkSession, tmp_path: Path) -> None:
    rows = [read_table(spark, Storage(spark, str(tmp_path)), name, []) for name in TABLES]
    assert [(frame.collect(), frame.schema, python_in(plan_of(frame))) for frame in rows] == [
        ([], TABLES[name], set()) for name in TABLES
    ]


def test_python_is_seen_where_it_is(spark: SparkSession) -> None:
    numbers = spark.range(3)
    frames: dict[str, DataFrame] = {
        "BatchEvalPython": numbers.select(F.udf(lambda n: n, "long", useArrow=False)("id")),
        "Scan ExistingRDD": spark.createDataFrame([(1,)], "n long"),
    }
    for name, frame in frames.items():
        assert name in python_in(plan_of(frame))
        with executed(spark) as plans:
            frame.collect()
        assert any(name in python_in(plan) for plan in plans)
