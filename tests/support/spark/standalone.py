"""A Spark cluster on the loopback interface: a standalone master and workers, from the pyspark package that we have."""

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Self

import psutil
import pyspark

from queue_report.runtime.java import choose_java
from support.processes.suite import wait_until

SPARK = Path(pyspark.__file__).parent
# Java takes seconds to start, and more on a busy machine.
PATIENCE = 90.0
# A little work, for which Java's better compiler never pays.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": _QUICK,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": _QUICK,
    "spark.sql.shuffle.partitions": "2",
}


class Cluster:
    """Runs from `with` on; `url` is its master's. Each of its workers has a core and 768 MB for executors.

    `top` is a directory for logs, scratch files and the workers' own directories.
    """

    def __init__(self, top: Path, workers: int = 2) -> None:
        self._top = top
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""
        self.environment = dict(os.environ)
        choose_java(self.environment)
        self.environment |= {
            "SPARK_HOME": str(SPARK),
            # No file of this machine's own Spark, and no address but the loopback one.
            "SPARK_CONF_DIR": str(top),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(top / "scratch"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }

    def __enter__(self) -> Self:
        try:
            self._start("master", "org.apache.spark.deploy.master.Master", "--webui-port", "0")
            self.url = self._said("master", r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
            for number in range(self._workers):
                words = ["--webui-port", "0", "--cores", "1", "--memory", "768m"]
                words += ["--work-dir", str(self._top / f"worker{number}"), self.url]
                self._start(f"worker{number}.log", "org.apache.spark.deploy.worker.Worker", *words)
            self._said("master", "Registering worker .*", self._workers)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            # With the executors that a worker has started.
            os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes:
            process.wait(30)

    def _start(self, name: str, main: str, *words: str) -> None:
        command = [str(SPARK / "bin" / "spark-class"), main, "--host", "127.0.0.1", "--port", "0", *words]
        with open(self._top / name, "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    command,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _said(self, name: str, pattern: str, times: int = 1) -> str:
        """Wait until a log has so many lines that match; return the last one's group, or all of it."""
        log = self._top / name

        def found() -> list[str]:
            ended = [process.args for process in self._processes if process.poll() is not None]
            assert not ended, f"{ended} has ended:\n{log.read_text()[-3000:]}"
            return re.findall(pattern, log.read_text())

        wait_until(lambda: len(found()) >= times, PATIENCE, f"{pattern!r} in the log of the {name}")
        return found()[-1]

    def executor_processes(self) -> list[psutil.Process]:
        """Return the Java processes of the executors that run now."""
        found = []
        for process in self._processes:
            for child in psutil.Process(process.pid).children(recursive=True):
                try:
                    if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in child.cmdline():
                        found.append(child)
                except psutil.NoSuchProcess:
                    continue
        return found

    def wait_for_kill(self) -> None:
        """Wait until a worker has seen that one of its executors was ended by SIGKILL."""

        def seen() -> bool:
            logs = [self._top / f"worker{number}.log" for number in range(self._workers)]
            return any(re.search(r"Executor \S+ finished .* (exitStatus|code) 137", log.read_text()) for log in logs)

        wait_until(seen, PATIENCE, "the end of the killed executor in a worker's log")

    def executors(self) -> int:
        """Return how many executors were started so far: each has a directory below its worker's."""
        return len([path for path in self._top.glob("worker*/app-*/*") if path.is_dir()])
