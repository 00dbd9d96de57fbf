"""What is said of an error of Spark's, of its three forms of text: py4j's, pyspark's own, and Spark Connect's."""

import pytest
from pyspark.errors import PySparkException

from queue_report.runtime.errors import java_reason, shorten

PY4J = """An error occurred while calling o57.listStatus.
: org.apache.hadoop.fs.s3a.AWSBadRequestException: getFileStatus on s3a://mail
\tat org.apache.hadoop.fs.s3a.S3AUtils.translateException(S3AUtils.java:260)
\t... 21 more
Caused by: com.amazonaws.SdkException: the key is wrong
\tat com.amazonaws.Client.call(Client.java:9)
"""
CAPTURED = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times

JVM stacktrace:
org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2844)
Caused by: java.io.IOException: %s
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""
WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/srv/spark/worker.py", line 1920, in read_udfs
    import pyarrow as pa
ModuleNotFoundError: No module named 'pyarrow'

JVM stacktrace:
org.apache.spark.SparkException
\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:9)
"""
# Of a Connect server, which says it in one text.
SERVED = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/tmp/queue_report_code.zip/spark/runtime/executors.py", line 104, in __call__
    result = pickle.dumps(self._work(pickle.loads(task.as_py())))
                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: 8 is no stream
 SQLSTATE: 38000"""


class ConnectError(PySparkException):
    """As pyspark has an error of a Connect server: its causes are in its stack, which is no part of its text."""

    def __init__(self, text: str, stack: str | None) -> None:
        super().__init__(text)
        self._text, self._stack = text, stack

    def getStackTrace(self) -> str | None:
        return self._stack

    def __str__(self) -> str:
        return self._text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PY4J, "SdkException: the key is wrong"),
        (CAPTURED % "No space left on device", "no space left on device"),
        (CAPTURED % "the pipe is broken", "the pipe is broken"),
        ("Job aborted\nCaused by: java.lang.OutOfMemoryError: Java heap space", "Java is out of memory (--conf spark."),
        (WORKER, "ModuleNotFoundError: No module named 'pyarrow'"),
        (SERVED, "ValueError: 8 is no stream"),
        ("[USER_RAISED_EXCEPTION] first line\nsecond line SQLSTATE: P0001", "[USER_RAISED_EXCEPTION] first line"),
        ("Caused by: java.lang.NullPointerException\n\tat x.Y.z(Y.java:1)", "NullPointerException"),
        (" \n", "no reason given"),
    ],
)
def test_the_innermost_cause_is_said_in_one_line(text: str, said: str) -> None:
    assert shorten(text).startswith(said) and "\n" not in shorten(text)


def test_the_causes_of_a_connect_server_s_error_are_in_its_stack() -> None:
    stack = "org.apache.spark.SparkException\n\tat a.B.c(B.java:1)\nCaused by: java.io.IOException: Permission denied"
    assert java_reason(ConnectError("Job aborted", stack)) == "permission denied"
    assert java_reason(ConnectError("<_InactiveRpcError of RPC>\n\tdetails", None)) == "<_InactiveRpcError of RPC>"
