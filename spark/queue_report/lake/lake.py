"""The lake: one Delta table for all tables, so that a build's rows, and what it has read, are one version, or nothing.

Only Delta's log is read and written here, for which neither pyarrow nor Spark is needed; the rows are in
queue_report.lake.data_files.

It is stored by table and date: LAKE/tbl=messages/date=2026-01-02/NAME.parquet; a row's table and date are not in the
file. Delta's log says which files count, and keeps earlier versions: what no longer counts stays for KEPT hours, for
whoever reads it, then it is removed. There is no lock: of two builds that end with one version the second is refused.
"""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import NamedTuple

from deltalake import CommitProperties, DeltaTable, Field, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import ArrayType, PrimitiveType
from deltalake.transaction import AddAction, RemoveAction

from queue_base.errors import Permanent, Temporary, reason
from queue_report.runtime.files import Files, LocalFiles, as_os_error, local_path, make_directory, open_files
from queue_report.schema.columns import COLUMNS, PARTITIONED

# The columns by which it is stored; what Delta calls the directory of rows without a date.
STORED_BY = ["tbl", "date"]
NO_DATE = "__HIVE_DEFAULT_PARTITION__"
# Hours that a version stays readable (`--as-of`), and files that a build has left which died stay there.
KEPT = 24
# A later program that changes what rows mean gives this another number; an earlier one then leaves the lake alone.
FORM = "form 5"
PROGRAM = "queue-report"
# The directory by which a lake of the form before is told.
OLD_MANIFESTS = "_manifest"
_SETTINGS = {
    "delta.logRetentionDuration": f"interval {KEPT} hours",
    "delta.deletedFileRetentionDuration": f"interval {KEPT} hours",
    "delta.checkpointInterval": "100",
}
# By our names of types, those that Delta and Spark SQL have; `longs` is a list.
KINDS = {
    "string": "string", "long": "long", "int": "integer", "boolean": "boolean", "time": "timestamp", "date": "date",
}  # fmt: skip
# Files of a table are put together up to so many bytes.
WANTED = 128 << 20


# The name under which a version says what was done.
_DONE = "done"


class LaterLake(Permanent):
    """A later version of this program has written the lake."""


class Conflict(Exception):
    """Another build has made a version meanwhile."""


class Unsettled(OSError):
    """A version may count, or may not for good. standing: which, in words."""

    standing = "nobody can tell now whether what was new in the logs is in it"


class Unsafe(Unsettled):
    """A version counts, and may be lost by a power cut."""

    standing = "what was new in the logs is in it, but a power cut may undo that"


class Written(NamedTuple):
    """A data file: its path below the lake, bytes and rows. date: ISO 8601, None in tables that are not by date."""

    table: str
    date: str | None
    path: str
    size: int
    rows: int


@dataclass(frozen=True)
class Lake:
    """A lake as it is after one build, its files by table. number: the version. made: when, ISO 8601, UTC."""

    files: Files
    number: int
    made: str
    tables: Mapping[str, tuple[str, ...]]
    delta: DeltaTable

    def file_paths(self, table: str) -> list[str]:
        """Return the paths of a table's files, as Spark and DuckDB open them."""
        return [f"{self.files.root}/{path}" for path in self.tables[table]]

    def history(self) -> list[tuple[int, str, str]]:
        """Return the versions that can be read: number, when it was made (ISO 8601, UTC), and what was done, newest
        first. Raises OSError."""
        try:
            versions = self.delta.history()
        except (DeltaError, OSError) as error:
            raise as_os_error(error) from error
        return [
            (one["version"], _when(one["timestamp"]), one.get(_DONE) or one["operation"].lower()) for one in versions
        ]

    def commit(self, written: Iterable[Written], removed: Iterable[str], done: str) -> "Lake":
        """Make the next version: with more files and without others. done: what was done, in words.

        Raises Conflict, and OSError: then nothing has changed, unless it is Unsettled.
        """
        added = list(written)
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(path, size, {"tbl": table, "date": day}, now, True, f'{{"numRecords": {rows}}}')
            for table, day, path, size, rows in added
        ]
        actions += [RemoveAction(path=path, data_change=True, deletion_timestamp=now) for path in removed]
        self.files.sync(one.path for one in added)
        try:
            self.delta.create_write_transaction(
                actions,
                "append",
                _schema(),
                STORED_BY,
                commit_properties=CommitProperties({_DONE: done}, max_commit_retries=0),
            )
        except (DeltaError, OSError) as error:
            self._explain(error, added)
        try:
            after = open_lake(self.files.root, self.files.store)
            after.make_safe()
        except OSError as error:
            raise Unsafe(*error.args) from error
        except Temporary as error:
            raise Unsafe(str(error)) from error
        return after

    def _explain(self, error: Exception, added: list[Written]) -> None:
        """Raise what a version that delta-rs was unable to make is; return if it was made: an answer may get lost."""
        try:
            latest = open_lake(self.files.root, self.files.store)
        except Temporary:
            raise Unsettled(*as_os_error(error).args) from error
        if added and added[0].path in latest.tables[added[0].table]:
            return
        if latest.number > self.number:
            raise Conflict from error
        # A store may still do what it was asked for.
        why = as_os_error(error)
        raise (why if isinstance(self.files, LocalFiles) else Unsettled(*why.args)) from error

    def make_safe(self) -> None:
        """Have this version survive a power cut. Raises OSError."""
        try:
            self.files.sync([f"_delta_log/{self.number:020}.json"])
        except FileNotFoundError:
            # It is old, and has become a checkpoint.
            return

    def expire(self, days: int) -> "Lake | None":
        """Make a version without dates more than `days` days ago; None where there are none."""
        first = date.fromordinal(max(1, datetime.now(UTC).date().toordinal() - days)).isoformat()
        old = [path for table in PARTITIONED for path in self.tables[table] if date_of(path) < first]
        return self.commit([], old, f"dropped dates before {first}") if old else None

    def compact(self) -> int:
        """Put small files of each table and date together; return how many there were. Raises Conflict, OSError."""
        try:
            done = self.delta.optimize.compact(target_size=WANTED)
            self.delta.create_checkpoint()
            self.delta.cleanup_metadata()
        except CommitFailedError as error:
            self._explain(error, [])
            raise
        except (DeltaError, OSError) as error:
            raise as_os_error(error) from error
        return int(done["numFilesRemoved"])

    def vacuum(self) -> None:
        """Remove files that do not count since KEPT hours, and those that dead builds have left. Raises OSError."""
        try:
            self.delta.vacuum(KEPT, dry_run=False, enforce_retention_duration=False, full=True)
        except (DeltaError, OSError) as error:
            raise as_os_error(error) from error


def open_lake(uri: str, store: Mapping[str, str] | None = None, version: int | None = None) -> Lake:
    """Return a lake, or an earlier version of it.

    Raises Permanent where there is none, or it is something else, or of a later program; Temporary where it cannot be
    read now.
    """
    try:
        files = _open(uri, store)
        if isinstance(files, LocalFiles):
            os.close(os.open(files.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        delta = DeltaTable(files.root, version=version, storage_options=dict(store or {}) or None)
        about = delta.metadata()
        found = delta.get_add_actions(flatten=True).column("path").to_pylist()
        made = delta.history(1)[0]["timestamp"]
    except TableNotFoundError as error:
        raise no_lake(uri) from error
    except DeltaError as error:
        if version is not None and "version" in str(error).lower():
            raise Permanent(f"unable to open lake {uri}: it has no version {version} (any more)") from error
        raise Temporary(f"unable to open lake {uri}: {reason(as_os_error(error))}; nothing is shown") from error
    except OSError as error:
        why = as_os_error(error)
        if isinstance(why, (FileNotFoundError, NotADirectoryError)):
            raise no_lake(uri) from error
        raise Temporary(f"unable to open lake {uri}: {reason(why)}; nothing is shown") from error
    if about.name != PROGRAM:
        raise Permanent(f"unable to open lake {uri}: it is a Delta table of something else")
    if about.description != FORM:
        raise LaterLake(
            f"unable to open lake {uri}: a later queue-report made it ({about.description}, ours is {FORM}); use that"
        )
    tables: dict[str, list[str]] = {table: [] for table in COLUMNS}
    for path in sorted(found):
        tables.setdefault(path.split("/", 1)[0].removeprefix("tbl="), []).append(path)
    return Lake(files, delta.version(), _when(made), {name: tuple(paths) for name, paths in tables.items()}, delta)


def _open(uri: str, store: Mapping[str, str] | None) -> Files:
    files = open_files(uri, store)
    if odd := next((letter for letter in "%#?\\" if letter in files.root and local_path(uri) is not None), ""):
        raise Permanent(f"unable to open lake {uri}: its path has {odd}, which delta-rs takes for another")
    return files


def open_local(uri: str, version: int | None = None) -> Lake:
    """Return a lake in a directory of this machine. Raises as open_lake does."""
    if local_path(uri) is None:
        raise Permanent(f"unable to open lake {uri}: it is not on this machine; use --engine spark")
    return open_lake(uri, version=version)


def no_lake(uri: str) -> Permanent:
    """Return the error for a place without a lake."""
    return Permanent(
        f"unable to open lake {uri}: there is no lake of queue-report; "
        f"make it with `queue-report build LOGS --lake {uri}`"
    )


def make_lake(uri: str, store: Mapping[str, str] | None = None) -> Lake:
    """Return a lake; make it where there is none. Raises as open_lake does, and OSError where it cannot be made.

    Where a lake of the form before is, the new one is made beside it, at version 0: see queue_report.lake.old.
    """
    files = _open(uri, store)
    options = dict(store or {}) or None
    try:
        if not DeltaTable.is_deltatable(files.root, storage_options=options):
            _refuse_others(uri, files)
            if isinstance(files, LocalFiles):
                make_directory(files.root)
            DeltaTable.create(
                files.root,
                _schema(),
                partition_by=STORED_BY,
                name=PROGRAM,
                description=FORM,
                configuration=_SETTINGS,
                storage_options=options,
            )
    except DeltaError as error:
        # Another build may just have made it.
        if not DeltaTable.is_deltatable(files.root, storage_options=options):
            raise as_os_error(error) from error
    except OSError as error:
        _refuse_others(uri, files)
        raise as_os_error(error) from error
    return open_lake(uri, store)


def _refuse_others(uri: str, files: Files) -> None:
    """Raise Permanent where a lake is to be made and there is something else."""
    try:
        found = [entry.name for entry in files.list()]
    except FileNotFoundError:
        return
    if found == [""]:
        raise Permanent(f"unable to build lake {uri}: it is a file; name a new directory")
    if OLD_MANIFESTS in found:
        return
    foreign = [name for name in found if name != "_delta_log" and not name.startswith("tbl=")]
    if foreign:
        raise Permanent(f"unable to build lake {uri}: it is no lake, and holds {foreign[0]}; name a new directory")


def _when(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")


def date_of(path: str) -> str:
    """Return the date of a data file, as its directory says."""
    return path.split("/", 2)[1].removeprefix("date=")


def _schema() -> Schema:
    """Return the columns of all tables, in Delta's types."""
    kinds = {name: kind for columns in COLUMNS.values() for name, kind in columns.items()}
    fields = [Field("tbl", PrimitiveType("string"))]
    for name, kind in kinds.items():
        longs = kind == "longs"
        fields.append(Field(name, ArrayType(PrimitiveType("long")) if longs else PrimitiveType(KINDS[kind])))
    return Schema(fields)
