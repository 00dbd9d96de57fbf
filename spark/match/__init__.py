"""The matcher: from the lines of a log to messages, deliveries and intervals. No Spark, no I/O, no clock.

A stream (the log of one queue) is cut into segments. Each is matched by a Matcher, which gives rows and an Edge; `join`
goes through the edges of a stream in order, from the State before its first segment to the one after its last. If
`fits` says that the rows of a segment are not valid after that state, the segment is matched again, beginning with it.
"""

from spark.match.edge import Edge, fits, join
from spark.match.lines import Lines, split_lines
from spark.match.matcher import Matcher
from spark.match.rows import Rows
from spark.match.state import State

__all__ = ["Edge", "Lines", "Matcher", "Rows", "State", "fits", "join", "split_lines"]
