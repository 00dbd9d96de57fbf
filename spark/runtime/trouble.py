"""The old name of spark.runtime.errors, until every branch has the new one."""

from spark.runtime.errors import JAVA_ERRORS, is_missing, java_reason, shorten

__all__ = ["JAVA_ERRORS", "is_missing", "java_reason", "shorten"]
