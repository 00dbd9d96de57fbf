"""The log pipeline: from directories of logs to tables and reports, on Spark. See docs/design/lake.md.

Everything here runs on the driver or inside Spark's own functions; no line of a log ever passes through Python.
"""
