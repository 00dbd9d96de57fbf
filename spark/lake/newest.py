"""The newest manifest of a lake, of whatever file system, and a lake in a directory of this machine, without Spark.

A reader sees the state after one build, whole, whatever a build does meanwhile or leaves behind when it dies.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from queue_base.errors import Permanent, Temporary
from spark.lake.manifest import Manifest, NotAManifest, TooNew, unpack

MANIFESTS = "_manifest"


class Named(Protocol):
    """An entry of a directory."""

    @property
    def name(self) -> str: ...


class Readable(Protocol):
    """A directory on some file system. Paths are below it; trouble is an OSError."""

    root: str

    def list(self, path: str = "") -> Sequence[Named]:
        """Return what is in a directory; nothing if there is no such directory."""

    def read(self, path: str) -> bytes:
        """Return a file's content."""


class LocalEntry(NamedTuple):
    """A name in a directory of this machine."""

    name: str


class LocalDirectory:
    """A directory of this machine, to be read."""

    def __init__(self, root: str) -> None:
        self.root = root

    def list(self, path: str = "") -> list[LocalEntry]:
        try:
            return [LocalEntry(name) for name in sorted(os.listdir(os.path.join(self.root, path)))]
        except FileNotFoundError:
            return []

    def read(self, path: str) -> bytes:
        return Path(self.root, path).read_bytes()


def manifest_path(number: int) -> str:
    return f"{MANIFESTS}/{number:06}.json"


def manifest_numbers(storage: Readable) -> list[int]:
    """Return the numbers of the manifests that are there, whole or not, the newest first."""
    names = (entry.name.removesuffix(".json") for entry in storage.list(MANIFESTS) if entry.name.endswith(".json"))
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def find_manifest(storage: Readable) -> Manifest | None:
    """Return the newest whole manifest, None where there is none. Raises Permanent for one that is newer than we are.

    One that is not whole can only be what a file system lost in a power cut; the one before it still counts.
    """
    numbers = manifest_numbers(storage)
    for number in numbers:
        try:
            return unpack(storage.read(manifest_path(number)))
        except NotAManifest:
            continue
        except TooNew as error:
            raise Permanent(
                f"unable to open lake {storage.root}: a later queue-report made it ({error}); use that one"
            ) from error
    if numbers:
        raise Permanent(
            f"unable to open lake {storage.root}: none of its manifests is whole; build a new one from the logs"
        )
    return None


def no_lake(lake: str, empty: bool) -> Permanent:
    """Return the error for a place without a manifest; empty: it has no directory of manifests either."""
    reason = "there is no lake of queue-report" if empty else "its first build has not ended"
    return Permanent(f"unable to open lake {lake}: {reason}; make it with `queue-report build LOGS --lake {lake}`")


def local_path(lake: str) -> str | None:
    """Return the path of a lake in a directory of this machine; None for a URI of anything else."""
    if lake.startswith("file:"):
        path = lake.removeprefix("file:")
        return "/" + path.lstrip("/") if path.startswith("/") else None
    return None if "://" in lake else os.path.abspath(lake)


def open_local(lake: str) -> tuple[str, Manifest]:
    """Return the path of a local lake and its manifest.

    Raises Permanent where there is no lake, where it is something else, or of a later version; Temporary where it
    cannot be read now.
    """
    path = local_path(lake)
    if path is None:
        raise Permanent(f"unable to open lake {lake}: it is not on this machine; use --engine spark")
    try:
        manifest = find_manifest(LocalDirectory(path))
        empty = manifest is None and not os.path.exists(os.path.join(path, MANIFESTS))
    except OSError as error:
        reason = error.strerror or str(error)
        raise Temporary(f"unable to open lake {lake}: {reason}; nothing is shown") from error
    if manifest is None:
        raise no_lake(lake, empty)
    return path, manifest
