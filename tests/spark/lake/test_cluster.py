"""The same build on a Spark cluster, from packaged code and from an installed program: the tables are the same."""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from queue_report.reports.choice import open_engine
from support.processes.suite import program
from support.spark.lake_rows import ask
from support.spark.logs.growing_log import same_rows
from support.spark.logs.log_files import rotated, write_files
from support.spark.logs.log_lake import Lake
from support.spark.logs.log_world import World
from support.spark.packaged import bare_environment, pack, pack_libraries
from support.spark.standalone import SETTINGS, SPARK, Cluster

# A minute each on a busy machine: three JVMs each compile what a build needs. With --exhaustive until it is cheaper.
pytestmark = [pytest.mark.together, pytest.mark.exhaustive, pytest.mark.timeout(900)]

OPTIONS = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of three hosts, one of which has two queues."""
    top = tmp_path_factory.mktemp("logs")
    for number, place in enumerate(("mx1/in", "mx1/out", "mx2/in", "mx3/in")):
        host, queue = place.split("/")
        world = World(number, host, queue).run(120)
        rng = random.Random(number)
        write_files(top / place, rotated(world.lines, rng, 4), ("multilog", "svlogd")[number % 2])
    return top


@pytest.fixture(scope="module")
def expected(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake that this process alone makes."""
    lake = tmp_path_factory.mktemp("local") / "lake"
    Lake(lake).build(logs)
    return lake


def run(words: list[str], environment: dict[str, str], directory: Path) -> str:
    """Run a program in a directory; return what it printed."""
    done = subprocess.run(words, env=environment, cwd=directory, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-5000:]}"
    return done.stdout


def same_tables(found: Path, expected: Path) -> None:
    same_rows(found, expected)
    assert len(Lake(found).rows("deliveries")) > 100
    # No check sums, no marks of success.
    assert {path.suffix for path in found.rglob("*") if path.is_file()} == {".parquet", ".json"}


def test_submitted_as_a_zip_file_it_makes_the_same_tables(
    cluster: Cluster, logs: Path, expected: Path, tmp_path: Path
) -> None:
    before = cluster.executors()
    code, main = pack(tmp_path)
    submit = [str(SPARK / "bin" / "spark-submit"), "--master", cluster.url, *OPTIONS, "--py-files", str(code)]
    submit += ["--archives", f"{pack_libraries(tmp_path)}#libraries"]
    submit += ["--conf", "spark.executorEnv.PYTHONPATH=libraries"]
    words = [*submit, str(main), "build", str(logs), "--lake", str(tmp_path / "lake")]
    said = run(words, bare_environment(cluster.environment, tmp_path), tmp_path)
    assert f"{code.name}/queue_report/main.py" in said and "of 4 queues" in said
    assert cluster.executors() == before + 2
    same_tables(tmp_path / "lake", expected)


def test_started_by_itself_with_a_master_it_makes_the_same_tables_and_reports(
    cluster: Cluster, logs: Path, expected: Path, tmp_path: Path
) -> None:
    options = ["--master", cluster.url, *OPTIONS]
    before, lake = cluster.executors(), str(tmp_path / "lake")
    words = program("queue-report")
    environment = {**cluster.environment, "PYSPARK_PYTHON": sys.executable}
    run([*words, "build", str(logs), "--lake", lake, *options], environment, tmp_path)
    assert cluster.executors() == before + 2
    same_tables(tmp_path / "lake", expected)
    show = ["show", "conservation", "--format", "csv"]
    told = run([*words, *show, "--lake", lake, *options], cluster.environment, tmp_path)
    rows = ask("conservation", open_engine(str(expected)))
    assert [line.split(",") for line in told.splitlines()[1:]] == [list(map(str, row)) for row in rows]
    assert len(rows) == 4
