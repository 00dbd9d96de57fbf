"""Runs the tasks of a build in this process, one after the other: a build of a test without Spark."""

import pickle
from collections.abc import Callable, Sequence

from spark.runtime.progress import Progress


class InProcess:
    """See spark.lake.build.Runner. ran: how many stages it had to run."""

    def __init__(self) -> None:
        self.ran = 0

    def cores(self) -> int:
        return 2

    def run(self, work: Callable[[bytes], bytes], given: Sequence[bytes], progress: Progress) -> list[bytes]:
        self.ran += 1
        sent: Callable[[bytes], bytes] = pickle.loads(pickle.dumps(work))
        return [sent(one) for one in given]
