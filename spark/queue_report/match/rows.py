"""Rows of the tables as the matcher gives them: Arrow record batches, made of columns of Python values or of arrays."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_report.schema.arrow import ARROW
from queue_report.schema.columns import OF_MESSAGE
from queue_wire.format_error import FormatError
from queue_wire.ids import unpack_long_id

# By table: rows in the columns of queue_report.schema.arrow.ARROW. A table that has none is not there.
Rows: TypeAlias = dict[str, pa.RecordBatch]
Columns: TypeAlias = dict[str, Any]

TEXT_MAX = 1000  # Characters that are kept of a line that is text.
# By table, the types of its columns: to ask a schema takes longer.
_KINDS = {table: {column.name: column.type for column in schema} for table, schema in ARROW.items()}
_DAY = 86_400_000_000_000
_LONG_MAX = 2**63 - 1


def add_facts(columns: Columns, facts: Sequence[tuple[Any, ...]]) -> None:
    """Add the columns of what `info` tells of messages."""
    for place, name in enumerate(OF_MESSAGE):
        columns[name] = column_of(facts, place)


def column_of(rows: Sequence[tuple[Any, ...]], place: int) -> list[Any]:
    """Return one value of each row. (zip(*rows) makes an object for each row, which costs several times as much.)"""
    return [row[place] for row in rows]


def add_address(columns: Columns, addresses: Sequence[bytes]) -> None:
    """Add channel, recipient and domain of addresses, such as `remote R`."""
    columns["channel"] = ["remote" if one[0] == 114 else "local" for one in addresses]
    recipients = [one[one.index(b" ") + 1 :] for one in addresses]
    columns["recipient"] = recipients
    columns["domain"] = [domain_of(one) for one in recipients]


def domain_of(recipient: bytes) -> bytes:
    """Return what follows the last @, in lower case; empty for none."""
    place = recipient.rfind(b"@") + 1
    if not place:
        return b""
    domain = recipient[place:]
    return domain.lower() if domain.isascii() else domain.decode().lower().encode()


def born_of(long_id: bytes) -> tuple[int | None, int | None]:
    """Return the message number and the birth in nanoseconds of a long id; None for both if it is none.

    Where a host has several queues, the name of its queue and a slash are before it.
    """
    try:
        number, birth = unpack_long_id(long_id.rpartition(b"/")[2].decode())
    except (FormatError, UnicodeDecodeError):
        return None, None
    return (None, None) if birth is None or max(number, birth * 1000) > _LONG_MAX else (number, birth * 1000)


def fill(table: str, columns: Mapping[str, Any], constant: Mapping[str, str], size: int) -> pa.RecordBatch:
    """Return rows of a table. columns: sequences, numpy's arrays or Arrow's; texts may be UTF-8. What is missing is
    null, but for times and `date`, which follow from nanoseconds. constant: columns with one value."""
    made: dict[str, pa.Array] = {}
    kinds = _KINDS[table]
    for name, values in columns.items():
        made[name] = _array(values, kinds[name])
    for name, value in constant.items():
        made[name] = pa.repeat(pa.scalar(value, kinds[name]), size)
    for name, kind in kinds.items():
        if name not in made and f"{name}_ns" in made:
            made[name] = _scale(made[f"{name}_ns"], 1000, pa.int64()).view(kind)
        elif name == "date":
            made[name] = _scale(_dated(made), _DAY, pa.int32()).view(kind)
        elif name not in made:
            made[name] = pa.nulls(size, kind)
    return pa.RecordBatch.from_arrays([made[name] for name in kinds], schema=ARROW[table])


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if kind == pa.string() and not isinstance(values, np.ndarray) and len(values) and not isinstance(values[0], str):
        try:
            # Their UTF-8 is checked as a whole, which costs less.
            texts = pa.array(values, pa.binary()).view(kind)
            texts.validate(full=True)
            return texts
        except pa.ArrowTypeError:
            pass
    return pa.array(values, kind)


def _dated(made: Mapping[str, pa.Array]) -> pa.Array:
    """Return the nanoseconds that a row is dated by."""
    if "done_ns" in made:
        return pc.coalesce(made["done_ns"], made["start_ns"]) if "start_ns" in made else made["done_ns"]
    return made["at_ns"] if "at_ns" in made else made["time_ns"]


def _scale(nanoseconds: pa.Array, unit: int, kind: pa.DataType) -> pa.Array:
    """Return whole units of nanoseconds, rounded down; null where they are."""
    mask = nanoseconds.is_null().to_numpy(zero_copy_only=False) if nanoseconds.null_count else None
    values = nanoseconds.fill_null(0).to_numpy() if mask is not None else nanoseconds.to_numpy()
    return pa.array(values // unit, kind, mask=mask)
