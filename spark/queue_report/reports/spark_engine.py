"""Spark SQL over a lake of any file system."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
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
from queue_report.lake.data_files import read_streams
from queue_report.lake.lake import open_lake
from queue_report.lake.tables import read_table
from queue_report.reports.engine import Result, check_columns, write_text
from queue_report.reports.functions import FUNCTIONS
from queue_report.reports.report import Report, View
from queue_report.reports.statement import Statement, ask, state
from queue_report.runtime.errors import JAVA_ERRORS, java_reason

_KINDS: tuple[tuple[type[DataType], str], ...] = (
    (IntegralType, "bigint"), (DecimalType, "decimal"), (FractionalType, "double"), (StringType, "text"),
    (TimestampType, "timestamp"), (TimestampNTZType, "timestamp"), (DateType, "date"), (BooleanType, "boolean"),
)  # fmt: skip
_EPOCH = datetime(1970, 1, 1)


class SparkEngine:
    """The tables of a lake in a session, which its caller ends. Raises as open_lake does."""

    def __init__(
        self, session: SparkSession, lake: str, store: Mapping[str, str] | None = None, version: int | None = None
    ) -> None:
        self._session = session
        self.lake = open_lake(lake, store, version)
        self._tables: dict[str, DataFrame] = {}

    def report(self, report: Report, view: View) -> Result:
        result = self._run(state(report, view), f"unable to show {report.name}")
        check_columns(report, result.names)
        return result

    def query(self, sql: str, view: View | None = None) -> Result:
        trouble = "unable to run the statement"
        try:
            return self._run(ask(sql, view), trouble)
        except ValueError as error:
            raise Permanent(f"{trouble}: {error}") from error

    def counts(self) -> dict[str, dict[str, int]]:
        return {"/".join(stream): state.get("counts", {}) for stream, state in read_streams(self.lake).items()}

    def close(self) -> None:
        """Leave the session as it is."""

    def _table(self, table: str) -> DataFrame:
        if table not in self._tables:
            self._tables[table] = read_table(self._session, self.lake, table)
        return self._tables[table]

    def _run(self, statement: Statement, trouble: str) -> Result:
        try:
            # Each time, because an engine of another lake may have taken the names.
            for table in statement.tables():
                self._table(table).createOrReplaceTempView(f"all_{table}")
            for create in statement.functions([function.create() for function in FUNCTIONS]):
                self._session.sql(create)
            for name, text in statement.views:
                self._session.sql(text).createOrReplaceTempView(name)
            frame = self._session.sql(statement.select)
            kinds = tuple(_kind(field.dataType) for field in frame.schema.fields)
        except JAVA_ERRORS as error:
            raise _failure(trouble, error) from error
        return Result(tuple(frame.columns), kinds, _rows(frame, trouble))


def _kind(found: DataType) -> str:
    if isinstance(found, DecimalType) and found.scale == 0:
        return "bigint"
    return next((name for kind, name in _KINDS if isinstance(found, kind)), "text")


def _rows(frame: DataFrame, trouble: str) -> Iterator[tuple[Any, ...]]:
    types = [field.dataType for field in frame.schema.fields]
    changed = [(i, change) for i, found in enumerate(types) if (change := _change(found)) is not None]
    # In Python a timestamp would be in the zone of this machine; as a number it is what it is.
    times = [i for i, found in enumerate(types) if isinstance(found, (TimestampType, TimestampNTZType))]
    frame = frame.toDF(*(f"c{i}" for i in range(len(types))))
    frame = frame.withColumns({f"c{i}": F.unix_micros(F.col(f"c{i}").cast("timestamp")) for i in times})
    try:
        for row in frame.toLocalIterator(prefetchPartitions=True):
            cells = list(row)
            for i, change in changed:
                if cells[i] is not None:
                    cells[i] = change(cells[i])
            yield tuple(cells)
    except JAVA_ERRORS as error:
        raise _failure(trouble, error) from error


def _change(found: DataType) -> Callable[[Any], Any] | None:
    """Return what makes Result's value of Python's for a type; None for nothing."""
    if isinstance(found, DecimalType):
        return int if found.scale == 0 else None
    if isinstance(found, (TimestampType, TimestampNTZType)):
        return lambda micros: _EPOCH + timedelta(microseconds=micros)
    return None if any(isinstance(found, kind) for kind, _ in _KINDS) else write_text


def _failure(trouble: str, error: BaseException) -> Failure:
    from pyspark.errors import AnalysisException, ParseException

    if isinstance(error, (AnalysisException, ParseException)):
        line = next(iter(str(error).strip().splitlines()), "no reason given")
        return Permanent(f"{trouble}: {re.sub(r' ?SQLSTATE: [0-9A-Z]+', '', line).rstrip(';')}")
    return Temporary(f"{trouble}: {java_reason(error)}; run it again")
