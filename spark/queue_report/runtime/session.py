"""Spark's session: an embedded one on this machine, one on a cluster, the one of spark-submit, or a Connect server's.

pyspark is loaded only here and below, so that `queue-report --help` needs neither it nor Java.
"""

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, TypeVar

from queue_base.errors import Permanent, Temporary
from queue_report.runtime.archive import Archive, use_archive
from queue_report.runtime.connect import connect, connect_url
from queue_report.runtime.executors import code_roots, cores, run_on_executors
from queue_report.runtime.java import choose_java, say_how_java_ended
from queue_report.runtime.progress import Progress

# pyspark takes long to import, and a report of DuckDB's does without it.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")

# What the pipeline needs of any session; it can be set while one runs.
NEEDED = {
    # A cast of garbage is null, and null goes to quarantine; it must not end the batch.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # A lake has small files: with the default, 4 MB, a task would read few of them.
    "spark.sql.files.openCostInBytes": "262144",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    # The lake's files are listed one by one; a job of Spark's own to look at them pays only for thousands.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
}
# The methods that Spark makes are over the size that Java compiles by itself: three times the time. And nobody waits
# for an answer of a batch, so that the collector that takes the least of the processors is the best.
JAVA_OPTIONS = "-XX:-DontCompileHugeMethods -XX:+UseParallelGC"
# A build's work is done by Python, so that the work of Java's better compiler would never pay. Without that compiler
# Java keeps 48 MB of compiled code, which Spark fills.
QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
# Spark's launcher is a Java that runs for a moment.
LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# What every session that we begin has.
QUIET = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    # A batch makes more classes than the 100 that Spark keeps; each that goes is made, and found slow, once more.
    "spark.sql.codegen.cache.maxEntries": "5000",
    # Else each use of a column asks Java five times where it stands in our source, for Java's words on what is wrong.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # On a busy machine Python may need more than 15 s to come for the rows that Java has for it.
    "spark.python.authenticate.socketTimeout": "120s",
    # Not the class that looks for a second file of check sums beside each file.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # Spark makes this directory for a report, as `spark-warehouse` where the command runs, and nothing is put into it.
    "spark.sql.warehouse.dir": Path(tempfile.gettempdir()).as_uri(),
}
# And an embedded one: nothing of it can be reached from another machine, and nothing is left in the directory.
EMBEDDED = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} {QUICK}",
    # Spark's 200 is meant for a cluster: most would hold a few rows.
    "spark.sql.shuffle.partitions": "32",
}
DEFAULT_MASTER = "local[*]"
DAEMON = "queue_report.runtime.worker_daemon"
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
# In what Java and Spark say of an order that cannot be right, whatever the machine.
_WRONG = (
    *("Could not parse Master URL", "Invalid master URL", "Master must", "must be set in the environment"),
    *("INVALID_CONF_VALUE", "maximum heap"),
)
# Lines of Java and Spark that do not tell why it failed, and what stands before the reason in others.
_SAYS_NOTHING = re.compile(
    r"\s|$|\[|WARNING:|Using Spark's|Setting (default|Spark) log|To adjust|Error occurred|Error: |\S+ \S+ (WARN|INFO) "
)
_BEFORE_REASON = re.compile(
    r'(\S+ \S+ ERROR \w+: )?(Exception in thread "\S+" )?(([a-z]\w*\.)+\w+(Exception|Error): )?'
)
# How long (seconds) Java may take to end when it is told to, and to be dead after it answered no more.
ENDING = 30.0
DYING = 3.0
# Javas that were not waited for, until they have ended.
_ending: list["subprocess.Popen[bytes]"] = []


class Sessions:
    """One session of Spark: begun when it is first asked for, and again after it has been ended.

    master: Spark's, or a Connect server's sc://HOST:PORT. As a context manager it ends the session, and a failure
    within it that came of Java's end is raised as that (Temporary), whatever it was taken for. last_used: the
    monotonic time of the last get().
    """

    def __init__(self, master: str | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._master = master
        self._settings = dict(settings or {})
        self._session: SparkSession | None = None
        self._makes_archive = False
        self.last_used = 0.0

    @property
    def begun(self) -> bool:
        """Whether a session runs now."""
        return self._session is not None

    @property
    def java_pid(self) -> int | None:
        """The process of Java, None where there is none of ours."""
        process = _java_process() if self._session is not None else None
        return None if process is None or process.poll() is not None else process.pid

    def get(self) -> "SparkSession":
        """Return the session. Raises as start_session."""
        self.last_used = time.monotonic()
        if self._session is None:
            # pyspark takes SIGINT for itself, from whoever has it.
            handler = signal.getsignal(signal.SIGINT)
            self._session, self._makes_archive = _start(self._master, self._settings, make=True)
            if callable(handler) and handler is not signal.default_int_handler:
                signal.signal(signal.SIGINT, handler)
        return self._session

    def cores(self) -> int:
        """Return how many tasks run at once. Raises as start_session, and as queue_report.runtime.executors.cores."""
        return cores(self.get())

    def application(self) -> str:
        """Return the id of the application of Spark's. Raises as start_session."""
        return self.get().conf.get("spark.app.id", "") or ""

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task], progress: Progress) -> Iterator[Result]:
        """Yield what work makes of each task, in any order: one stage of Spark's. Raises as cores."""
        session = self.get()
        progress.watch(session)
        yield from run_on_executors(session, work, tasks)

    def end(self) -> None:
        """Stop the session and Java, if they run. Never fails."""
        if self._session is None:
            return
        session, self._session = self._session, None
        # Java may be gone already.
        with suppress(Exception):
            session.stop()
        _end_java(wait=not self._makes_archive)

    def __enter__(self) -> "Sessions":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        ended = self.explain(error) if isinstance(error, Exception) else None
        try:
            self.end()
        finally:
            if ended is not None:
                raise ended from error

    def explain(self, error: Exception) -> Temporary | None:
        """Return what to say where an error came of Java's end, None where Java is alive or not ours."""
        process = _java_process() if self._session is not None else None
        if process is None:
            return None
        try:
            # Its end is seen at the other end of a socket before it is seen here.
            code = process.wait(DYING if _is_lost_connection(error) else 0)
        except subprocess.TimeoutExpired:
            return None
        return Temporary(
            f"unable to go on: {say_how_java_ended(code)}; the lake is as it was: run this again, where memory was "
            "short with less for Java (--conf spark.driver.memory=1g) or on a machine that has more"
        )


def start_session(master: str | None = None, settings: Mapping[str, str] | None = None) -> "SparkSession":
    """Return a session: on `master`, else on what spark-submit was told, else embedded on this machine's cores.

    settings: Spark's own (spark.executor.memory and so on), which come before ours. Raises Permanent if pyspark or Java
    is missing, Temporary if Spark does not start or the master cannot be reached, and as connect; each in one line.
    """
    return _start(master, settings or {}, make=False)[0]


def _start(master: str | None, wanted: Mapping[str, str], make: bool) -> tuple["SparkSession", bool]:
    """Return a session, and whether its Java makes an archive when it ends, which it only does if `make` is set."""
    try:
        import pyspark
        from pyspark import SparkConf
        from pyspark.logger import PySparkLogger
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise Permanent(
            f"unable to load pyspark: {error}; install it with bin/setup-suite DIRECTORY spark, then run this again"
        ) from error
    # It prints what is wrong with a statement as JSON, with Java's stack; we tell it ourselves.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    master = master or wanted.get("spark.master")
    if remote := connect_url(master, wanted):
        return connect(remote, NEEDED, wanted), False
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    archive = Archive()
    chosen = dict(QUIET)
    if submitted:
        # spark-submit has used the other class for local files already, and Java would go on with that one.
        chosen["spark.hadoop.fs.file.impl.disable.cache"] = "true"
    else:
        master = master or DEFAULT_MASTER
        archive = use_archive(choose_java(os.environ), _jars(pyspark.__file__), os.environ, make)
        if shutil.which("bash") is None:
            # A supervisor may have a PATH of its own, and Spark's launcher is a script for bash.
            os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{os.defpath}"
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", " ".join([LAUNCHER_OPTIONS, *archive.small]))
    if master is not None:
        chosen["spark.master"] = master
        if master.startswith("local"):
            chosen |= EMBEDDED
            # The daemon finds our code where we have found it.
            path = os.pathsep.join(code_roots())
            chosen |= {"spark.python.daemon.module": DAEMON, "spark.executorEnv.PYTHONPATH": path}
    chosen |= {"spark.app.name": "queue-report", **NEEDED, **wanted}
    chosen[_DRIVER_OPTIONS] = " ".join([chosen[_DRIVER_OPTIONS], *archive.options])
    session = _begin(SparkSession.builder, SparkConf(loadDefaults=False), chosen, submitted)
    if str(session.sparkContext.master).startswith("local"):
        # spark-submit may have been told of a local one, too.
        session.sparkContext.pythonExec = sys.executable
    for name, value in NEEDED.items():
        session.conf.set(name, wanted.get(name, value))
    session.sparkContext.setLogLevel("ERROR")
    return session, archive.makes


def _jars(pyspark: str) -> str:
    """Return the directory of Spark's jars, as Spark's own scripts find it."""
    return str(Path(os.environ.get("SPARK_HOME") or Path(pyspark).parent) / "jars")


def _java_process() -> "subprocess.Popen[bytes] | None":
    """Return the Java that this process has started for pyspark, None where there is none."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    # Any other attribute of a gateway is taken for a name in Java.
    process = None if gateway is None else vars(gateway).get("proc")
    return process if isinstance(process, subprocess.Popen) else None


def _end_java(wait: bool) -> None:
    """Have Java end; a Java that still has an archive to make is not waited for, and gives way to others."""
    from pyspark import SparkContext

    process, gateway = _java_process(), SparkContext._gateway
    if process is None or gateway is None:
        # It is spark-submit's, or a Connect server's.
        return
    SparkContext._gateway = SparkContext._jvm = None
    _ending[:] = [other for other in _ending if other.poll() is None]
    if not wait:
        _ending.append(process)
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{process.pid}/task"):
                os.setpriority(os.PRIO_PROCESS, int(thread), 19)
    with suppress(Exception):
        gateway.shutdown()
    with suppress(OSError):
        # The end of its input is what Java ends at.
        if process.stdin:
            process.stdin.close()
    if wait:
        try:
            process.wait(ENDING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_lost_connection(error: BaseException) -> bool:
    """Return whether an error, or its cause, says that the other end of a connection is gone."""
    from py4j.protocol import Py4JError, Py4JJavaError

    if isinstance(error, (ConnectionError, EOFError, Py4JError)) and not isinstance(error, Py4JJavaError):
        return True
    before = error.__cause__ or error.__context__
    return before is not None and _is_lost_connection(before)


def _begin(builder: Any, configuration: Any, chosen: Mapping[str, str], submitted: bool) -> "SparkSession":
    """Start Java, unless spark-submit has, with its stderr kept off the terminal; then the session."""
    from py4j.protocol import Py4JNetworkError
    from pyspark import SparkContext, java_gateway

    from queue_report.runtime.errors import JAVA_ERRORS, java_reason

    with tempfile.TemporaryFile() as said:
        try:
            if SparkContext._gateway is None and not submitted:
                configuration.setAll(list(chosen.items()))
                # The one way to a Java that writes nowhere but where we say.
                launch: Any = java_gateway.launch_gateway
                SparkContext._ensure_initialized(gateway=launch(configuration, {"stderr": said, "stdout": said}))
            session: SparkSession = builder.config(map=chosen).getOrCreate()
            return session
        except (*JAVA_ERRORS, OSError) as error:
            # Where Java itself has ended only its stderr tells why.
            ended = SparkContext._gateway is None or isinstance(error, (Py4JNetworkError, OSError))
            reason = (_telling_line(said) if ended else "") or java_reason(error)
            if "stopped SparkContext" in reason:
                reason = f"master {chosen['spark.master']} does not answer"
            if any(words in reason for words in _WRONG):
                raise Permanent(f"unable to start Spark: {reason}; mend --master or --conf") from error
            raise Temporary(f"unable to start Spark: {reason}; run it again") from error


def _telling_line(said: IO[bytes]) -> str:
    """Return what Java said first of why it does not start, without what it says of every exception."""
    said.seek(0)
    lines = said.read().decode(errors="replace").splitlines()
    telling = next((line for line in lines if not _SAYS_NOTHING.match(line)), "")
    return _BEFORE_REASON.sub("", telling, count=1).strip()
