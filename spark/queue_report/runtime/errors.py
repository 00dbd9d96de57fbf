"""What went wrong in Spark, in a few words: no trace of Java's stack, or of Python's on an executor, is ever shown."""

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

# What a call of Spark raises. Over Spark Connect it is PySparkException alone.
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
# What Python says of an exception after its stack; and the names of Java's exceptions, with the text of each.
_PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)", re.MULTILINE)
_CAUSE = re.compile(r"^(?:Caused )?(?:by)?: (?:[a-z]\w*\.)*([A-Z]\w*)(?:: (.*))?", re.MULTILINE)


def java_reason(error: BaseException) -> str:
    """Return why a call of Spark failed: a system call's error alone, or else the innermost cause's first line."""
    # Spark Connect keeps the causes apart from the text; py4j has them in it.
    stack = error.getStackTrace() if hasattr(error, "getStackTrace") else ""
    return shorten(f"{error}\n{stack or ''}")


def shorten(text: str) -> str:
    """Return one line of an exception's text and, after it, its stack and causes, outermost first."""
    for words in KNOWN:
        if words in text:
            return OUT_OF_MEMORY if words == "OutOfMemoryError" else words[0].lower() + words[1:]
    raised = _PYTHON.findall(text)
    if raised:
        return str(raised[-1]).strip()
    name, message = next(reversed(_CAUSE.findall(text)), ("", ""))
    if name and not (message and name in TELLING):
        return f"{name}: {message}".rstrip(": ")
    return message.strip() or next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
