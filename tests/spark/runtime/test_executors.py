"""Work on executors: the same of this machine's, of a cluster's and of a Connect server's."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from queue_base.errors import Permanent, Temporary, Usage
from queue_report.runtime import connect as connect_module
from queue_report.runtime import executors
from queue_report.runtime.executors import TASKS, cores, run_on_executors
from queue_report.runtime.session import Sessions, start_session
from support.spark.connect_server import ConnectServer
from support.spark.standalone import Cluster

ROOT = Path(__file__).parents[3]


@pytest.mark.together
def test_each_task_has_its_result_and_a_partition_of_its_own(spark: SparkSession) -> None:
    # A function that has no name goes to the executors as it is.
    found = run_on_executors(spark, lambda n: (2 * n, __import__("pyspark").TaskContext.get().partitionId()), range(7))
    assert sorted(found) == [(2 * n, n) for n in range(7)]
    assert list(run_on_executors(spark, str, [])) == []


@pytest.mark.together
def test_a_session_says_how_many_tasks_run_at_once_and_a_setting_says_otherwise(spark: SparkSession) -> None:
    assert cores(spark) == 2
    try:
        spark.conf.set(TASKS, "7")
        assert cores(spark) == 7
        spark.conf.set(TASKS, "many")
        with pytest.raises(Usage, match=r"^--conf spark\.queueReport\.tasks=many: it must be a number of tasks$"):
            cores(spark)
    finally:
        spark.conf.unset(TASKS)


@pytest.mark.together
def test_what_an_executor_lacks_is_named(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "NEEDED", ("numpy", "no_such_package"))
    with pytest.raises(Permanent, match=r"executor \S+: its Python \(\S+\) lacks no_such_package; install it there"):
        executors._prepare(spark)


def test_a_server_that_is_not_there_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_module, "PATIENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    why = rf"^unable to reach sc://127\.0\.0\.1:{port}: no Spark Connect server answers within 0\.5 s; start it \("
    with pytest.raises(Temporary, match=why):
        start_session(f"sc://127.0.0.1:{port}")


@pytest.mark.parametrize("url", ["sc://", "sc://host:port", "sc://host/path"])
def test_a_url_that_is_none_is_a_usage_error(url: str) -> None:
    with pytest.raises(Usage, match=rf"^unable to use --remote {url}: .*; expected sc://HOST:PORT$"):
        start_session(url)


def test_the_packages_of_spark_connect_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(Permanent, match=r"grpc.*; install it with bin/setup-suite DIRECTORY spark connect, then run"):
        Sessions("sc://127.0.0.1:9").get()


# In a process of its own, because pyspark is of one kind for the life of a process. Its words are a master, and --conf.
PROGRAM = """
import logging, sys
logging.getLogger().addHandler(logging.NullHandler())
from queue_base.errors import Failure
from queue_report.runtime.errors import JAVA_ERRORS, java_reason
from queue_report.runtime.executors import cores, run_on_executors
from queue_report.runtime.session import Sessions
from queue_report.schema.columns import COLUMNS

def double(number):
    from queue_report.schema.columns import COLUMNS
    return 2 * number, len(COLUMNS)

def fail(number):
    raise ValueError(f"{number} is no stream")

settings = {"spark.sql.shuffle.partitions": "3"} | dict(word.split("=", 1) for word in sys.argv[2:])
try:
    with Sessions(sys.argv[1], settings) as sessions:
        session = sessions.get()
        settings = [session.conf.get(f"spark.sql.{name}") for name in ("shuffle.partitions", "ansi.enabled")]
        print(cores(session), *settings)
        print(sorted(run_on_executors(session, double, range(5))) == [(2 * n, len(COLUMNS)) for n in range(5)])
        for work in (fail, None):
            try:
                list(run_on_executors(session, work, [8])) if work else session.sql("select nothing").collect()
            except JAVA_ERRORS as error:
                print(java_reason(error))
        sessions.end()
        print(sessions.begun, sessions.get().range(3).count())
except Failure as failure:
    print(failure)
"""
FIRST = ["2 3 false", "True", "ValueError: 8 is no stream"]


def run(top: Path, *words: str, **more: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": "nowhere", "HOME": "", **more}
    command = [sys.executable, "-c", PROGRAM, *words]
    done = subprocess.run(command, env=environment, cwd=top, capture_output=True, text=True, timeout=800)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def check(said: list[str]) -> None:
    assert said[:3] == FIRST and said[-1] == "False 3" and len(said) == 5
    assert said[3].startswith("[UNRESOLVED_COLUMN") and "`nothing`" in said[3]


# Java starts for each, and a cluster has four.
@pytest.mark.exhaustive
@pytest.mark.timeout(2000)
def test_a_connect_server_does_the_same_work(tmp_path: Path) -> None:
    with ConnectServer(tmp_path) as server:
        check(run(tmp_path, server.url))
        check(run(tmp_path, "", SPARK_REMOTE=server.url))
        (said,) = run(tmp_path, server.url, "spark.executor.memory=2g")
    assert (
        said
        == f"--conf spark.executor.memory: it is a setting of the server's; give it to {server.url} when that starts"
    )


@pytest.mark.exhaustive
@pytest.mark.timeout(2000)
def test_a_cluster_does_the_same_work(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        words = ["spark.driver.memory=512m", "spark.executor.memory=512m"]
        check(run(tmp_path, cluster.url, *words, **cluster.environment, PYSPARK_PYTHON=sys.executable))


@pytest.mark.exhaustive
@pytest.mark.timeout(2000)
def test_this_machine_does_the_same_work(tmp_path: Path) -> None:
    check(run(tmp_path, "local[2]"))
