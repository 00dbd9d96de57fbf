"""Runs the tasks of a build in this process, one after the other: a build of a test without Spark."""

import pickle
from collections.abc import Callable, Sequence
from typing import TypeVar

from spark.runtime.progress import Progress

Task = TypeVar("Task")
Result = TypeVar("Result")


class InProcess:
    """See spark.lake.build.Runner, and spark.runtime.session.Sessions. ran: how many stages it had to run."""

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
