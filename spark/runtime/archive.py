"""An archive of Java's classes (AppCDS), from which a Java for Spark starts in half the processor time.

It is made by itself. A Java that runs without one lists the classes that it loads; when it has ended, a second Java
makes the archive of that list, once. What it is made of (which Java, which jars) is part of its name, so another Java
or Spark has another archive; one that nobody used for a month is removed.

An archive is code that Java runs unchecked. So it is only taken from a directory that nobody but this user and root can
change, and only if this user made it: XDG_CACHE_HOME/queue-report, or ~/.cache/queue-report.

Nothing here is ever a reason to fail: where no archive can be had, Java starts as it does without.
"""

import fcntl
import hashlib
import os
import stat
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

# So many bytes must be free, and so long an archive may take to be made, in seconds.
ROOM = 512 << 20
PATIENCE = 120.0
# An archive that was not used for so long is removed; where it cannot be made, that is tried again after so long.
UNUSED = 30 * 86400
AGAIN = 7 * 86400
# Java says nothing of archives; one that it cannot take it passes over.
QUIET = ("-Xshare:auto", "-Xlog:cds*=off")


class Archive(NamedTuple):
    """Where an archive is, or is to be: the path without its ending."""

    base: str

    @property
    def path(self) -> str:
        return f"{self.base}.jsa"

    @property
    def classes(self) -> str:
        """The list of classes that it is made of."""
        return f"{self.base}.classes"

    @property
    def refused(self) -> str:
        """A file that is there where Java could not make the archive."""
        return f"{self.base}.refused"


def find_archive(java: str, jars: str, environment: Mapping[str, str]) -> Archive | None:
    """Return the archive for a Java (its program) and a directory of jars, whether it is there or not.

    None where there is no directory for it, or one that others may change.
    """
    try:
        directory = _directory(environment)
        if directory is None:
            return None
        archive = Archive(os.path.join(directory, f"spark-{_fingerprint(java, jars)}"))
        # The words of an option are split at spaces, by Spark.
        return archive if archive.base.isprintable() and not set(archive.base) & set(" \"'\\") else None
    except OSError:
        return None


def options_to_use(archive: Archive) -> list[str]:
    """Return Java's options to start from an archive; none where it is not there, or not ours alone."""
    try:
        if not _is_ours(os.lstat(archive.path), stat.S_ISREG):
            return []
        os.utime(archive.path)
    except OSError:
        return []
    return [f"-XX:SharedArchiveFile={archive.path}", *QUIET]


class Making:
    """The making of one archive, by one process at a time: begin() before Java starts, end() after it has ended.

    close() gives it up at any time.
    """

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._lock: int | None = None

    def begin(self) -> list[str]:
        """Return Java's options to list its classes; none where the archive cannot or need not be made now."""
        archive = self.archive
        try:
            if os.path.lexists(archive.path) or _is_recent(archive.refused, AGAIN):
                return []
            there = os.statvfs(os.path.dirname(archive.base))
            if there.f_bavail * there.f_frsize < ROOM:
                return []
            self._lock = os.open(f"{archive.base}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(archive.classes, f"{archive.path}.new")
        except OSError:
            self.close()
            return []
        return [f"-XX:DumpLoadedClassList={archive.classes}", "-Xlog:cds*=off"]

    def end(self, java: str, class_path: str) -> bool:
        """Make the archive of what a Java has listed that ran with this class path. Returns whether it is there."""
        if self._lock is None:
            return False
        archive, new = self.archive, f"{self.archive.path}.new"
        try:
            if _make(java, class_path, archive.classes, new):
                os.chmod(new, 0o600)
                _sync(new)
                os.rename(new, archive.path)
                _sync(os.path.dirname(archive.path))
                _remove_unused(os.path.dirname(archive.path))
                return True
            with open(archive.refused, "w"):
                pass
        except OSError:
            pass
        finally:
            self.close()
        return False

    def close(self) -> None:
        """Remove what is not whole, and let another process try."""
        if self._lock is None:
            return
        try:
            _remove(self.archive.classes, f"{self.archive.path}.new")
        except OSError:
            pass
        os.close(self._lock)
        self._lock = None


def _make(java: str, class_path: str, classes: str, new: str) -> bool:
    """Run the Java that makes an archive; it runs nothing of Spark's. Returns whether it did."""
    options = [f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={new}", "-Xlog:disable"]
    command = ["nice", "-n", "10", java, "-Xshare:dump", "-Xmx1g", *options, "-cp", class_path]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and os.path.exists(new)


def _directory(environment: Mapping[str, str]) -> str | None:
    """Return the directory of archives, made where it is missing; None where others may change it. Raises OSError."""
    cache, home = environment.get("XDG_CACHE_HOME", ""), environment.get("HOME", "")
    if os.path.isabs(cache):
        above = cache
    elif os.path.isabs(home):
        above = os.path.join(home, ".cache")
    else:
        return None
    directory = os.path.join(os.path.realpath(above), "queue-report")
    # Nothing is made in the home of another user, as under su or sudo.
    known = directory
    while not os.path.lexists(known):
        known = os.path.dirname(known)
    if os.stat(known).st_uid != os.geteuid():
        return None
    os.makedirs(directory, mode=0o700, exist_ok=True)
    return directory if _is_private(directory) else None


def _is_private(directory: str) -> bool:
    """Return whether a directory is this user's, and only this user and root can put something else in its place."""
    if not _is_ours(os.lstat(directory), stat.S_ISDIR):
        return False
    above = os.path.dirname(directory)
    while True:
        found = os.lstat(above)
        others_write = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
        if found.st_uid not in (0, os.geteuid()) or others_write:
            return False
        if above == os.path.dirname(above):
            return True
        above = os.path.dirname(above)


def _is_ours(found: os.stat_result, is_right: Callable[[int], bool]) -> bool:
    return is_right(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _fingerprint(java: str, jars: str) -> str:
    """Return a name for a Java and a directory of jars: another one as soon as either has changed. Raises OSError."""
    program = os.path.realpath(java)
    told = [program, _mark(os.stat(program)), jars]
    # What its program is made of says little; the release and the modules say which Java it is.
    home = os.path.dirname(os.path.dirname(program))
    for name in ("release", "lib/modules"):
        path = os.path.join(home, name)
        told.append(_mark(os.stat(path)) if os.path.exists(path) else "")
    with os.scandir(jars) as entries:
        told += sorted(f"{entry.name} {_mark(entry.stat())}" for entry in entries)
    return hashlib.sha256("\0".join(told).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _mark(found: os.stat_result) -> str:
    return f"{found.st_size} {found.st_mtime_ns}"


def _is_recent(path: str, seconds: float) -> bool:
    try:
        return os.lstat(path).st_mtime > time.time() - seconds
    except FileNotFoundError:
        return False


def _remove(*paths: str) -> None:
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass


def _remove_unused(directory: str) -> None:
    """Remove what belongs to archives that were not used for long."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if name.startswith("spark-") and not name.endswith(".lock") and not _is_recent(path, UNUSED):
            _remove(path)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
