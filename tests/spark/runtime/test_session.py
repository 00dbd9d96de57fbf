"""What queue-report says of a Spark that cannot start: one line that names the trouble, and the right exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from queue_report.runtime.files import local_path

ROOT = Path(__file__).parents[3]
WRONG = {
    "a master that is none": (["--master", "banana"], "Master must either be yarn or start with spark, k8s, or local"),
    "YARN that is nowhere": (["--master", "yarn"], "either HADOOP_CONF_DIR or YARN_CONF_DIR must be set in the env"),
    "no size of memory": (["--conf", "spark.driver.memory=banana"], "Invalid maximum heap size: -Xmxbanana; mend"),
    "too little memory": (["--conf", "spark.driver.memory=1m"], "Too small maximum heap; mend --master or --conf"),
}


ALWAYS = "a master that is none"  # Java starts for each.


@pytest.mark.parametrize(
    "case", [case if case == ALWAYS else pytest.param(case, marks=pytest.mark.exhaustive) for case in WRONG]
)
def test_a_wrong_order_to_spark_is_told_in_one_line(case: str, tmp_path: Path) -> None:
    options, said = WRONG[case]
    command = [sys.executable, "bin/queue-report", "show", "overall", "--lake", str(tmp_path / "lake"), *options]
    # A directory that others can write to has no archive of Java's classes: to make one would take most of the time.
    cache = tmp_path / "queue-report"
    cache.mkdir()
    cache.chmod(0o777)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert not os.listdir(cache)
    assert done.returncode == 100, done.stderr
    assert done.stderr.startswith("queue-report: fatal: unable to start Spark: ") and done.stderr.count("\n") == 1
    assert said in done.stderr


def test_spark_makes_no_directory_where_a_command_runs(spark: SparkSession) -> None:
    """It makes its warehouse for the first function or table that a report asks its catalog for."""
    place = local_path(spark.conf.get("spark.sql.warehouse.dir") or "")
    before = os.listdir()
    spark.catalog.listTables()
    assert os.listdir() == before
    assert place is not None and os.path.samefile(place, os.environ.get("TMPDIR", "/tmp"))
