"""Directories on any file system: this machine's through Python, others (hdfs:, s3a:, …) through Hadoop's in Java.

A path is that of a directory or file below the place, with slashes; '' is the place itself. All methods raise OSError,
with the reason in words. On a local disk what is written can be made safe; elsewhere the file system promises that.
"""

import errno
import hashlib
import os
import posixpath
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from queue_base.durable import sync_filesystem

# pyspark takes long to import, and a small build or a report of DuckDB's does without it.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# With more files than this one sync of the whole file system is quicker than one of each file.
MANY_FILES = 100
# How many requests another machine gets at once.
REQUESTS = 16
_CHUNK = 1 << 20
# Bytes that Java hands over in one answer. It writes a longer one in two pieces, and waits 40 ms between them.
_SLICE = 6000
# What makes a path without a scheme one of a cluster's file system.
_CLUSTER_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT")
_CLUSTER_SETTING = "spark.hadoop.fs.defaultFS"

Item = TypeVar("Item")


class Entry(NamedTuple):
    """What a directory holds under one name; size in bytes."""

    name: str
    is_directory: bool
    size: int


class Place(Protocol):
    """A directory. root: its absolute path or URI. local: its path for this machine's system calls, None elsewhere."""

    root: str
    local: str | None

    def uri(self, path: str = "") -> str:
        """Return the path as Spark takes it."""

    def exists(self, path: str = "") -> bool:
        """Return whether there is a file or directory."""

    def is_file(self) -> bool:
        """Return whether the place itself is a file."""

    def list(self, path: str = "") -> list[Entry]:
        """Return what is in a directory, sorted by name; of a file, itself, without a name. FileNotFoundError."""

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        """Return at most `size` bytes from `start`; without a size, all."""

    def digest(self, path: str, start: int, size: int) -> str:
        """Return the SHA-256, in hex, of at most `size` bytes from `start`."""

    def copy(self, path: str, start: int, end: int, target: "Place", name: str) -> int:
        """Make a file in another place of the bytes from start to end (fewer, if it ends before). Return its size."""

    def write(self, path: str, content: bytes, replace: bool = True) -> None:
        """Write a file, whole or not at all after a crash only if the caller renames it. OSError if it must be new."""

    def make_directory(self, path: str = "") -> None:
        """Make a directory and those above it; one that is there is left as it is."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file; the new name's directory is there."""

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all in it; one that is gone is no trouble."""

    def remove_empty(self, path: str) -> None:
        """Remove a directory if nothing is in it."""

    def sync(self, paths: Iterable[str]) -> None:
        """Make files, and names in directories, safe: their contents stay after a power cut. Only on a local disk."""


def open_place(
    path: str, session: "Callable[[], SparkSession]", settings: Mapping[str, str] | None = None
) -> Place:
    """Return the place for a path or URI. session is called, and so Spark begun, only where it is no local one.

    settings: Spark's own, which may tell that a path without a scheme is a cluster's. Raises OSError.
    """
    here = local_path(path, settings)
    if here is not None:
        return LocalPlace(here)
    place = HadoopPlace(session(), path)
    return place if place.local is None else LocalPlace(place.local)


def local_path(path: str, settings: Mapping[str, str] | None = None) -> str | None:
    """Return the absolute local path that a path or URI means.

    None for one of another file system, and for one without a scheme where only Spark knows which that is: it runs on
    a cluster, was begun by spark-submit, or is configured.
    """
    if path.startswith("file:"):
        return os.path.abspath(unquote(urlsplit(path).path))
    if "://" in path:
        return None
    asked = settings or {}
    if _CLUSTER_SETTING in asked or not asked.get("spark.master", "local").startswith("local"):
        return None
    if any(os.environ.get(name) for name in _CLUSTER_VARIABLES):
        return None
    return os.path.abspath(path)


def below(place: Place, path: str) -> Place:
    """Return a directory in a place as a place of its own."""
    if isinstance(place, HadoopPlace):
        return place.below(path)
    return LocalPlace(os.path.join(place.root, path))


def list_if_there(place: Place, path: str = "") -> list[Entry]:
    """Return what is in a directory, nothing where there is no such directory."""
    try:
        return place.list(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def walk(place: Place, path: str) -> Iterator[tuple[str, int]]:
    """Yield each file below a directory, as a path relative to that directory, with its size."""
    for name, is_directory, size in list_if_there(place, path):
        if is_directory:
            for below, bytes_below in walk(place, posixpath.join(path, name)):
                yield posixpath.join(name, below), bytes_below
        else:
            yield name, size


def for_each(place: Place, work: Callable[..., None], *columns: Iterable[str]) -> None:
    """Do something for many paths, as map does; many at once where each is a message to another machine."""
    if place.local is not None:
        for row in zip(*columns, strict=True):
            work(*row)
        return
    with ThreadPoolExecutor(REQUESTS) as pool:
        for _ in pool.map(work, *columns):
            pass


class LocalPlace:
    """A directory of this machine, or one that is mounted here."""

    def __init__(self, path: str) -> None:
        try:
            path.encode()
        except UnicodeEncodeError as error:
            raise OSError(f"{path} is no UTF-8, which names must be") from error
        self.root = path
        self.local: str | None = path

    def uri(self, path: str = "") -> str:
        # Spark reads a path as it stands where it begins with file:.
        return "file:" + self._path(path)

    def exists(self, path: str = "") -> bool:
        return os.path.lexists(self._path(path))

    def is_file(self) -> bool:
        return os.path.isfile(self.root)

    def list(self, path: str = "") -> list[Entry]:
        full = self._path(path)
        if not os.path.isdir(full):
            return [Entry("", False, os.stat(full).st_size)]
        found = []
        with os.scandir(full) as entries:
            for entry in entries:
                try:
                    found.append(Entry(entry.name, entry.is_dir(), entry.stat().st_size))
                except OSError as error:
                    # The logger has removed it, or renamed it meanwhile; or it is a link to itself.
                    if error.errno not in (errno.ENOENT, errno.ELOOP):
                        raise
        return sorted(found)

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        with open(self._path(path), "rb") as file:
            file.seek(start)
            return file.read(-1 if size is None else size)

    def digest(self, path: str, start: int, size: int) -> str:
        return hashlib.sha256(self.read(path, start, size)).hexdigest()

    def copy(self, path: str, start: int, end: int, target: Place, name: str) -> int:
        if target.local is None:
            content = self.read(path, start, end - start)
            target.write(name, content)
            return len(content)
        made = os.path.join(target.local, name)
        os.makedirs(os.path.dirname(made), exist_ok=True)
        with open(self._path(path), "rb") as source, open(made, "wb") as out:
            source.seek(start)
            _copy(source, out, end - start)
            return out.tell()

    def write(self, path: str, content: bytes, replace: bool = True) -> None:
        with open(self._path(path), "wb" if replace else "xb") as file:
            file.write(content)

    def make_directory(self, path: str = "") -> None:
        os.makedirs(self._path(path), exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.rename(self._path(old), self._path(new))

    def remove(self, path: str) -> None:
        full = self._path(path)
        try:
            if os.path.isdir(full) and not os.path.islink(full):
                shutil.rmtree(full)
            else:
                os.unlink(full)
        except FileNotFoundError:
            pass

    def remove_empty(self, path: str) -> None:
        try:
            os.rmdir(self._path(path))
        except OSError:
            pass

    def sync(self, paths: Iterable[str]) -> None:
        every = list(paths)
        if len(every) > MANY_FILES:
            root = os.open(self.root, os.O_RDONLY)
            try:
                sync_filesystem(root)
            finally:
                os.close(root)
            return
        for path in every:
            descriptor = os.open(self._path(path), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _path(self, path: str) -> str:
        return os.path.join(self.root, path) if path else self.root


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size > 0:
        chunk = source.read(min(size, _CHUNK))
        if not chunk:
            return
        target.write(chunk)
        size -= len(chunk)


class HadoopPlace:
    """A directory of any file system that Spark knows; `local` is set where that is this machine's own."""

    def __init__(self, session: "SparkSession", place: str) -> None:
        from spark.runtime.errors import JAVA_ERRORS, java_reason

        jvm: Any = session.sparkContext._jvm
        context: Any = session.sparkContext._jsc
        configuration = context.hadoopConfiguration()
        self._hadoop = jvm.org.apache.hadoop.fs
        # Not Hadoop's copyBytes: a number that fits 32 bits is the size of a buffer there, and all is copied.
        self._copy = jvm.org.apache.commons.io.IOUtils.copyLarge
        self._bytes = jvm.java.io.ByteArrayOutputStream
        self._part = jvm.org.apache.commons.io.input.BoundedInputStream
        self._sha256 = jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex
        try:
            place.encode()
        except UnicodeEncodeError as error:
            raise OSError(f"{place} is no UTF-8, which names must be") from error
        try:
            # A path without a scheme is one of the cluster's file system, where it has one; else of this machine.
            here = urlsplit(configuration.get("fs.defaultFS", "file:///")).scheme == "file"
            if here and "://" not in place and not place.startswith("file:"):
                place = os.path.abspath(place)
            path = self._hadoop.Path(place)
            self._system = path.getFileSystem(configuration)
            self.root: str = self._system.makeQualified(path).toString()
        except JAVA_ERRORS as error:
            raise OSError(java_reason(error)) from error
        self.local: str | None = path.toUri().getPath() if self.root.startswith("file:") else None

    def below(self, path: str) -> "HadoopPlace":
        made = copy(self)
        made.root = self.uri(path)
        made.local = None if self.local is None else posixpath.join(self.local, path)
        return made

    def uri(self, path: str = "") -> str:
        return posixpath.join(self.root, path) if path else self.root

    def exists(self, path: str = "") -> bool:
        return bool(self._call(self._system.exists, self._path(path)))

    def is_file(self) -> bool:
        try:
            return not self._call(self._system.getFileStatus, self._path("")).isDirectory()
        except OSError:
            return False

    def list(self, path: str = "") -> list[Entry]:
        found = self._path(path)
        statuses = self._call(self._system.listStatus, found)
        if len(statuses) == 1 and statuses[0].isFile() and statuses[0].getPath().equals(found):
            return [Entry("", False, int(statuses[0].getLen()))]
        entries = (Entry(str(one.getPath().getName()), one.isDirectory(), int(one.getLen())) for one in statuses)
        return sorted(entry for entry in entries if not entry.name.endswith(".crc"))

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        return b"".join(self._slices(path, start, (1 << 62) if size is None else size))

    def digest(self, path: str, start: int, size: int) -> str:
        # In Java, so that the bytes need not come here.
        with self._opened(path, start) as source:
            return str(self._call(self._sha256, self._part(source, size)))

    def copy(self, path: str, start: int, end: int, target: Place, name: str) -> int:
        if not isinstance(target, HadoopPlace):
            content = self.read(path, start, end - start)
            target.make_directory(posixpath.dirname(name))
            target.write(name, content)
            return len(content)
        out = target._call(target._system.create, target._path(name), True)
        try:
            with self._opened(path, start) as source:
                self._call(self._copy, source, out, 0, end - start)
            return int(out.getPos())
        finally:
            self._call(out.close)

    def write(self, path: str, content: bytes, replace: bool = True) -> None:
        stream = self._call(self._system.create, self._path(path), replace)
        try:
            self._call(stream.write, bytearray(content))
        finally:
            self._call(stream.close)

    def make_directory(self, path: str = "") -> None:
        if not self._call(self._system.mkdirs, self._path(path)):
            raise OSError(f"{self.uri(path)} cannot be made")

    def rename(self, old: str, new: str) -> None:
        if not self._call(self._system.rename, self._path(old), self._path(new)):
            raise OSError(f"{self.uri(old)} cannot be renamed to {self.uri(new)}")

    def remove(self, path: str) -> None:
        self._call(self._system.delete, self._path(path), True)

    def remove_empty(self, path: str) -> None:
        try:
            self._call(self._system.delete, self._path(path), False)
        except OSError:
            pass

    def sync(self, paths: Iterable[str]) -> None:
        if self.local is not None:
            LocalPlace(self.local).sync(paths)

    def _path(self, path: str) -> Any:
        return self._hadoop.Path(self.uri(path))

    def _slices(self, path: str, start: int, size: int) -> Iterator[bytes]:
        with self._opened(path, start) as source:
            buffer = self._bytes()
            while size > 0 and self._call(self._copy, source, buffer, 0, min(size, _SLICE)):
                yield bytes(buffer.toByteArray())
                size -= _SLICE
                buffer.reset()

    @contextmanager
    def _opened(self, path: str, start: int) -> Iterator[Any]:
        source = self._call(self._system.open, self._path(path))
        try:
            self._call(source.seek, start)
            yield source
        finally:
            source.close()

    @staticmethod
    def _call(method: Any, *arguments: Any) -> Any:
        from spark.runtime.errors import JAVA_ERRORS, is_missing, java_reason

        try:
            return method(*arguments)
        except JAVA_ERRORS as error:
            why = java_reason(error)
            # Java has one exception for a file that is missing and for one that cannot be opened.
            if is_missing(error) and why != "permission denied" and not why.endswith("(Is a directory)"):
                raise FileNotFoundError(errno.ENOENT, why) from error
            raise OSError(why) from error
