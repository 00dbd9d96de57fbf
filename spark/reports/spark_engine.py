"""Spark SQL over a lake of any file system."""

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from queue_base.errors import Failure, Permanent, Temporary
from spark.lake.schema import Tables
from spark.lake.store import open_tables
from spark.reports.engine import Result, check_columns
from spark.reports.functions import FUNCTIONS, INTEGER
from spark.reports.report import Report, View
from spark.reports.statement import TABLES, Statement, compose, state
from spark.runtime.trouble import JAVA_ERRORS, java_reason

_KINDS: tuple[tuple[type[DataType], str], ...] = (
    (IntegralType, "bigint"), (DecimalType, "decimal"), (FractionalType, "double"), (StringType, "text"),
    (TimestampType, "timestamp"), (TimestampNTZType, "timestamp"), (DateType, "date"), (BooleanType, "boolean"),
)  # fmt: skip


class SparkEngine:
    """The tables of a lake in a session, which its caller ends. Raises as open_tables does."""

    def __init__(self, session: SparkSession, lake: str) -> None:
        self._start(session, open_tables(session, lake))

    @classmethod
    def of_tables(cls, session: SparkSession, tables: Tables) -> "SparkEngine":
        """Return an engine over tables that are no lake."""
        engine = cls.__new__(cls)
        engine._start(session, tables)
        return engine

    def _start(self, session: SparkSession, tables: Tables) -> None:
        self._session = session
        for name, parameters, returns, body in FUNCTIONS:
            typed = ", ".join(f"{parameter} {INTEGER}" for parameter in parameters)
            session.sql(f"create or replace temporary function {name}({typed}) returns {returns} return {body}")
        for table in TABLES:
            getattr(tables, table).createOrReplaceTempView(f"all_{table}")

    def report(self, report: Report, view: View) -> Result:
        result = self._run(state(report, view), f"unable to show {report.name}")
        check_columns(report, result.names)
        return result

    def query(self, sql: str, view: View | None = None) -> Result:
        return self._run(compose(sql, view or View(), windowed=True), "unable to run the statement")

    def close(self) -> None:
        """Leave the session as it is."""

    def _run(self, statement: Statement, trouble: str) -> Result:
        try:
            for name, text in statement.views:
                self._session.sql(text).createOrReplaceTempView(name)
            frame = self._session.sql(statement.select)
            kinds = tuple(_kind(field.dataType) for field in frame.schema.fields)
        except JAVA_ERRORS as error:
            raise _failure(trouble, error) from error
        return Result(tuple(frame.columns), kinds, _rows(frame, kinds, trouble))


def _kind(found: DataType) -> str:
    return next((name for kind, name in _KINDS if isinstance(found, kind)), "json")


def _rows(frame: DataFrame, kinds: tuple[str, ...], trouble: str) -> Iterator[tuple[Any, ...]]:
    from datetime import UTC, datetime, timedelta

    # In Python a timestamp would be in the zone of this machine; as a number it is what it is.
    start = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    times = [i for i, kind in enumerate(kinds) if kind == "timestamp"]
    odd = [i for i, kind in enumerate(kinds) if kind == "json"]
    numbered = frame.toDF(*(f"c{i}" for i in range(len(kinds))))
    numbered = numbered.withColumns({f"c{i}": F.unix_micros(F.col(f"c{i}").cast("timestamp")) for i in times})
    try:
        for row in numbered.toLocalIterator(prefetchPartitions=True):
            if not times and not odd:
                yield tuple(row)
                continue
            cells = list(row)
            for i in times:
                cells[i] = None if cells[i] is None else start + timedelta(microseconds=cells[i])
            for i in odd:
                cells[i] = None if cells[i] is None else json.dumps(cells[i], default=str)
            yield tuple(cells)
    except JAVA_ERRORS as error:
        raise _failure(trouble, error) from error


def _failure(trouble: str, error: BaseException) -> Failure:
    from pyspark.errors import AnalysisException, ParseException

    if isinstance(error, (AnalysisException, ParseException)):
        return Permanent(f"{trouble}: {java_reason(error)}")
    return Temporary(f"{trouble}: {java_reason(error)}; run it again")
