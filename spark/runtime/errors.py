"""What went wrong in Spark or in Java, in a few words: no trace of Java's stack is ever shown."""

from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

# What a call of Java raises; pyspark makes some of Java's exceptions its own.
JAVA_ERRORS = (Py4JError, PySparkException)

# What Java says of a failing system call, in the words of strerror.
KNOWN = (
    "No space left on device",
    "Disk quota exceeded",
    "Permission denied",
    "Read-only file system",
    "Too many open files",
    "Input/output error",
    "Connection refused",
    "OutOfMemoryError",
)
OUT_OF_MEMORY = "Java is out of memory (--conf spark.driver.memory=4g gives it more)"
# Exceptions whose text needs no name before it.
TELLING = ("AnalysisException", "FileNotFoundException", "IOException", "SparkException", "SparkRuntimeException")
# Spark's own words around a cause are many and long, and a cycle of causes has been seen.
CAUSES_MAX = 20


def java_reason(error: BaseException) -> str:
    """Return why a call of Java failed: a system call's error alone, or else the innermost cause's first line."""
    exception = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    return shorten(*_causes(exception), *([] if exception is not None else [str(error)]))


def shorten(*causes: str) -> str:
    """Return one line of the texts of an exception and its causes, outermost first."""
    for text in causes:
        for words in KNOWN:
            if words in text:
                return OUT_OF_MEMORY if words == "OutOfMemoryError" else words[0].lower() + words[1:]
    last = next((text for text in reversed(causes) if text.strip()), "no reason given")
    return last.strip().splitlines()[0].strip()


def is_missing(error: BaseException) -> bool:
    """Return whether a call failed because there is no such file or directory."""
    exception = getattr(error, "java_exception", None)
    return exception is not None and str(exception.getClass().getSimpleName()) == "FileNotFoundException"


def _causes(exception: Any) -> list[str]:
    texts: list[str] = []
    while exception is not None and len(texts) < CAUSES_MAX:
        name = str(exception.getClass().getSimpleName())
        message = exception.getMessage()
        texts.append(message if message and name in TELLING else f"{name}: {message}" if message else name)
        exception = exception.getCause()
    return texts
