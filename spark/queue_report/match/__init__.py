"""Matching: from the lines of a stream, and what was open before them, to rows, and what is open after them.

No Spark and no files: lines come as bytes, rows are Arrow's.
"""

from queue_report.match.matcher import Matcher
from queue_report.match.state import State

__all__ = ["Matcher", "State"]
