"""A cluster whose Pythons have nothing of their own, and an executor that is killed while it matches lines.

What executors need comes by an archive alone; the tables are those of a build on this machine, to the row.
"""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from queue_report.lake.lake import open_lake
from support.processes.suite import program
from support.spark.logs.growing_log import same_rows
from support.spark.logs.log_lake import Lake
from support.spark.packaged import pack_libraries, write_bare_python
from support.spark.standalone import SETTINGS, Cluster

sys.path.append(str(Path(__file__).resolve().parents[3] / "bench"))

from reporting.logs import write_logs

pytestmark = [pytest.mark.together, pytest.mark.timeout(600)]

WITH_ARCHIVE = {"spark.executorEnv.PYTHONPATH": "libraries"}
# Rotated files are of this size.
FILES = 2_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        # A Python path of this process would be the executors' too.
        assert "PYTHONPATH" not in running.environment
        yield running


def start(cluster: Cluster, top: Path, logs: Path, settings: dict[str, str]) -> "subprocess.Popen[str]":
    """Start a build on the cluster, whose executors' Python has nothing but the standard library."""
    words = [*program("queue-report"), "build", str(logs), "--lake", str(top / "lake"), "--master", cluster.url]
    words += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    environment = {**cluster.environment, "PYSPARK_PYTHON": str(write_bare_python(top))}
    return subprocess.Popen(
        words, env=environment, cwd=top, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def workers_of(executor: psutil.Process) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = executor.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def libraries_of(process: psutil.Process) -> set[str]:
    """Return the files of pyarrow and numpy that a process has loaded."""
    try:
        paths = {one.path for one in process.memory_maps()}
    except psutil.Error:
        return set()
    return {path for path in paths if re.search(r"/(pyarrow|numpy)(\.libs)?/", path)}


def has_log_open(process: psutil.Process, logs: Path) -> bool:
    try:
        return any(one.path.startswith(f"{logs}/") for one in process.open_files())
    except psutil.Error:
        return False


def kill_one_at_work(build: "subprocess.Popen[str]", cluster: Cluster, logs: Path, lake: Path) -> set[str]:
    """Kill an executor that reads a log, once a file of rows was written; return the libraries that it had loaded."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and build.poll() is None:
        written = any(lake.glob("tbl=deliveries/**/*.parquet"))
        for executor in cluster.executor_processes() if written else ():
            at_work = [worker for worker in workers_of(executor) if has_log_open(worker, logs)]
            if at_work:
                loaded = set().union(*map(libraries_of, at_work))
                executor.kill()
                assert not (lake / "_delta_log" / "00000000000000000001.json").exists(), "the build was over"
                return loaded
        time.sleep(0.005)
    raise AssertionError(f"no executor was seen at work: {build.communicate()}")


def kill_and_compare(cluster: Cluster, top: Path, megabytes: int) -> None:
    logs = top / "logs"
    size = megabytes * 1_000_000 // 4
    write_logs(logs / "mx1" / "in", 2 * size)
    write_logs(logs / "mx1" / "out", size, file_size=FILES)
    write_logs(logs / "mx2" / "in", 0, backlog=size // 1200)
    Lake(top / "expected").build(logs)
    settings = SETTINGS | WITH_ARCHIVE | {"spark.archives": f"{pack_libraries(top)}#libraries"}
    before = cluster.executors()
    build = start(cluster, top, logs, settings)
    try:
        loaded = kill_one_at_work(build, cluster, logs, top / "lake")
        said, wrong = build.communicate(timeout=400)
    finally:
        build.kill()
        build.wait()
    assert build.returncode == 0, f"{said}\n{wrong[-3000:]}"
    cluster.wait_for_kill()
    assert cluster.executors() >= before + 2
    # They were unpacked in the directory of the executor: worker0/app-2026…-0000/1/libraries/pyarrow/lib.….so
    assert {path.split("/")[-1].split(".")[0] for path in loaded} >= {"lib", "libarrow", "_multiarray_umath"}
    assert all(re.search(r"/worker\d/app-[^/]+/\d+/libraries/(pyarrow|numpy)", path) for path in loaded), loaded
    same_rows(top / "lake", top / "expected")
    assert all(len(Lake(top / "lake").rows(table)) > 10_000 for table in ("messages", "deliveries"))
    only_data_files_are_left(top / "lake")


def only_data_files_are_left(lake: Path) -> None:
    """Check that nothing is in a lake but its log and data files: those of the dead executor, too, until a vacuum."""
    listed = {path for paths in open_lake(str(lake)).tables.values() for path in paths}
    files = {str(path.relative_to(lake)) for path in lake.rglob("*") if path.is_file()}
    assert listed <= files
    assert all(re.fullmatch(r"tbl=\w+/date=[^/]+/[^/]+\.parquet|_delta_log/0+[01]\.json", path) for path in files)


@pytest.mark.exhaustive
def test_an_executor_killed_at_work_leaves_the_tables_of_a_build_on_one_machine(
    cluster: Cluster, tmp_path: Path
) -> None:
    kill_and_compare(cluster, tmp_path, 40)


@pytest.mark.exhaustive
def test_an_executor_killed_in_a_long_build_leaves_the_tables_of_a_build_on_one_machine(
    cluster: Cluster, tmp_path: Path
) -> None:
    kill_and_compare(cluster, tmp_path, 400)


@pytest.mark.exhaustive
def test_without_the_archive_executors_lack_the_packages(cluster: Cluster, tmp_path: Path) -> None:
    write_logs(tmp_path / "logs" / "mx1" / "in", 1000)
    said = start(cluster, tmp_path, tmp_path / "logs", SETTINGS)
    _, wrong = said.communicate(timeout=300)
    assert said.returncode == 100
    assert re.search(r"their Python lacks (pandas|pyarrow); install what docs/cluster\.md names", wrong), wrong
