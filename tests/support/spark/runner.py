"""Runs the tasks of a build in this process, one after the other: a build of a test without Spark."""

import pickle
from collections.abc import Callable, Sequence

from spark.runtime.progress import Progress


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

    def run(self, work: Callable[[bytes], bytes], given: Sequence[bytes], progress: Progress) -> list[bytes]:
        self.ran += 1
        sent: Callable[[bytes], bytes] = pickle.loads(pickle.dumps(work))
        return [sent(one) for one in given]
