"""A Spark Connect server on the loopback interface, from the pyspark package that we have."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

import pyspark

from queue_report.runtime.java import choose_java
from support.processes.suite import wait_until

SPARK = Path(pyspark.__file__).parent
# Java takes seconds to start, and more on a busy machine.
PATIENCE = 120.0


class ConnectServer:
    """Runs from `with` on with two cores; `url` is what a client connects to. `top`: a directory for its log."""

    def __init__(self, top: Path) -> None:
        self._log = top / "connect"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"sc://127.0.0.1:{self._port}"
        self._environment = dict(os.environ)
        choose_java(self._environment)
        # Its Python workers are what executors have: our code comes to them from the client alone.
        self._environment |= {"SPARK_HOME": str(SPARK), "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(top)}
        self._settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "700m",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": str(top / "warehouse"),
        }

    def __enter__(self) -> Self:
        options = [word for name, value in self._settings.items() for word in ("--conf", f"{name}={value}")]
        command = [str(SPARK / "bin" / "spark-submit"), "--master", "local[2]", *options]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                command,
                env=self._environment,
                cwd=self._log.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            wait_until(self._answers, PATIENCE, "the Connect server")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def _answers(self) -> bool:
        assert self._process.poll() is None, f"it has ended:\n{self._log.read_text()[-3000:]}"
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        except OSError:
            return False
        return True
