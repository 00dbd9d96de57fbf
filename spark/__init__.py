"""The log pipeline: from directories of logs to tables and reports, on Spark. INTERNALS.md and LOGS.md say how.

Everything here runs on the driver or inside Spark's own functions; no line of a log ever passes through Python.
"""
