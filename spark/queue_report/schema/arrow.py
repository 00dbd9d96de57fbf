"""The tables (columns.py) in Arrow's types."""

import pyarrow as pa

from queue_report.schema.columns import COLUMNS

_KINDS = {
    "string": pa.string(), "long": pa.int64(), "int": pa.int32(), "boolean": pa.bool_(),
    "time": pa.timestamp("us", "UTC"), "date": pa.date32(), "longs": pa.list_(pa.int64()),
}  # fmt: skip

ARROW: dict[str, pa.Schema] = {
    table: pa.schema([(name, _KINDS[kind]) for name, kind in columns.items()]) for table, columns in COLUMNS.items()
}
