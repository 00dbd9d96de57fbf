"""Directories and files of whatever file system Spark knows (file:, hdfs:, s3a:, …), through Hadoop's FileSystem.

A path is that of a directory or file below the root, with slashes. Trouble is an OSError with the reason in words, as
Java gives it. On a local disk what is written can be made safe; elsewhere the file system itself promises that.
"""

import os
import posixpath
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from queue_base.durable import sync_filesystem
from spark.runtime.trouble import JAVA_ERRORS, is_missing, java_reason

# With more files than this one sync of the whole file system is quicker than one of each file.
MANY_FILES = 100
# How many requests another machine gets at once.
REQUESTS = 16


class Entry(NamedTuple):
    """A directory's entry: name, whether it is a directory, and bytes."""

    name: str
    is_directory: bool
    size: int


class Storage:
    """A directory on some file system; `root` is its whole URI."""

    def __init__(self, session: SparkSession, place: str) -> None:
        jvm: Any = session.sparkContext._jvm
        context: Any = session.sparkContext._jsc
        configuration = context.hadoopConfiguration()
        self._hadoop = jvm.org.apache.hadoop.fs
        self._bytes = jvm.org.apache.commons.io.IOUtils
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
        # The path as this machine's own system calls know it; None where it is somewhere else.
        self.local: str | None = path.toUri().getPath() if self.root.startswith("file:") else None

    def uri(self, path: str = "") -> str:
        """Return what Spark calls a path."""
        return posixpath.join(self.root, path) if path else self.root

    def list(self, path: str = "") -> list[Entry]:
        """Return what is in a directory, sorted by name; nothing where there is no such directory."""
        try:
            found = self._system.listStatus(self._path(path))
        except JAVA_ERRORS as error:
            if is_missing(error):
                return []
            raise OSError(java_reason(error)) from error
        entries = (Entry(one.getPath().getName(), one.isDirectory(), one.getLen()) for one in found)
        return sorted(entry for entry in entries if not entry.name.endswith(".crc"))

    def walk(self, path: str) -> Iterator[tuple[str, int]]:
        """Yield each file below a directory, as a path relative to that directory, with its size."""
        for name, is_directory, size in self.list(path):
            if is_directory:
                for below, bytes_below in self.walk(posixpath.join(path, name)):
                    yield posixpath.join(name, below), bytes_below
            else:
                yield name, size

    def exists(self, path: str = "") -> bool:
        return bool(self._call(self._system.exists, self._path(path)))

    def is_file(self) -> bool:
        """Return whether the root itself is a file."""
        try:
            return bool(self._system.getFileStatus(self._path("")).isFile())
        except JAVA_ERRORS:
            return False

    def make_directory(self, path: str = "") -> None:
        """Make a directory and those above it; one that is there is left as it is."""
        if not self._call(self._system.mkdirs, self._path(path)):
            raise OSError(f"{self.uri(path)} cannot be made")

    def read(self, path: str) -> bytes:
        stream = self._call(self._system.open, self._path(path))
        try:
            return bytes(self._call(self._bytes.toByteArray, stream))
        finally:
            stream.close()

    def write(self, path: str, content: bytes, replace: bool = True) -> None:
        """Write a file, whole or not at all after a crash only if the caller renames it. OSError if it must be new."""
        stream = self._call(self._system.create, self._path(path), replace)
        try:
            self._call(stream.write, bytearray(content))
        finally:
            self._call(stream.close)

    def rename(self, old: str, new: str) -> None:
        """Rename a file within a file system; the new name's directory is there."""
        if not self._call(self._system.rename, self._path(old), self._path(new)):
            raise OSError(f"{self.uri(old)} cannot be renamed to {self.uri(new)}")

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all in it; one that is gone is no trouble."""
        self._call(self._system.delete, self._path(path), True)

    def each(self, work: Callable[..., None], *columns: Iterable[str]) -> None:
        """Do something for many paths, as map does; many at once where each is a message to another machine."""
        if self.local is not None:
            for row in zip(*columns, strict=True):
                work(*row)
            return
        with ThreadPoolExecutor(REQUESTS) as pool:
            for _ in pool.map(work, *columns):
                pass

    def remove_empty(self, path: str) -> None:
        """Remove a directory if nothing is in it."""
        try:
            self._system.delete(self._path(path), False)
        except JAVA_ERRORS:
            pass

    def sync(self, paths: Iterable[str]) -> None:
        """Make files, and names in directories, safe: their contents stay after a power cut. Only on a local disk."""
        if self.local is None:
            return
        every = list(paths)
        if len(every) > MANY_FILES:
            root = os.open(self.local, os.O_RDONLY)
            try:
                sync_filesystem(root)
            finally:
                os.close(root)
            return
        for path in every:
            descriptor = os.open(os.path.join(self.local, path), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _path(self, path: str) -> Any:
        return self._hadoop.Path(self.uri(path))

    def _call(self, method: Any, *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except JAVA_ERRORS as error:
            raise OSError(java_reason(error)) from error
