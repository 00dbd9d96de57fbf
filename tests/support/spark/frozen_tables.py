"""The tables that an earlier queue-report made of logs, kept in tests/spark/frozen/, and what this one makes of them.

Only build_lake and tables_of know how a lake is built and read. A tree is a directory of logs, LOGS of a build. Trees
without an `order.json` have hosts of their own, so that one build can read all of them; one with it is built alone, and
what is in that file goes to the build (`smtpd_log` is a directory beside LOGS).
"""

import bz2
import gzip
import json
import lzma
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from queue_report.lake.build import Order, Runner, build
from queue_report.runtime.progress import Progress
from queue_report.schema.columns import COLUMNS
from support.spark.logs.log_lake import rows_of_table
from support.spark.runner import InProcess

HOME = Path(__file__).resolve().parents[2] / "spark" / "frozen"
LOGS, TABLES = HOME / "logs.tar.xz", HOME / "tables.jsonl.xz"
# All but what is for the next build alone.
KEPT = tuple(table for table in COLUMNS if table not in ("lines", "streams"))
# What is promised of `pending`; the rest of it is what a build needs to go on.
PENDING = (
    *("what", "host", "queue", "key", "id", "qp", "uid", "sender", "bytes", "birth_ns", "first_ns", "successes"),
    *("failures", "deferrals", "recipients", "fate", "bounce_qp", "bounce_of", "delivery", "channel", "recipient"),
    *("domain", "start_ns", "local_now", "local_limit", "remote_now", "remote_limit", "session"),
)
# Files of loggers that are no logs.
OTHERS = ("lock", "state", "config", "newstate")
Tables = dict[str, list[str]]  # Rows as JSON, in order.


def build_lake(logs: Path, lake: Path, runner: Runner | None = None, **order: Any) -> Counter[str]:
    """Build a lake of logs once, as a call of queue-report does; return the lines that it read, by kind.

    runner: None does its tasks in this process.
    """
    return Counter(build(Order(str(logs), str(lake), **order), runner or InProcess(), Progress()).lines)


def tables_of(lake: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a lake's tables."""
    return {name: rows_of_table(str(lake), name) for name in KEPT}


class Tree(NamedTuple):
    """A directory of logs, and what was made of it: lines by kind, and tables. order: None where others are with it."""

    name: str
    path: Path
    order: dict[str, Any] | None
    hosts: frozenset[str]
    lines: Counter[str]
    tables: Tables


def unpack(archive: Path, directory: Path) -> None:
    """Unpack the files of an archive into a directory."""
    with tarfile.open(archive) as opened:
        for member in opened:
            if (file := opened.extractfile(member)) is not None:
                path = directory / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.read())


def unpack_trees(directory: Path) -> list[Tree]:
    """Unpack all trees into a directory."""
    unpack(LOGS, directory)
    lines, tables = _read_frozen() if TABLES.exists() else ({}, {})
    found = []
    for path in sorted(directory.iterdir()):
        order = json.loads((path / "order.json").read_bytes()) if (path / "order.json").exists() else None
        hosts = frozenset(each.name for each in (path / "logs").iterdir())
        found.append(Tree(path.name, path, order, hosts, lines.get(path.name, Counter()), tables.get(path.name, {})))
    shared = [host for tree in found if tree.order is None for host in tree.hosts]
    assert len(shared) == len(set(shared)), "two trees have a host in common"
    return found


def _read_frozen() -> tuple[dict[str, Counter[str]], dict[str, Tables]]:
    lines: dict[str, Counter[str]] = {}
    tables: dict[str, Tables] = {}
    with lzma.open(TABLES, "rt") as file:
        for text in file:
            tree, table, row = text.rstrip("\n").split("\t")
            if table == "":
                lines[tree], tables[tree] = Counter(json.loads(row)), {name: [] for name in KEPT}
            else:
                tables[tree][table].append(row)
    return lines, tables


def write_frozen(made: Iterable[tuple[str, Counter[str], Tables]]) -> None:
    """Keep what a build made of each tree: its name, lines by kind, and tables; a row is a line of text."""
    with lzma.open(TABLES, "wt", preset=9 | lzma.PRESET_EXTREME) as file:
        for tree, lines, tables in made:
            file.write(f"{tree}\t\t{json.dumps(dict(sorted(lines.items())))}\n")
            file.writelines(f"{tree}\t{name}\t{row}\n" for name in KEPT for row in tables[name])


def in_order(tables: dict[str, list[dict[str, Any]]], hosts: Iterable[str] | None = None) -> Tables:
    """Return what is compared: the rows of these hosts (None: of all) as JSON, sorted."""
    wanted = None if hosts is None else frozenset(hosts)
    return {
        name: sorted(_text(name, row) for row in rows if wanted is None or row["host"] in wanted)
        for name, rows in tables.items()
    }


def _text(table: str, row: dict[str, Any]) -> str:
    if table == "pending":
        row = {name: row[name] for name in PENDING} | {"session": row["session"] and json.loads(row["session"])}
    elif table == "quarantine" and row["time_ns"] is None:
        row = row | {"date": None}  # That of the build.
    return json.dumps(row, sort_keys=True, default=_time)


def _time(value: date) -> str:
    return value.isoformat()


def without_places(tables: Tables) -> Tables:
    """Return tables of logs that came in pieces: where a line was read depends on them, and may be unknown."""
    rows = [json.loads(text) | {"file": None, "line": None} for text in tables["quarantine"]]
    return tables | {"quarantine": sorted(json.dumps(row, sort_keys=True) for row in rows)}


def differences(expected: Tables, found: Tables, most: int = 5) -> list[str]:
    """Return the first rows of each table that are missing, or that should not be there."""
    told = []
    for name in KEPT:
        one, two = Counter(expected[name]), Counter(found[name])
        for sign, rows in (("missing", one - two), ("not expected", two - one)):
            told += [f"{name}: {sign}: {row}" for row in sorted(rows.elements())[:most]]
            told += [f"{name}: {sign}: {rows.total()} rows in all"] * (rows.total() > most)
    return told


# How far a log has come before each build but the last, as places in its bytes.
Cuts = Callable[[bytes], list[int]]


def in_one(log: bytes) -> list[int]:
    return []


def in_two(log: bytes) -> list[int]:
    """Cut in a stamp in the middle of the log."""
    return [_line(log, len(log) // 2) + 12]


def in_three(log: bytes) -> list[int]:
    """Cut between two lines, and in the text of a line."""
    later = _line(log, len(log) * 2 // 3)
    return [_line(log, len(log) // 3), (later + _line(log, later)) // 2 + 13]


def _line(log: bytes, place: int) -> int:
    """Return where the next line begins."""
    return log.find(b"\n", place) + 1 or place


WAYS: dict[str, Cuts] = {"one piece": in_one, "two pieces": in_two, "three pieces": in_three}


def grow(trees: list[Tree], logs: Path, cuts: Cuts) -> Iterator[int]:
    """Write the logs of trees below LOGS, as far as they have come for each build; yields before each.

    A logger's file that a log is cut in is `current`; it gets its name, and is compressed, when the next has begun.
    """
    streams = [path for tree in trees for path in _streams(tree.path)]
    targets = [logs / path.relative_to(tree.path) for tree in trees for path in _streams(tree.path)]
    files = [_files(path) for path in streams]
    places = [cuts(b"".join(_plain(file) for file in each)) for each in files]
    for step in range(max(map(len, places)) + 1):
        for target, each, cut in zip(targets, files, places, strict=True):
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            _write(target, each, cut[step] if step < len(cut) else None)
        yield step


def _streams(tree: Path) -> list[Path]:
    return sorted({path.parent for path in tree.rglob("*") if path.is_file() and path.name != "order.json"})


def _files(directory: Path) -> list[Path]:
    """Return the logs of a directory, the oldest first."""
    found = [path for path in directory.iterdir() if path.is_file() and path.name not in OTHERS]
    return sorted(found, key=lambda path: (path.name == "current", path.name))


def _write(target: Path, files: list[Path], place: int | None) -> None:
    for file in files:
        content = _plain(file)
        if place is not None and place <= len(content):
            plain = next((file.name.removesuffix(end) for end in PACKED if file.name.endswith(end)), file.name)
            (target / ("current" if plain.startswith("@") else plain)).write_bytes(content[:place])
            return
        shutil.copy(file, target)
        place = None if place is None else place - len(content)


PACKED = (".gz", ".xz", ".bz2", ".zst")


def _plain(file: Path) -> bytes:
    data = file.read_bytes()
    unpack = {".gz": gzip.decompress, ".xz": lzma.decompress, ".bz2": bz2.decompress, ".zst": _zstd}
    return unpack.get(file.suffix, bytes)(data)


def _zstd(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return bytes(stream.read())


def build_trees(
    trees: list[Tree], way: str, directory: Path, runner: Runner | None = None
) -> tuple[Counter[str], dict[str, list[dict[str, Any]]]]:
    """Build a lake of trees in a new directory, in a way of WAYS; return lines by kind, and tables."""
    order = dict(trees[0].order or {})
    if "smtpd_log" in order:
        order["smtpd_log"] = str(directory / order["smtpd_log"])
    lines: Counter[str] = Counter()
    for _ in grow(trees, directory, WAYS[way]):
        lines += build_lake(directory / "logs", directory / "lake", runner, **order)
    return lines, tables_of(directory / "lake")


def compare(trees: list[Tree], way: str, directory: Path, runner: Runner | None = None) -> list[str]:
    """Build trees as build_trees does; return what is not as it was, a line each."""
    lines, tables = build_trees(trees, way, directory, runner)
    told = []
    for tree in trees:
        expected, found = tree.tables, in_order(tables, tree.hosts if tree.order is None else None)
        if way != "one piece":
            expected, found = without_places(expected), without_places(found)
        told += [f"{tree.name}, {way}: {each}" for each in differences(expected, found)]
    once = sum((tree.lines for tree in trees), Counter[str]())
    names = ", ".join(tree.name for tree in trees)
    for kind in sorted(lines.keys() | once.keys()):
        # In pieces, a copy of a file that an earlier build has read is recognized, and its lines are not read at all.
        if lines[kind] != once[kind] and (kind != "repeated" or way == "one piece"):
            told.append(f"{way}: {lines[kind]} lines of kind {kind}, not {once[kind]}; of {names}")
    return told


def groups(trees: list[Tree]) -> list[list[Tree]]:
    """Return trees by the builds that can read them."""
    return [[tree for tree in trees if tree.order is None], *([tree] for tree in trees if tree.order is not None)]
