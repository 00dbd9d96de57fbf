"""Small tables that the driver makes: for Spark they are constants, so that no Python process takes part in a query."""

import json
from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType


def make_table(session: SparkSession, rows: Iterable[Sequence[object]], schema: StructType) -> DataFrame:
    """Return the rows as a DataFrame with one partition. Their values are such as JSON has."""
    text = json.dumps([dict(zip(schema.names, row, strict=True)) for row in rows])
    return session.range(0, 1, 1, 1).select(F.inline(F.from_json(F.lit(text), ArrayType(schema))))
