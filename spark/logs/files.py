"""Directories of logs on any file system: the local one through Python, others through Hadoop's (hdfs:, s3a:, …).

Paths are absolute, of one kind throughout: `/a/b` locally, URIs with Hadoop. Nothing here changes a log.
"""

import errno
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple, Protocol, cast
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark.runtime.trouble import is_missing, java_reason

_CHUNK = 1 << 20
# Bytes that Java hands over in one answer. It writes a longer one in two pieces, and waits 40 ms between them.
_SLICE = 6000


class Entry(NamedTuple):
    """What a directory holds under one name; size in bytes."""

    name: str
    is_directory: bool
    size: int


class Files(Protocol):
    """What the pipeline needs of a file system. All raise OSError, with the system's reason."""

    def list(self, path: str) -> list[Entry]:
        """Return what is in a directory; of a file, itself."""

    def read(self, path: str, start: int, size: int) -> bytes:
        """Return at most `size` bytes from `start`."""

    def digest(self, path: str, start: int, size: int) -> str:
        """Return the SHA-256, in hex, of at most `size` bytes from `start`."""

    def stage(self, path: str, start: int, end: int, head: bytes, copy: str) -> int:
        """Make `copy` of head and the bytes from start to end (fewer, if it ends before). Return its size."""

    def name(self, path: str) -> str:
        """Return the path as Spark takes it."""

    def uri(self, path: str) -> str:
        """Return the path as Spark's input_file_name() shows it: escaped."""


def open_files(session: SparkSession, *paths: str) -> tuple[Files, list[str]]:
    """Return the file system for these paths or URIs, and their paths in it."""
    local = [_local_path(path) for path in paths]
    if None not in local:
        return LocalFiles(session), [os.path.abspath(path) for path in local if path is not None]
    hadoop = HadoopFiles(session)
    return hadoop, [hadoop.qualify(path) for path in paths]


def _local_path(path: str) -> str | None:
    parts = urlsplit(path)
    if parts.scheme == "file":
        return unquote(parts.path)
    return None if "://" in path else path


def _path_class(session: SparkSession) -> Any:
    return cast(Any, session)._jvm.org.apache.hadoop.fs.Path


class LocalFiles:
    """The local file system, without a call into Java for each file."""

    def __init__(self, session: SparkSession) -> None:
        self._path = _path_class(session)
        self._directories: dict[str, str] = {}

    def list(self, path: str) -> list[Entry]:
        if not os.path.isdir(path):
            return [Entry("", False, os.stat(path).st_size)]
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    found.append(Entry(entry.name, entry.is_dir(), entry.stat().st_size))
                except FileNotFoundError:
                    continue  # The logger has removed it, or renamed it meanwhile.
        return found

    def read(self, path: str, start: int, size: int) -> bytes:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(size)

    def digest(self, path: str, start: int, size: int) -> str:
        return hashlib.sha256(self.read(path, start, size)).hexdigest()

    def stage(self, path: str, start: int, end: int, head: bytes, copy: str) -> int:
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        with open(path, "rb") as source, open(copy, "wb") as target:
            target.write(head)
            source.seek(start)
            _copy(source, target, end - start)
            return target.tell()

    def name(self, path: str) -> str:
        return "file:" + path

    def uri(self, path: str) -> str:
        # Java knows how it escapes; one call a directory, and the names of log files need no escape.
        directory, name = os.path.split(path)
        if not name.replace("@", "").replace(".", "").isalnum() or not name.isascii():
            return "file://" + str(self._path(path).toUri().getRawPath())
        if directory not in self._directories:
            self._directories[directory] = "file://" + str(self._path(directory).toUri().getRawPath())
        return f"{self._directories[directory]}/{name}"


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size > 0:
        chunk = source.read(min(size, _CHUNK))
        if not chunk:
            return
        target.write(chunk)
        size -= len(chunk)


class HadoopFiles:
    """Any file system that Spark can read, through Hadoop's interface in Spark's Java."""

    def __init__(self, session: SparkSession) -> None:
        jvm = cast(Any, session)._jvm
        self._path = _path_class(session)
        # Not Hadoop's copyBytes: a number that fits 32 bits is the size of a buffer there, and all is copied.
        self._copy = jvm.org.apache.commons.io.IOUtils.copyLarge
        self._bytes = jvm.java.io.ByteArrayOutputStream
        self._part = jvm.org.apache.commons.io.input.BoundedInputStream
        self._sha256 = jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex
        self._configuration = cast(Any, session)._jsc.hadoopConfiguration()

    def qualify(self, path: str) -> str:
        found = self._path(path)
        return str(found.getFileSystem(self._configuration).makeQualified(found).toString())

    def list(self, path: str) -> list[Entry]:
        found = self._path(path)
        statuses = self._call(lambda: found.getFileSystem(self._configuration).listStatus(found))
        if len(statuses) == 1 and statuses[0].isFile() and statuses[0].getPath().equals(found):
            return [Entry("", False, int(statuses[0].getLen()))]
        return [Entry(str(one.getPath().getName()), one.isDirectory(), int(one.getLen())) for one in statuses]

    def read(self, path: str, start: int, size: int) -> bytes:
        return b"".join(self._call(lambda: list(self._slices(path, start, size))))

    def digest(self, path: str, start: int, size: int) -> str:
        def make() -> str:
            # In Java, so that the bytes need not come here.
            with self._opened(path, start) as source:
                return str(self._sha256(self._part(source, size)))

        return str(self._call(make))

    def stage(self, path: str, start: int, end: int, head: bytes, copy: str) -> int:
        def make() -> int:
            target = self._path(copy)
            out = target.getFileSystem(self._configuration).create(target, True)
            try:
                out.write(head)
                self._pour(path, start, end - start, out)
                return int(out.getPos())
            finally:
                out.close()

        return int(self._call(make))

    def name(self, path: str) -> str:
        return path

    def uri(self, path: str) -> str:
        uri = str(self._path(path).toUri().toString())
        return "file://" + uri.removeprefix("file:") if re.match("file:/(?!/)", uri) else uri

    def _slices(self, path: str, start: int, size: int) -> Iterator[bytes]:
        with self._opened(path, start) as source:
            buffer = self._bytes()
            while size > 0 and self._copy(source, buffer, 0, min(size, _SLICE)):
                yield bytes(buffer.toByteArray())
                size -= _SLICE
                buffer.reset()

    def _pour(self, path: str, start: int, size: int, out: Any) -> None:
        with self._opened(path, start) as source:
            self._copy(source, out, 0, size)

    @contextmanager
    def _opened(self, path: str, start: int) -> Iterator[Any]:
        found = self._path(path)
        source = found.getFileSystem(self._configuration).open(found)
        try:
            source.seek(start)
            yield source
        finally:
            source.close()

    @staticmethod
    def _call(action: Any) -> Any:
        try:
            return action()
        except Py4JJavaError as error:
            why = java_reason(error)
            # Java has one exception for a file that is missing and for one that cannot be opened.
            if is_missing(error) and why != "permission denied" and not why.endswith("(Is a directory)"):
                raise FileNotFoundError(errno.ENOENT, why) from None
            raise OSError(why) from None
