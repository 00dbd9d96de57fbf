"""The manifest: the one file that says what the lake is. docs/design/lake.md documents it; this packs and unpacks it.

Each build writes a new one, LAKE/_manifest/NNNNNN.json. A data file that the newest whole one does not list is no part
of the lake, so a build that dies half-way has changed nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PROGRAM = "queue-report"
# It rises with each table or field that an earlier program would leave out of the manifests that it writes: 2 alerts,
# 3 sessions.
VERSION = 4


class NotAManifest(ValueError):
    """Bytes that are no whole manifest."""


class TooNew(ValueError):
    """A manifest of a later version than we can read."""


@dataclass(frozen=True)
class Manifest:
    """What a lake is after one build.

    number: of this build, from 1; 0 is a lake before the first. made: when, ISO 8601 UTC. tables: by table, each data
    file (path below the table's directory) with its bytes. state: sources.State. counts: by "host/queue" the lines
    read so far, by kind. dropped: files (path below LAKE) that count no more, with when (Unix time) they were dropped:
    a reader may have them open, and a later build removes them.
    """

    number: int = 0
    made: str = ""
    tables: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)

    def files(self) -> set[str]:
        """Return every data file, as a path below LAKE."""
        return {f"{table}/{path}" for table, paths in self.tables.items() for path in paths}


def pack(manifest: Manifest) -> bytes:
    """Return the JSON of a manifest. `whole` comes last, so that a file that was cut short lacks it."""
    value = {
        "program": PROGRAM,
        "version": VERSION,
        "number": manifest.number,
        "made": manifest.made,
        "tables": {table: dict(paths) for table, paths in manifest.tables.items()},
        "state": dict(manifest.state),
        "counts": {stream: dict(kinds) for stream, kinds in manifest.counts.items()},
        "dropped": dict(manifest.dropped),
        "whole": True,
    }
    return json.dumps(value, indent=1, ensure_ascii=True).encode() + b"\n"


def unpack(content: bytes) -> Manifest:
    """Return the manifest of its JSON. Raises NotAManifest and TooNew."""
    try:
        value = json.loads(content)
        if value["program"] != PROGRAM or value["whole"] is not True:
            raise NotAManifest("it is not one of queue-report's")
        if value["version"] > VERSION:
            raise TooNew(f"its version is {value['version']}, ours {VERSION}")
        if not isinstance(value["number"], int) or not all(map(_is_nested, (value["tables"], value["counts"]))):
            raise NotAManifest("its tables are none")
        if not isinstance(value["state"], dict) or not isinstance(value["dropped"], dict):
            raise NotAManifest("its state is none")
        return Manifest(
            value["number"],
            value["made"],
            value["tables"],
            value["state"],
            value["counts"],
            value["dropped"],
        )
    except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise NotAManifest(str(error)) from error


def _is_nested(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(inner, dict) for inner in value.values())


def add_counts(
    before: Mapping[str, Mapping[str, int]], more: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Return the sums of two sets of counts."""
    total = {stream: dict(kinds) for stream, kinds in before.items()}
    for stream, kinds in more.items():
        into = total.setdefault(stream, {})
        for kind, number in kinds.items():
            into[kind] = into.get(kind, 0) + number
    return total
