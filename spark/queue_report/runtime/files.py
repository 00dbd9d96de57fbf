"""Files of logs and lakes, wherever they are: a directory of this machine, or an object store by its URI.

A path without a scheme, or a file: URI, is a directory that Python opens by itself: its errors have numbers, and its
names may be any bytes. Everything else is delta-rs's: s3, s3a, abfss, gs, hdfs. This is pickled, and works in
executors.
"""

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, NamedTuple, Protocol, cast
from urllib.parse import unquote

from queue_base.durable import sync_path

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")
# Settings of a store, by the names that delta-rs has for them (AWS_ENDPOINT_URL and so on), are passed to executors.
STORE_SETTING = "spark.queueReport.store."


class Entry(NamedTuple):
    """What is in a directory; size: bytes, 0 for a directory. changed: when, in nanoseconds, 0 where nobody tells."""

    name: str
    is_directory: bool
    size: int
    changed: int = 0


class Files(Protocol):
    """Files below a root. Paths are relative to it, `` is the root itself. Every method raises OSError."""

    root: str
    store: Mapping[str, str]  # Settings of an object store.

    def list(self, path: str = "", unread: list[OSError] | None = None) -> list[Entry]:
        """Return what is in a directory, by name; of a file, that one, with the name ``. What the system tells nothing
        of goes to `unread`, or is left out."""

    def open(self, path: str) -> BinaryIO:
        """Open a file to read."""

    def read(self, path: str) -> bytes:
        """Return what a file holds."""

    def write(self, path: str, content: bytes | memoryview) -> None:
        """Make a file, and the directories above it."""

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""

    def is_same(self, file: BinaryIO, path: str) -> bool:
        """Return whether an open file has this path still."""

    def sync(self, paths: Iterable[str]) -> None:
        """Have files, and their names, survive a power cut."""


def local_path(uri: str) -> str | None:
    """Return the path of a directory of this machine; None for another place."""
    if uri.startswith("file:"):
        return "/" + unquote(uri.removeprefix("file:").lstrip("/"))
    return None if _SCHEME.match(uri) else os.path.abspath(uri)


def open_files(uri: str, store: Mapping[str, str] | None = None) -> Files:
    """Return the files below a place; store: settings of an object store. Raises OSError for a scheme nobody knows."""
    path = local_path(uri)
    if path is not None:
        return LocalFiles(path)
    return StoreFiles(uri, store or {})


def store_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return what of Spark's settings is for the object store."""
    return {
        name.removeprefix(STORE_SETTING): value for name, value in settings.items() if name.startswith(STORE_SETTING)
    }


class LocalFiles:
    """See Files."""

    store: Mapping[str, str] = {}

    def __init__(self, root: str) -> None:
        self.root = root

    def list(self, path: str = "", unread: list[OSError] | None = None) -> list[Entry]:
        try:
            entries = os.scandir(self._path(path))
        except NotADirectoryError:
            return [_entry("", os.stat(self._path(path)))]
        found = []
        with entries:
            for entry in entries:
                try:
                    found.append(_entry(entry.name, entry.stat()))
                except OSError as error:
                    if unread is not None and error.errno not in (errno.ENOENT, errno.ELOOP):
                        unread.append(error)
        return sorted(found)

    def open(self, path: str) -> BinaryIO:
        return open(self._path(path), "rb", buffering=0, opener=_open_at_once)

    def read(self, path: str) -> bytes:
        with open(self._path(path), "rb") as file:
            return file.read()

    def write(self, path: str, content: bytes | memoryview) -> None:
        whole = self._path(path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        with open(whole, "xb") as file:
            try:
                file.write(content)
                file.flush()
            except OSError:
                os.unlink(whole)
                raise

    def remove(self, path: str) -> None:
        try:
            os.unlink(self._path(path))
        except FileNotFoundError:
            pass

    def is_same(self, file: BinaryIO, path: str) -> bool:
        try:
            return os.path.samestat(os.fstat(file.fileno()), os.stat(self._path(path)))
        except FileNotFoundError:
            return False

    def sync(self, paths: Iterable[str]) -> None:
        directories = set()
        for path in paths:
            sync_path(self._path(path))
            while path:
                path = os.path.dirname(path)
                directories.add(path)
        for path in sorted(directories, reverse=True):
            sync_path(self._path(path))

    def _path(self, path: str) -> str:
        return os.path.join(self.root, path) if path else self.root


class StoreFiles:
    """See Files. A file of a store is there once it is whole, so that there is nothing to sync, or to be renamed."""

    def __init__(self, uri: str, store: Mapping[str, str]) -> None:
        self.root = uri.rstrip("/")
        self.store: Mapping[str, str] = dict(store)
        import pyarrow.fs as arrow
        from deltalake.fs import DeltaStorageHandler

        with _plain(self.root):
            self._files: Any = arrow.PyFileSystem(DeltaStorageHandler(self.root, dict(store) or None))

    def list(self, path: str = "", unread: list[OSError] | None = None) -> list[Entry]:
        import pyarrow.fs as arrow

        with _plain(path):
            found = self._files.get_file_info(arrow.FileSelector(path))
            if not found and path:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        kinds = arrow.FileType
        return sorted(
            Entry(one.base_name, one.type == kinds.Directory, one.size or 0, one.mtime_ns or 0) for one in found
        )

    def open(self, path: str) -> BinaryIO:
        with _plain(path):
            return cast(BinaryIO, self._files.open_input_file(path))

    def read(self, path: str) -> bytes:
        with _plain(path), self._files.open_input_file(path) as file:
            content: bytes = file.read()
            return content

    def write(self, path: str, content: bytes | memoryview) -> None:
        with _plain(path):
            # Not by way of pyarrow, which hands over a Buffer of its own, where delta-rs takes bytes alone.
            file = self._files.handler._handler.open_output_stream(path, None)
            file.write(bytes(content))
            file.close()

    def remove(self, path: str) -> None:
        with _plain(path):
            self._files.delete_file(path)

    def is_same(self, file: BinaryIO, path: str) -> bool:
        return True

    def sync(self, paths: Iterable[str]) -> None:
        pass


def _entry(name: str, found: os.stat_result) -> Entry:
    is_directory = stat.S_ISDIR(found.st_mode)
    return Entry(name, True, 0) if is_directory else Entry(name, False, found.st_size, found.st_mtime_ns)


@contextmanager
def _plain(path: str) -> Iterator[None]:
    """Raise what a store raises as an OSError of one line."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
        raise as_os_error(error) from error


def as_os_error(error: BaseException) -> OSError:
    """Return what delta-rs raises as an OSError, with the number of the system's error if there is one."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    number = _SYSTEM_ERROR.search(str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(first_line(error))


def first_line(error: BaseException) -> str:
    """Return the first line of what delta-rs says, which writes its causes below each other, in colours."""
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error)).strip()
    return text.splitlines()[0].strip() if text else type(error).__name__


def _open_at_once(path: str, flags: int) -> int:
    """Open a file; what is a pipe is not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


def make_directory(path: str) -> None:
    """Make a directory of this machine, and what is missing above it; its name survives a power cut. Raises OSError."""
    above = os.path.dirname(path)
    if not os.path.isdir(path):
        make_directory(above)
        with suppress(FileExistsError):
            os.mkdir(path)
    # Who has made it may have been killed before this. Who may not read the directory above has not made it.
    with suppress(PermissionError):
        sync_path(above)
