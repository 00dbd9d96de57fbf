"""What bench/report runs in processes of their own, as text; each tells what it measured: `NAME SECONDS CPU`."""

_HEAD = """
import os, sys, time
from pathlib import Path
from queue_report.lake.build import Order, build
from queue_report.runtime.progress import Progress
from queue_report.runtime.session import Sessions

def tell(name, begun, cpu):
    print(name, f"{time.monotonic() - begun:.3f}", f"{time.process_time() - cpu:.3f}", flush=True)
"""

# A lake of the first logs, then a second build of others in the same process. Words: first, second, lake, master, heap.
WARM = _HEAD + """
first, second, lake, master, heap = sys.argv[1:]
settings = {"spark.driver.memory": heap}
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

# A build on a cluster of executors of one core each, all on this machine, after a job for which they all begin and load
# what they need. Tells the seconds of each phase. Words: logs, lake, executors, a directory for Spark's own files.
CORES = _HEAD + """
from queue_report.runtime.executors import run_on_executors

import pyspark, shutil

logs, lake, cores, scratch = sys.argv[1:]
os.environ["SPARK_LOCAL_DIRS"] = scratch
# Where workers in the driver's own process have the directories of their executors, whatever one asks for.
work = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "work"
settings = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}
settings |= {"spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.locality.wait": "0"}

def load(given):
    import queue_report.lake.stage
    time.sleep(1)
    return given

class Phases(Progress):
    def __init__(self):
        super().__init__()
        self.name, self.begun = "", time.monotonic()
    def phase(self, name):
        if self.name:
            print(self.name.split()[0], f"{time.monotonic() - self.begun:.3f}", "0.0", flush=True)
        self.name, self.begun = name, time.monotonic()

with Sessions(f"local-cluster[{cores},1,512]", settings) as sessions:
    list(run_on_executors(sessions.get(), load, range(int(cores) * 2)))
    directory = work / sessions.get().sparkContext.applicationId
    phases = Phases()
    build(Order(logs, lake, settings=settings), sessions, phases)
    phases.phase("end")
shutil.rmtree(directory, ignore_errors=True)
if work.is_dir() and not any(work.iterdir()):
    work.rmdir()
"""

# All reports in one process, each read to its last row. Words: lake, engine.
REPORTS = """
import sys, time
from queue_report.reports import REPORTS
from queue_report.reports.choice import open_engine
from queue_report.reports.report import View
engine = open_engine(sys.argv[1], sys.argv[2])
for name, report in REPORTS.items():
    begun, cpu = time.monotonic(), time.process_time()
    for row in engine.report(report, View(at=1_700_000_100_000_000_000)).rows:
        pass
    print(name, f"{time.monotonic() - begun:.3f}", f"{time.process_time() - cpu:.3f}", flush=True)
"""
