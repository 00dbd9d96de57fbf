"""Taking over a lake of the form before, which had files by date and host, and manifests of its own that listed them.

Its rows are written once more, as the first version of the Delta table in the same directory; then its files go. A
build that dies in between has changed nothing: the next one begins anew.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from queue_base.errors import Failure, Permanent
from queue_report.lake.data_files import RowWriter, read_rows
from queue_report.lake.lake import OLD_MANIFESTS, Conflict, Lake, Unsettled, open_lake
from queue_report.logs.reading import old_head
from queue_report.match.rows import fill
from queue_report.runtime.files import LocalFiles
from queue_report.schema.arrow import ARROW
from queue_report.schema.columns import COLUMNS

# What such a lake has beside its tables.
_BESIDE = ("_batch", "_lock", OLD_MANIFESTS)


def take_over(lake: Lake, phase: Callable[[str], None]) -> Lake:
    """Return the lake with what one of the form before has in its directory, if there is one.

    Raises Permanent where that is damaged, Conflict, OSError.
    """
    if OLD_MANIFESTS not in {entry.name for entry in lake.files.list()}:
        return lake
    if lake.number == 0:
        phase("taking over a lake of the form before")
        writer = RowWriter(lake.files, datetime.now(UTC).date())
        try:
            _write_rows(lake, writer)
            lake = lake.commit(writer.close(), [], "took over a lake of the form before")
        except Unsettled:
            raise
        except (Conflict, Failure, OSError) as error:
            writer.undo()
            if open_lake(lake.files.root, lake.files.store).number:
                # Another build has done it, and removes what was to be read.
                raise Conflict from error
            raise
    if isinstance(lake.files, LocalFiles):
        # The table `lines` and others have directories of their names. What tells that there is such a lake goes last.
        for name in (*COLUMNS, *_BESIDE):
            path = os.path.join(lake.files.root, name)
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                continue
            except NotADirectoryError:
                lake.files.remove(name)
    return lake


def _write_rows(lake: Lake, writer: RowWriter) -> None:
    manifest = _read_manifest(lake)
    for table in COLUMNS:
        for path in manifest["tables"].get(table, ()):
            for batch in _read_rows(lake, table, path).to_batches():
                writer.add({table: batch})
    for stream, state in manifest["state"].items():
        host, _, queue = stream.partition("/")
        kept = json.dumps(_state_of(state) | {"counts": manifest["counts"].get(stream, {})}, separators=(",", ":"))
        writer.add({"streams": fill("streams", {"state": [kept]}, {"host": host, "queue": queue}, 1)})


def _read_manifest(lake: Lake) -> dict[str, Any]:
    """Return the newest manifest that is whole."""
    names = [entry.name for entry in lake.files.list(OLD_MANIFESTS) if entry.name.endswith(".json")]
    for name in sorted(names, reverse=True):
        try:
            found: dict[str, Any] = json.loads(lake.files.read(f"{OLD_MANIFESTS}/{name}"))
        except ValueError:
            continue
        if found.get("whole") is True:
            return found
    if names:
        raise Permanent(
            f"unable to open lake {lake.files.root}: none of its manifests is whole; build a new one from the logs"
        )
    return {"tables": {}, "state": {}, "counts": {}}


def _read_rows(lake: Lake, table: str, path: str) -> pa.Table:
    """Return the rows of a data file; its directories say date and host."""
    named = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    found = read_rows(lake.files, f"{table}/{path}")
    columns = []
    for column in ARROW[table]:
        if column.name in found.column_names:
            columns.append(found.column(column.name).cast(column.type))
        elif column.name in named:
            value: Any = unquote(named[column.name])
            value = date.fromisoformat(value) if column.name == "date" else value
            columns.append(pa.repeat(pa.scalar(value, column.type), found.num_rows))
        else:
            columns.append(pa.nulls(found.num_rows, column.type))
    return pa.table(columns, schema=ARROW[table])


def _state_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of a stream in today's form."""
    files = {}
    for name, known in state.get("files", {}).items():
        # A compressed file was known by its own size, and by that and the last bytes of its content.
        size, read, last = (known[0], *known[3:5]) if len(known) > 3 else (known[0], known[0], known[1])
        files[name] = [size, read, old_head(last), known[2]]
    reading = {"files": files, "last": state.get("last", ""), "carried": state.get("carried", "")}
    return reading | {"mark": {name: value for name, value in state.items() if name not in reading}}
