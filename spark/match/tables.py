"""Rows of the tables as the matcher gives them: Arrow record batches."""

from typing import TypeAlias

import pyarrow as pa

NAMES = ("messages", "deliveries", "intervals", "quarantine", "lines")
# By table (NAMES): rows in the columns of spark.lake.arrow.ARROW, None for no row.
Rows: TypeAlias = dict[str, pa.RecordBatch | None]
