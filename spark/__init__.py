"""The log pipeline: from directories of logs to tables and reports. See docs/design/lake.md.

match is pure and knows neither files nor Spark; logs says what is new in which files; lake writes tables; reports asks
DuckDB or Spark SQL; page makes a document of the answers; watch builds again and again; runtime has Spark and Java.
"""
