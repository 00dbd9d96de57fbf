"""What bench/report runs in processes of their own, as text; each tells what it measured: `NAME SECONDS CPU`."""

_HEAD = """
import os, sys, time
from pathlib import Path
from spark.lake.build import Order, build
from spark.runtime.progress import Progress
from spark.runtime.session import Sessions

def tell(name, begun, cpu):
    print(name, f"{time.monotonic() - begun:.3f}", f"{time.process_time() - cpu:.3f}", flush=True)
"""

# A lake of the first logs, then a second build of others in the same process. Words: first, second, lake, master, heap.
WARM = _HEAD + """
first, second, lake, master, heap = sys.argv[1:]
settings = {"spark.driver.memory": heap, "spark.master": master}
with Sessions(master, settings) as sessions:
    build(Order(first, lake, settings=settings), sessions, Progress())
    begun, cpu = time.monotonic(), time.process_time()
    build(Order(second, lake, settings=settings), sessions, Progress())
    tell("warm", begun, cpu)
"""

# Ten batches of a thousand lines more in `current`. Words: lines to be added, logs, lake.
BATCHES = _HEAD + """
lines, logs, lake = sys.argv[1:]
lines = Path(lines).read_bytes().splitlines(keepends=True)
current = Path(logs) / "host" / "minute" / "current"
current.parent.mkdir(parents=True)
with Sessions() as sessions:
    for number in range(11):
        with current.open("ab") as file:
            file.writelines(lines[number * 1000 : number * 1000 + 1000])
        begun, cpu = time.monotonic(), time.process_time()
        build(Order(logs, lake), sessions, Progress())
        if number:
            tell("batch", begun, cpu)
"""

# All reports in one process, each read to its last row. Words: lake, engine.
REPORTS = """
import sys, time
from spark.reports import REPORTS
from spark.reports.choice import open_engine
from spark.reports.report import View
engine = open_engine(sys.argv[1], sys.argv[2])
for name, report in REPORTS.items():
    begun, cpu = time.monotonic(), time.process_time()
    for row in engine.report(report, View(at=1_700_000_100_000_000_000)).rows:
        pass
    print(name, f"{time.monotonic() - begun:.3f}", f"{time.process_time() - cpu:.3f}", flush=True)
"""
