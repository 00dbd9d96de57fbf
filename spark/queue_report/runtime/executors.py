"""Work in the Python of Spark's executors: our code is sent to them, and an error names what they lack."""

import atexit
import os
import pickle
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from queue_base.errors import Permanent, Usage

# pyspark and pyarrow take long to import.
if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

# What executors run of ours, and what that needs beside pyspark.
PACKAGES = ("queue_base", "queue_wire", "queue_report")
NEEDED = ("numpy", "pandas", "pyarrow", "deltalake")
# A setting: how many tasks run at once, where Spark's first answer is wrong, as with executors that begin on demand.
TASKS = "spark.queueReport.tasks"
# More rows than any cluster has cores, so that each of Spark's default partitions has some.
_PROBE_ROWS = 1 << 16

Task = TypeVar("Task")
Result = TypeVar("Result")
# Sessions whose executors have our code, and how many tasks each runs at once.
_ready: "WeakKeyDictionary[SparkSession, int]" = WeakKeyDictionary()


def run_on_executors(
    session: "SparkSession", work: Callable[[Task], Result], tasks: Sequence[Task]
) -> Iterator[Result]:
    """Yield what work gives for each task, in any order; each is a task of Spark's, the first begun first.

    Raises as cores.
    """
    import pyarrow as pa

    if not tasks:
        return
    cores(session)
    pickled = pa.array([pickle.dumps(task) for task in tasks], pa.binary())
    numbers = pa.array(range(len(tasks)), pa.int32())
    frame = session.createDataFrame(pa.table({"number": numbers, "task": pickled}))
    found = frame.repartitionById(len(tasks), "number").mapInArrow(_RunTasks(work), "result binary")
    for row in found.collect():
        yield pickle.loads(row["result"])


def cores(session: "SparkSession") -> int:
    """Return how many tasks run at once.

    Executors elsewhere are sent our code first, and asked whether they have what it needs; those that come later are
    not asked. Raises Permanent, Usage.
    """
    if session not in _ready:
        _ready[session] = _local_cores(session) or _prepare(session)
    asked = session.conf.get(TASKS, "") or ""
    if asked and not (asked.isascii() and asked.isdecimal() and 0 < int(asked) < 1 << 20):
        raise Usage(f"--conf {TASKS}={asked}: it must be a number of tasks")
    return int(asked or _ready[session])


def code_roots() -> list[str]:
    """Return the directories that our packages are in, two in a checkout, or the zip file of spark-submit."""
    places = (import_module(package).__path__[0] for package in PACKAGES)
    return list(dict.fromkeys(os.path.dirname(os.path.abspath(place)) for place in places))


def pack_code(path: str) -> None:
    """Write our packages as a zip file."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for root in code_roots():
            if os.path.isfile(root):
                with zipfile.ZipFile(root) as given:
                    for name in given.namelist():
                        if name.split("/")[0] in PACKAGES:
                            out.writestr(name, given.read(name))
                continue
            for package in PACKAGES:
                for found in sorted(Path(root, package).rglob("*")):
                    if found.is_file() and "__pycache__" not in found.parts:
                        out.write(found, found.relative_to(root))


class _RunTasks:
    """What an executor does with tasks: rows of a number and a pickled task."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work = work

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for batch in batches:
            for task in batch.column("task"):
                result = pickle.dumps(self._work(pickle.loads(task.as_py())))
                yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], ["result"])


def _local_cores(session: "SparkSession") -> int:
    """Return how many tasks run at once where the executors are this machine's and have our code, else 0."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        return 0
    context = session.sparkContext
    return context.defaultParallelism if str(context.master).startswith("local") else 0


def _prepare(session: "SparkSession") -> int:
    """Send our code, and ask executors for Python and packages, before any work is lost. Return how many answered."""
    # Executors fetch it whenever they begin, so it stays as long as this process.
    directory = tempfile.mkdtemp(prefix="queue-report-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = os.path.join(directory, "queue_report_code.zip")
    pack_code(path)
    session.addArtifacts(path, pyfile=True)
    try:
        asked = session.range(_PROBE_ROWS).mapInArrow(
            partial(_look, NEEDED), "host string, python string, missing string"
        )
        answers = [tuple(row) for row in asked.collect()]
    except Exception as error:
        if "PYTHON_VERSION_MISMATCH" in str(error) or "different minor version" in str(error):
            why = "their Python is of another version than the driver's; set PYSPARK_PYTHON, or ship an environment"
        elif lacking := re.search(r"No module named '(\w+)'|(\w+) >= \S+ must be installed", str(error)):
            why = f"their Python lacks {lacking[1] or lacking[2].lower()}; install what docs/cluster.md names"
        else:
            raise
        raise Permanent(f"unable to match logs on Spark's executors: {why} (docs/cluster.md)") from error
    for host, python, missing in sorted(set(answers)):
        if missing:
            raise Permanent(
                f"unable to match logs on Spark's executor {host}: its Python ({python}) lacks {missing}; "
                "install it there, or ship an environment (docs/cluster.md)"
            )
    return max(len(answers), 1)


def _look(needed: Sequence[str], batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Give where an executor is, its Python, and what that lacks: one row for each of Spark's partitions."""
    import importlib.util
    import socket
    import sys

    import pyarrow as pa

    for _ in batches:
        pass
    missing = ", ".join(name for name in needed if importlib.util.find_spec(name) is None)
    yield pa.RecordBatch.from_pylist([{"host": socket.gethostname(), "python": sys.executable, "missing": missing}])
