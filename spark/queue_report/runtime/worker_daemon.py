"""What forks Python workers for Spark on this machine, with what they import in memory (spark.python.daemon.module).

Spark's own daemon imports nothing before it forks, so that each worker would; and it takes pyspark from a zip file of
Spark's, which has no byte code. Nothing that is imported here may start a thread.
"""

import contextlib
import gc
import importlib
import sys

# pyarrow imports pandas for the first array that it makes.
IMPORTS = ("pyspark.worker", "deltalake.fs", "pandas", "queue_report.lake.stage")

if __name__ == "__main__":
    ARCHIVE = "/pyspark.zip"
    if importlib.machinery.PathFinder.find_spec("pyspark", [path for path in sys.path if not path.endswith(ARCHIVE)]):
        sys.path[:] = [path for path in sys.path if not path.endswith(ARCHIVE)]
    for name in IMPORTS:
        # A worker that lacks it says so better.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    from pyspark.daemon import manager

    manager()
