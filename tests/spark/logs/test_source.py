"""The data source queue_log, and the page that shows it: its blocks are run, one after the other."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from queue_report.logs.source import QueueLog
from support.spark.logs.growing_log import GrowingLog
from support.spark.logs.log_lake import Lake

pytestmark = pytest.mark.together
ROOT = Path(__file__).parents[3]
STAMP = "@400000006553f10a00000000"


def test_each_line_is_a_row_with_its_place_its_time_and_its_kind(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "mx1" / "out" / "current"
    log.parent.mkdir(parents=True)
    log.write_bytes(f"{STAMP} new msg 5\n{STAMP} new msg 5\ngarbage\n{STAMP} unheard of\n{STAMP} end msg 5".encode())
    spark.dataSource.register(QueueLog)
    found = spark.read.format("queue_log").load(str(tmp_path / "logs")).orderBy("line").collect()
    ns = 1_700_000_000_000_000_000
    place = ("mx1", "out", "mx1/out/current")
    assert [(*row[:4], *row[5:]) for row in found] == [
        (*place, 1, ns, "new", "new msg 5"),
        (*place, 2, ns, "new", "new msg 5"),
        (*place, 3, None, None, "garbage"),
        (*place, 4, ns, None, "unheard of"),
    ]
    assert found[0]["time"].timestamp() == 1_700_000_000 and found[2]["time"] is None


def test_kinds_are_those_that_a_build_counts(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "mx1" / "out" / "current"
    log.parent.mkdir(parents=True)
    said = (
        "new msg 5", "starting delivery 1: msg 5 to local a@b", "delivery 1: report mangled, will defer",
        "ondemand d.example started: ETRN", "queue-remote: alert: no", "queue-todo: config read", "warning: slow",
    )  # fmt: skip
    log.write_text("".join(f"{STAMP} {text}\n" for text in said))
    spark.dataSource.register(QueueLog)
    lines = spark.read.format("queue_log").load(str(tmp_path / "logs"))
    counted = {row["kind"]: row["count"] for row in lines.groupBy("kind").count().collect()}
    assert counted == Lake(tmp_path / "lake").build(tmp_path / "logs").lines


def test_the_page_runs_from_its_first_block_to_its_last(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = GrowingLog(tmp_path / "logs" / "mx1" / "q")
    log.grow(3)
    log.write("garbage\n")
    Lake(tmp_path / "lake").build(tmp_path / "logs")
    monkeypatch.setattr("queue_report.runtime.session.start_session", lambda: spark)
    page = (ROOT / "docs" / "notebook.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    for block in blocks:
        text = block.replace("/srv/lake", str(tmp_path / "lake")).replace("/var/log/queue", str(tmp_path / "logs"))
        exec(text, names)
    said = capsys.readouterr().out
    assert len(blocks) == 4 and "|garbage|" in said and "|done|" in said.replace(" ", "")
