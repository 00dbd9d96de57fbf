"""Spark's session: an embedded one on this machine, one on a cluster, or the one that spark-submit has begun.

pyspark is loaded only here and below, so that `queue-report --help` needs neither it nor Java.
"""

import os
import re
import tempfile
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

from queue_base.errors import Permanent, Temporary
from spark.runtime.java import choose_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What the pipeline needs of any session; it can be set while one runs.
NEEDED = {
    # A cast of garbage is null, and null goes to quarantine; it must not end the batch.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # Logs come as many small files, rotated at 10 kB or 100 kB: with the default, 4 MB, each would be a task.
    "spark.sql.files.openCostInBytes": "262144",
    # Each task writes its few dates and hosts at once, and need not sort its rows by them first.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    # The lake's files are listed one by one; a job of Spark's own to look at them pays only for thousands.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
}
# The methods that Spark makes are over the size that Java compiles by itself: three times the time. And nobody waits
# for an answer of a batch, so that the collector that takes the least of the processors is the best.
JAVA_OPTIONS = "-XX:-DontCompileHugeMethods -XX:+UseParallelGC"
# Of a short run Java's better compiler takes a third of the time, and its work would never pay.
LITTLE_OPTIONS = f"{JAVA_OPTIONS} -XX:TieredStopAtLevel=1"
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
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Not the class that writes a second file of check sums for each file. The same everywhere: one of them that a file
    # had under an earlier build would make the file unreadable.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
# And an embedded one: nothing of it can be reached from another machine, and nothing is left in the directory.
EMBEDDED = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.catalogImplementation": "in-memory",
    # Spark's 200 is meant for a cluster: most would hold a few rows.
    "spark.sql.shuffle.partitions": "32",
}
DEFAULT_MASTER = "local[*]"
# In what Java and Spark say of an order that cannot be right, whatever the machine.
_WRONG = (
    *("Could not parse Master URL", "Invalid master URL", "Master must", "must be set in the environment"),
    *("INVALID_CONF_VALUE", "maximum heap"),
)
# Lines of Java and Spark that do not tell why it failed, and what stands before the reason in others.
_SAYS_NOTHING = re.compile(
    r"\s|$|WARNING:|Using Spark's|Setting (default|Spark) log|To adjust|Error occurred|Error: |\S+ \S+ (WARN|INFO) "
)
_BEFORE_REASON = re.compile(
    r'(\S+ \S+ ERROR \w+: )?(Exception in thread "\S+" )?(([a-z]\w*\.)+\w+(Exception|Error): )?'
)


def start_session(
    master: str | None = None, settings: Mapping[str, str] | None = None, little: bool = False
) -> "SparkSession":
    """Return a session: on `master`, else on what spark-submit was told, else embedded on this machine's cores.

    settings: Spark's own (spark.executor.memory and so on), which come before ours. little: there is little to do
    (runtime.work). Raises Permanent if pyspark or Java is missing, Temporary if Spark does not start or the master
    cannot be reached; each in one line.
    """
    try:
        from pyspark import SparkConf
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise Permanent(
            f"unable to load pyspark: {error}; install it with pip install 'queue-suite[spark]', then run this again"
        ) from error
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        choose_java(os.environ)
    wanted = dict(settings or {})
    if master is None and not submitted:
        master = wanted.get("spark.master") or DEFAULT_MASTER
    chosen = dict(QUIET)
    if master is not None and master.startswith("local"):
        chosen |= EMBEDDED
        if little:
            chosen["spark.driver.extraJavaOptions"] = LITTLE_OPTIONS
    if submitted:
        # spark-submit has used the other class for local files already, and Java would go on with that one.
        chosen["spark.hadoop.fs.file.impl.disable.cache"] = "true"
    if master is not None:
        chosen["spark.master"] = master
    chosen |= {"spark.app.name": "queue-report"} | NEEDED | wanted
    session = _begin(SparkSession.builder, SparkConf(loadDefaults=False), chosen, submitted)
    for name, value in NEEDED.items():
        session.conf.set(name, wanted.get(name, value))
    session.sparkContext.setLogLevel("ERROR")
    return session


def _begin(builder: Any, configuration: Any, chosen: Mapping[str, str], submitted: bool) -> "SparkSession":
    """Start Java, unless spark-submit has, with its stderr kept off the terminal; then the session."""
    from py4j.protocol import Py4JNetworkError
    from pyspark import SparkContext, java_gateway

    from spark.runtime.trouble import JAVA_ERRORS, java_reason

    for name, value in chosen.items():
        builder = builder.config(name, value)
    if submitted or SparkContext._active_spark_context is not None:
        return _made(builder)
    with tempfile.TemporaryFile() as said:
        try:
            configuration.setAll(list(chosen.items()))
            if SparkContext._gateway is None:
                # The one way to a Java that writes nowhere but where we say.
                launch: Any = java_gateway.launch_gateway
                SparkContext._ensure_initialized(gateway=launch(configuration, {"stderr": said, "stdout": said}))
            return _made(builder)
        except (*JAVA_ERRORS, OSError) as error:
            # Where Java itself has ended only its stderr tells why.
            ended = SparkContext._gateway is None or isinstance(error, (Py4JNetworkError, OSError))
            reason = (_telling_line(said) if ended else "") or java_reason(error)
            if "stopped SparkContext" in reason:
                reason = f"master {chosen['spark.master']} does not answer"
            if any(words in reason for words in _WRONG):
                raise Permanent(f"unable to start Spark: {reason}; mend --master or --conf") from error
            raise Temporary(f"unable to start Spark: {reason}; run it again") from error


def _made(builder: Any) -> "SparkSession":
    session: SparkSession = builder.getOrCreate()
    return session


def _telling_line(said: IO[bytes]) -> str:
    """Return what Java said first of why it does not start, without what it says of every exception."""
    said.seek(0)
    lines = said.read().decode(errors="replace").splitlines()
    telling = next((line for line in lines if not _SAYS_NOTHING.match(line)), "")
    return _BEFORE_REASON.sub("", telling, count=1).strip()
