"""Work in the Python of Spark's executors: our code is sent to them, and an error names what they lack."""

import atexit
import io
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from queue_base.errors import Permanent

# pyspark takes long to import, and a small build or a report of DuckDB's does without it.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What executors run of ours.
PACKAGES = ("queue_base", "queue_wire", "spark")
NEEDED = ("deltalake", "numpy", "pandas", "pyarrow")
# The mark of a context that has our code.
_SENT = "_queue_report_code"


def run_tasks(session: "SparkSession", work: Callable[[bytes], bytes], given: Sequence[bytes]) -> list[bytes]:
    """Return what work makes of each of the given, in any order: one stage of Spark's, one task each.

    Raises Permanent if an executor lacks what it needs.
    """
    import pyarrow as pa

    send_code(session)

    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for one in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_arrays([pa.array([work(one)], pa.binary())], ["result"])

    # Dividing the rows of one partition in turn is the one way to one row a task.
    frame = session.createDataFrame(pa.table({"given": pa.array(given, pa.binary())})).coalesce(1)
    if len(given) > 1:
        frame = frame.repartition(len(given))
    return [bytes(row[0]) for row in frame.mapInArrow(each, "result binary").collect()]


def cores(session: "SparkSession") -> int:
    """Return how many tasks run at once."""
    context: Any = session.sparkContext
    return max(1, int(context.defaultParallelism))


def send_code(session: "SparkSession") -> None:
    """Let the executors import our packages, and look whether they have what these need. Raises Permanent."""
    context: Any = session.sparkContext
    if getattr(context, _SENT, None) is not None:
        return
    # Executors fetch it whenever they begin, so it stays as long as this process.
    directory = tempfile.mkdtemp(prefix="queue-report-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = os.path.join(directory, "queue_report_code.zip")
    Path(path).write_bytes(pack_code())
    context.addPyFile(path)
    if str(context.master).startswith("local"):
        context.pythonExec = sys.executable
    else:
        check(context)
    setattr(context, _SENT, True)


def pack_code() -> bytes:
    """Return our packages as a zip file."""
    import spark

    root = os.path.dirname(os.path.dirname(os.path.abspath(spark.__file__)))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as out:
        if os.path.isfile(root):  # spark-submit was given a zip file of ours.
            with zipfile.ZipFile(root) as given:
                for name in given.namelist():
                    if name.split("/")[0] in PACKAGES:
                        out.writestr(name, given.read(name))
            return made.getvalue()
        for package in PACKAGES:
            for found in sorted(Path(root, package).rglob("*")):
                if found.is_file() and "__pycache__" not in found.parts:
                    out.write(found, found.relative_to(root))
    return made.getvalue()


def check(context: Any) -> None:
    """Ask the executors for Python and packages, before any work is lost. Those that come later are not asked."""
    count = max(1, int(context.defaultParallelism))
    try:
        answers = set(context.parallelize(range(count), count).map(partial(_look, NEEDED)).collect())
    except Exception as error:
        if "PYTHON_VERSION_MISMATCH" in str(error) or "different minor version" in str(error):
            raise Permanent(
                "unable to match logs on Spark's executors: their Python is of another version than the driver's; "
                "set PYSPARK_PYTHON, or ship an environment (docs/cluster.md)"
            ) from error
        raise
    for host, python, missing in sorted(answers):
        if missing:
            raise Permanent(
                f"unable to match logs on Spark's executor {host}: its Python ({python}) lacks {missing}; "
                "install it there, or ship an environment (docs/cluster.md)"
            )


def _look(needed: Sequence[str], _: int) -> tuple[str, str, str]:
    """Return where an executor is, its Python, and what that lacks."""
    import importlib.util
    import socket
    import sys

    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    return socket.gethostname(), sys.executable, ", ".join(missing)
