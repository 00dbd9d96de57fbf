"""A lake read by DuckDB: without pyspark, whatever its name, by questions of one's own, by the script of a report."""

import io
import subprocess
import sys
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queue_base.errors import Permanent, Temporary
from queue_report.commands.forms import print_result
from queue_report.reports import REPORTS
from queue_report.reports.choice import choose_engine
from queue_report.reports.duckdb_engine import DuckEngine
from queue_report.reports.report import View
from queue_report.reports.script import write_script
from support.spark.lake_rows import LakeRows, ask, ns
from support.spark.odd_rows import T, odd_rows
from support.spark.packaged import pack

ROOT = Path(__file__).parents[3]
# Runs queue-report as where only the extra `report` is installed.
ALONE = """\
import sys
sys.modules.update(dict.fromkeys(("pyspark", "py4j", "numpy", "pyarrow", "pandas")))
sys.path.insert(0, sys.argv[1])
from queue_report.main import main
sys.exit(main(["queue-report", *sys.argv[2:]]))
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake in a directory whose name DuckDB would take for a pattern."""
    place = tmp_path_factory.mktemp("lakes") / "it's [a] *lake"
    odd_rows().write(place)
    return place


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", ALONE, str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def told(*arguments: str) -> str:
    """Return the one line with which an order is refused for good."""
    said = run(*arguments)
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (100, "", 1), said.stderr
    return said.stderr


def printed(lake: Path, name: str, view: View) -> str:
    out = io.StringIO()
    print_result(DuckEngine(str(lake)).report(REPORTS[name], view), "csv", out)
    return out.getvalue()


def test_a_report_needs_neither_pyspark_nor_java_nor_numpy_nor_pyarrow(lake: Path) -> None:
    said = run("show", "senders", "--lake", str(lake), "--format", "csv")
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout == printed(lake, "senders", View())


def test_the_texts_of_reports_are_found_in_a_zip_file_too(lake: Path, tmp_path: Path) -> None:
    code, _ = pack(tmp_path)
    command = [sys.executable, "-c", ALONE, str(code), "show", "days", "--lake", str(lake), "--format", "csv"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert (said.stdout, said.stderr) == (printed(lake, "days", View()), "")


def test_a_host_is_taken_as_its_directory_names_it(lake: Path) -> None:
    hosts = {row[0] for row in DuckEngine(str(lake)).query("select distinct host from messages").rows}
    assert hosts == {"mx1", "it's", "a[1]*", "b%20=c"}
    for host in hosts:
        assert {row[1] for row in ask("sendmail", DuckEngine(str(lake)), View(host=host))} == {host}


def test_a_question_of_ones_own_is_answered_in_each_form(lake: Path) -> None:
    sql = "select host, count(*) as n, seconds(1500000000) as s from deliveries where host = 'mx1' group by host;"
    number = next(DuckEngine(str(lake)).query("select count(*) from all_deliveries where host = 'mx1'").rows)[0]
    forms = {form: run("sql", sql, "--lake", str(lake), "--format", form).stdout for form in ("table", "csv", "json")}
    assert forms.pop("table").split() == ["host", "n", "s", "mx1", str(number), "1.500000"]
    assert forms == {
        "csv": f"host,n,s\nmx1,{number},1.500000000\n",
        "json": f'[\n{{"host": "mx1", "n": {number}, "s": 1.500000000}}\n]\n',
    }


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("selct 1", 'syntax error at or near "selct"'),
        ("select nothing from messages", 'Referenced column "nothing" not found'),
        ("select 1 from nowhere", "Table with name nowhere does not exist"),
        ("select 1; select 2", "it is 2 statements; give one"),
        ("", "it is 0 statements; give one"),
        ("create table t (a int)", "create is no question; begin with select"),
        ("install httpfs", "install is no question; begin with select"),
        ("copy messages to '/dev/null'", "copy is no question; begin with select"),
        ("select cast('x' as int)", "Could not convert string 'x' to INT32"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused_in_one_line(lake: Path, sql: str, why: str) -> None:
    said = told("sql", sql, "--lake", str(lake))
    assert said.startswith("queue-report: fatal: unable to run the statement: ") and why in said


def test_values_of_every_kind_are_what_a_result_says(lake: Path) -> None:
    sql = """
        select
          170141183460469231731687303715884105727::hugeint, cast(5 as decimal(38, 0)), 1.50::decimal(5, 2), 0.5::double,
          timestamptz '2026-11-20 10:00:00+01', date '2026-11-20', true, [1, null], {'a': 'b'}, interval 1 day, null"""
    found = DuckEngine(str(lake)).query(sql)
    kinds = "bigint bigint decimal double timestamp date boolean text text text text"
    assert found.kinds == tuple(kinds.split())
    row = next(found.rows)
    assert row[:5] == (2**127 - 1, 5, Decimal("1.50"), 0.5, datetime(2026, 11, 20, 9))
    assert type(row[1]) is int
    assert row[7:] == ("[1, null]", '{"a": "b"}', "1 day, 0:00:00", None)


def test_two_results_of_one_engine_are_read_side_by_side(lake: Path) -> None:
    engine = DuckEngine(str(lake))
    first, second = (engine.report(REPORTS["sendmail"], View(host=host)) for host in ("mx1", "it's"))
    pairs = list(zip(first.rows, second.rows, strict=False))
    assert {(one[1], two[1]) for one, two in pairs} == {("mx1", "it's")}


@pytest.mark.parametrize("name", REPORTS)
def test_the_script_that_show_prints_gives_the_report(lake: Path, name: str) -> None:
    view = View(since=ns(T), host="it's", domain="x.example", limit=30)
    script = write_script(REPORTS[name], view, "duckdb", str(lake))
    with duckdb.connect() as shell:
        # The shell of DuckDB runs statement by statement, and prints what the last one finds.
        for statement in shell.extract_statements(script):
            shell.execute(statement)
        rows = shell.fetchall()
    expected = list(DuckEngine(str(lake)).report(REPORTS[name], view).rows)
    assert [tuple(map(plain, row)) for row in rows] == expected


def plain(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) and value.as_tuple().exponent == 0 else value


def test_the_script_without_a_lake_says_what_it_needs() -> None:
    said = run("show", "overall", "--sql", "--engine", "spark", "--host", "mx1")
    assert said.returncode == 0 and "create or replace temporary function quotient(" in said.stdout
    assert "host = 'mx1'" in said.stdout and " tables(session, " in said.stdout
    said = run("show", "overall", "--sql")
    assert "-- It needs the tables all_messages all_deliveries" in said.stdout


def test_the_tables_are_those_of_the_newest_manifest_only(tmp_path: Path) -> None:
    rows = LakeRows()
    rows.message("1.1", T, T + 1)
    rows.write(tmp_path / "lake")
    for stray in tmp_path.glob("lake/messages/*/*"):
        (stray / "000002-0000.parquet").write_bytes(b"left by a build that died")
    [(number,)] = DuckEngine(str(tmp_path / "lake")).query("select count(*) from messages").rows
    assert number == 1


def test_a_file_that_is_gone_is_trouble_that_may_pass(tmp_path: Path) -> None:
    rows = LakeRows()
    rows.message("1.1", T, T + 1)
    rows.write(tmp_path / "lake")
    for path in tmp_path.glob("lake/tbl=messages/*/*"):
        path.unlink()
    with pytest.raises(Temporary, match=r"^unable to show overall: No files found that match"):
        ask("overall", DuckEngine(str(tmp_path / "lake")))


@pytest.mark.parametrize("place", ["nothing", "."])
def test_where_there_is_no_lake_it_is_said(tmp_path: Path, place: str) -> None:
    with pytest.raises(Permanent, match="there is no lake of queue-report"):
        DuckEngine(str(tmp_path / place))


def test_an_engine_is_chosen_by_where_the_lake_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [choose_engine(lake) for lake in ("lake", "/a/lake", "file:///a/lake", "hdfs://a/lake", "s3a://a/b")] == [
        "duckdb", "duckdb", "duckdb", "spark", "spark"
    ]  # fmt: skip
    assert choose_engine("lake", "spark") == "spark"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert choose_engine("lake") == "spark"


def test_duckdb_that_is_not_installed_is_named(lake: Path) -> None:
    blocked = ALONE.replace('"pyspark"', '"duckdb"')
    command = [sys.executable, "-c", blocked, str(ROOT), "show", "overall", "--lake", str(lake), "--engine", "duckdb"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (said.returncode, said.stdout) == (100, "")
    assert said.stderr.endswith("; install it with bin/setup-suite DIRECTORY report, then run this again\n")


def test_where_neither_engine_is_installed_both_are_named(lake: Path) -> None:
    blocked = ALONE.replace('"pyspark"', '"duckdb", "pyspark"')
    command = [sys.executable, "-c", blocked, str(ROOT), "show", "overall", "--lake", str(lake)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (100, "", 1)
    assert "bin/setup-suite DIRECTORY report, or spark, " in said.stderr


@pytest.fixture(scope="module")
def calculator() -> DuckEngine:
    return LakeRows().engine()


@settings(max_examples=100, deadline=None)
@given(a=st.integers(-(10**27), 10**27), b=st.integers(0, 10**18))
def test_a_quotient_is_rounded_once_half_away_from_zero(calculator: DuckEngine, a: int, b: int) -> None:
    with localcontext() as context:
        context.prec = 80
        exact = None if b == 0 else (Decimal(a) / b).quantize(Decimal("1e-9"), ROUND_HALF_UP)
    if b == 0 or abs(a) >= b * 10**18:
        exact = None
    assert list(calculator.query(f"select quotient({a}, {b})").rows) == [(exact,)]
