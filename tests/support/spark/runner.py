"""Runs the tasks of a build in this process, one after the other: a build of a test without Spark."""

import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from queue_report.runtime.executors import cores, run_on_executors
from queue_report.runtime.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")


class InProcess:
    """See queue_report.lake.build.Runner, and queue_report.runtime.session.Sessions.

    ran: how many stages it had to run.
    """

    begun = False
    last_used = 0.0
    java_pid = None

    def __init__(self) -> None:
        self.ran = 0

    def end(self) -> None:
        """Nothing runs."""

    def explain(self, error: Exception) -> None:
        """No Java has ended."""

    def cores(self) -> int:
        return 2

    def application(self) -> str:
        return "in-process"

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task], progress: Progress) -> list[Result]:
        self.ran += 1
        sent: Callable[[Task], Result] = pickle.loads(pickle.dumps(work))
        return [pickle.loads(pickle.dumps(sent(pickle.loads(pickle.dumps(one))))) for one in tasks]


class OneSession(InProcess):
    """Runs tasks in the tests' session of Spark. stages: of Spark's, by build."""

    def __init__(self, spark: "SparkSession") -> None:
        super().__init__()
        self._spark = spark
        self.stages: list[int] = []

    def cores(self) -> int:
        return cores(self._spark)

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task], progress: Progress) -> list[Result]:
        self.ran += 1
        tracker = self._spark.sparkContext.statusTracker()
        before = set(tracker.getJobIdsForGroup(None))
        done = list(run_on_executors(self._spark, work, tasks))
        jobs = [tracker.getJobInfo(job) for job in set(tracker.getJobIdsForGroup(None)) - before]
        self.stages.append(sum(len(job.stageIds) for job in jobs if job is not None and job.status == "SUCCEEDED"))
        return done
