"""One new state of the lake in the making: data files are written aside, moved in, and then a manifest lists them.

Nothing has changed until the manifest is there. What a dead build has left is in LAKE/_batch: the files that it was
about to move are listed there before the first is moved, so no table has to be searched.
"""

import json
import posixpath
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from queue_base.errors import Failure, Permanent
from spark.lake.lock import LOCK
from spark.lake.manifest import Manifest, pack
from spark.lake.newest import MANIFESTS, find_manifest, manifest_numbers, manifest_path
from spark.runtime.places import Place, for_each, list_if_there, walk
from spark.tables.columns import COLUMNS

BATCHES = "_batch"
MOVES = "moves.json"
# How long (seconds) a file that no longer counts stays, for whoever reads the lake meanwhile.
GRACE = 600


def prepare(place: Place) -> Manifest:
    """Make the lake where there is none, and remove what dead builds left. Returns its manifest; call it with the lock.

    Raises OSError where the lake cannot be written.
    """
    left = list_if_there(place, BATCHES)
    if left:
        # One of them may have given its manifest the name, and not have made that safe.
        place.sync([MANIFESTS])
    manifest = find_manifest(place) or Manifest()
    for batch in left:
        _sweep(place, posixpath.join(BATCHES, batch.name), manifest.files())
    return manifest


def make_lake(place: Place) -> None:
    """Make the directory of a lake. Raises Permanent where there is something else, OSError where it cannot be made."""
    found = [entry.name for entry in list_if_there(place)]
    if MANIFESTS in found:
        return
    if place.is_file():
        raise Permanent(f"unable to build lake {place.root}: it is a file; name a new directory")
    foreign = [name for name in found if name not in (LOCK, BATCHES, *COLUMNS)]
    if foreign:
        raise Permanent(
            f"unable to build lake {place.root}: it is no lake, and holds {foreign[0]}; name a new directory"
        )
    place.make_directory(MANIFESTS)
    place.sync([MANIFESTS, ""])


class Update:
    """What a build adds and takes away. Call stage and drop, then move, commit and clean; or abandon.

    doomed: files that were dropped long enough ago to be removed now. is_safe: whether it stays after a power cut.
    """

    def __init__(self, place: Place, before: Manifest) -> None:
        self.is_safe = False
        self._place = place
        self._before = before
        self._number = max([before.number, *manifest_numbers(place)]) + 1
        self._home = posixpath.join(BATCHES, f"{self._number:06}")
        self._tables = {table: dict(before.tables.get(table, {})) for table in COLUMNS}
        self._dropped = {path: when for path, when in before.dropped.items() if when > time.time() - GRACE}
        self.doomed = [path for path in before.dropped if path not in self._dropped and _is_data(path)]
        place.make_directory(self._home)

    def home(self, *names: str) -> str:
        """Return the path of a directory of the update's own, or of what is in it; it is gone after the update.

        What is a Parquet file below home(TABLE) becomes part of the table with the commit.
        """
        return posixpath.join(self._home, *names)

    def drop(self, table: str, paths: Iterable[str]) -> None:
        """Take files out of a table; they stay on the disk for a while."""
        for path in list(paths):
            del self._tables[table][path]
            self._dropped[posixpath.join(table, path)] = int(time.time())

    def move(self, wanted: Collection[tuple[str, str]] | None = None) -> None:
        """Move what was staged to where the tables are, and make it safe.

        wanted: tables and paths below home(TABLE); all that is there if it is None. An executor that was taken for dead
        may have left others.
        """
        moves = {
            old: (table, new, size)
            for table in COLUMNS
            for old, new, size in self._moves_of(table, None if wanted is None else set(wanted))
        }
        targets = [posixpath.join(table, new) for table, new, _ in moves.values()]
        self._place.write(posixpath.join(self._home, MOVES), json.dumps(targets + self.doomed).encode())
        self._place.sync([posixpath.join(self._home, MOVES), self._home, BATCHES, ""])
        for_each(self._place, self._place.make_directory, {posixpath.dirname(target) for target in targets})
        for_each(self._place, self._place.rename, moves, targets)
        self._place.sync([*targets, *_directories(targets)])
        for table, new, size in moves.values():
            self._tables[table][new] = size

    def commit(self, state: Mapping[str, Any], counts: Mapping[str, Mapping[str, int]]) -> Manifest:
        """Make the update what the lake is. counts: of all lines ever read. Returns the new manifest."""
        made = datetime.now(UTC).isoformat(timespec="seconds")
        new = Manifest(self._number, made, self._tables, state, counts, self._dropped)
        path = manifest_path(self._number)
        self._place.write(f"{path}.new", pack(new))
        self._place.sync([f"{path}.new"])
        self._place.rename(f"{path}.new", path)
        self._place.sync([MANIFESTS])
        self.is_safe = True
        return new

    def clean(self) -> None:
        """Remove what nobody needs after the commit: what was dropped a while ago, and the build's own directory."""
        _remove(self._place, self.doomed)
        for number in manifest_numbers(self._place):
            if number not in (self._number, self._before.number):
                self._place.remove(manifest_path(number))
        self._place.remove(self._home)

    def abandon(self) -> bool | None:
        """Remove what was written, unless it counts; what cannot be removed now, the next build removes.

        Returns whether it counts, as it may where commit has failed; None where nobody can tell.
        """
        try:
            manifest = find_manifest(self._place)
        except (Failure, OSError):
            return None
        if manifest is not None and manifest.number == self._number:
            return True
        with suppress(OSError):
            self._place.remove(f"{manifest_path(self._number)}.new")
            _sweep(self._place, self._home, manifest.files() if manifest else set())
        return False

    def _moves_of(self, table: str, wanted: set[tuple[str, str]] | None) -> Iterable[tuple[str, str, int]]:
        """Yield for each staged file of a table where it is, its new name below the table, and its bytes."""
        home = posixpath.join(self._home, table)
        found = ((path, size) for path, size in walk(self._place, home) if path.endswith(".parquet"))
        files = sorted((path, size) for path, size in found if wanted is None or (table, path) in wanted)
        for ordinal, (path, size) in enumerate(files):
            name = f"{self._number:06}-{ordinal:04}.parquet"
            yield posixpath.join(home, path), posixpath.join(posixpath.dirname(path), name), size


def _sweep(place: Place, home: str, counted: set[str]) -> None:
    """Remove a batch's directory, and before it those of the files that it moved which do not count."""
    try:
        listed = [path for path in json.loads(place.read(posixpath.join(home, MOVES))) if _is_data(path)]
    except (OSError, ValueError, TypeError):
        # It is made safe before the first move: where it is not whole, nothing was moved.
        listed = []
    _remove(place, [path for path in listed if path not in counted])
    place.remove(home)


def _is_data(path: object) -> bool:
    """Return whether a path is one of a table's file; nothing else is removed, whatever a list says."""
    return isinstance(path, str) and path.split("/")[0] in COLUMNS and ".." not in path.split("/")


def _remove(place: Place, paths: Iterable[str]) -> None:
    """Remove files, and the directories that are empty then."""
    gone = list(paths)
    for_each(place, place.remove, gone)
    # A directory comes after those in it; one that is not empty stays.
    for directory in sorted(_directories(gone) - {""}, reverse=True):
        place.remove_empty(directory)


def _directories(paths: Iterable[str]) -> set[str]:
    """Return the directories of some files up to the lake's own, which is ''."""
    found: set[str] = set()
    for path in paths:
        while path:
            path = posixpath.dirname(path)
            found.add(path)
    return found
