"""Where the log of a home is, and that of its queue-smtpd: the directory of a logger, or the journal's unit.

If the daemon runs, the process that reads its output says so. Otherwise a service directory does whose run file has
this home, or a unit of systemd. Reads only. What is in /proc of other accounts only root sees.
"""

import glob
import os
import re
import shlex
import stat
from collections.abc import Iterator

from queue_admin.logs.log_files import CURRENT, LogDirectory, LogSource, SystemdJournal
from queue_admin.messages.admin_client import connect
from queue_admin.metrics.smtpd_client import listening_pids
from queue_base.durable import read_file
from queue_base.errors import Failure, Permanent
from queue_base.home import Home

SERVICES = (
    "/etc/service/*", "/service/*", "/var/service/*", "/run/service/*", "/etc/sv/*", "/etc/runit/*/*",
    "/etc/queue-suite*", "/etc/s6/sv/*",
)  # fmt: skip
UNITS = (
    "/etc/systemd/system/*.service", "/usr/lib/systemd/system/*.service", "/lib/systemd/system/*.service",
    "~/.config/systemd/user/*.service",
)  # fmt: skip
_LOGGERS = ("multilog", "svlogd", "s6-log")
_STDERR = 2
_SCRIPT_MAX = 65536  # Bytes.
_UNIT = re.compile(r"/([^/]+\.service)(?:/|$)", re.MULTILINE)
# What names the home in a script or a unit: the environment, or the option of the program.
_HOME = re.compile(r"(?:QUEUE_HOME=|queue-(?:start|smtpd)[\"']? +--home[ =])(.*)")
SUITE, SMTPD = "queue-start", "queue-smtpd"
# What a script or a unit starts.
_PROGRAM = re.compile(rf"(?<![\w.-])({SUITE}|{SMTPD}|queuectl|queue-report)(?![\w.-])")


def find_log(home: Home) -> LogSource:
    """Return the log. Raises Permanent if it is not found."""
    found = _of_running(home) or _of_started(home, SUITE)
    if found is None:
        raise Permanent(
            f"unable to find the log of {home.path}: no logger of a running queue-send, no service directory and no"
            " unit that name this home; give --logs DIR or --journal UNIT"
        )
    return found


def find_smtpd_log(home: Home) -> LogSource | None:
    """Return the log of queue-smtpd, None if it is not found."""
    sources = (source_of(pid, _STDERR) for pid in listening_pids(home))
    return next((found for found in sources if found is not None), None) or _of_started(home, SMTPD)


def _of_started(home: Home, program: str) -> LogSource | None:
    """Return the log of what starts a program with this home."""
    return next(_of_services(home, program), None) or next(_of_units(home, program), None)


def _of_running(home: Home) -> LogSource | None:
    try:
        client = connect(home)
    except Failure:
        return None
    if client is None:
        return None
    try:
        pid = client.peer_pid()
    finally:
        client.close()
    return source_of(pid) if pid else None


def source_of(pid: int, descriptor: int = 1) -> LogSource | None:
    """Return where the stdout of a process goes, or another descriptor of it: the directory of a logger, the journal,
    or None for another place.
    """
    try:
        stdout = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        if stdout.startswith("socket:"):
            unit = _UNIT.search(_read(f"/proc/{pid}/cgroup"))
            return SystemdJournal(unit[1]) if unit else None
    except OSError:
        return None
    if os.path.isfile(stdout):
        return LogDirectory(stdout)
    # A pipe, or a FIFO, as in the units that init writes: its other end is the stdin of the logger.
    if not stdout.startswith("pipe:") and not is_fifo(stdout):
        return None
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/fd/0") != stdout:
                continue
            words = _read(f"/proc/{name}/cmdline").split("\0")
            top = os.readlink(f"/proc/{name}/cwd")
        except OSError:
            continue
        found = _directory(words, top)
        if found is not None:
            return found
    return None


def _directory(words: list[str], top: str) -> LogDirectory | None:
    """Return the directory among the words of a logger's command line, which works in `top`.

    multilog goes into its directory; then the word is relative to the one above.
    """
    for word in words[1:]:
        if word[:1] not in ("/", "."):
            continue
        inside = top if f"{top}/".endswith(f"/{os.path.normpath(word)}/") else ""
        for path in (os.path.normpath(os.path.join(top, word)), inside):
            if path and os.path.lexists(f"{path}/{CURRENT}"):
                return LogDirectory(path)
    return None


def _of_services(home: Home, program: str) -> Iterator[LogSource]:
    for pattern in SERVICES:
        for service in sorted(glob.glob(pattern)):
            if not _starts(f"{service}/run", program, home):
                continue
            for line in _lines(f"{service}/log/run"):
                if any(logger in line for logger in _LOGGERS):
                    found = _directory(["", *line.split()], os.path.realpath(f"{service}/log"))
                    if found is not None:
                        yield found


def _of_units(home: Home, program: str) -> Iterator[LogSource]:
    for pattern in UNITS:
        for unit in sorted(glob.glob(os.path.expanduser(pattern))):
            if _starts(unit, program, home):
                yield _of_unit(unit)


def _of_unit(unit: str) -> LogSource:
    """Return the log of a unit: that of the logger beside it, a file, or the journal."""
    for line in _lines(unit.removesuffix(".service") + "-log.service"):
        if line.startswith("ExecStart="):
            found = _directory(_split(line.removeprefix("ExecStart=")), "/")
            if found is not None:
                return found
    for line in _lines(unit):
        path = re.fullmatch(r"StandardOutput=(?:file|append|truncate):(.*)", line)
        if path is not None and os.path.isfile(path[1]):
            return LogDirectory(path[1])
    return SystemdJournal(os.path.basename(unit))


def _starts(script: str, program: str, home: Home) -> bool:
    """Return whether a script or unit starts queue-start or queue-smtpd with this home.

    One that names none of our programs, but the home, starts queue-start by a program of somebody's own.
    """
    lines = [line for line in _lines(script) if not line.startswith("#")]
    started = {word for line in lines for word in _PROGRAM.findall(line)} or {SUITE}
    if program not in started:
        return False
    for line in lines:
        found = _HOME.search(line)
        if found is None:
            continue
        # In a unit the quotes may be around the name, too: Environment="QUEUE_HOME=/srv/my queue".
        inside, quote, rest = found[1].partition('"')
        words = [inside] if quote and '"' not in rest else _split(found[1])
        if words and os.path.realpath(words[0]) == os.path.realpath(home.path):
            return program == SMTPD or not home.name or f"--queue {home.name}" in " ".join(_split(found[1]))
    return False


def _split(command: str) -> list[str]:
    """Return the words of a command of a script or a unit, in which % and $ are doubled; none if it is unclear."""
    try:
        return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(command)]
    except ValueError:
        return []


def is_fifo(path: str) -> bool:
    """Return whether a path is a FIFO."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        return False


def _lines(path: str) -> list[str]:
    try:
        return _read(path).splitlines()
    except OSError:
        return []


def _read(path: str) -> str:
    return read_file(path, _SCRIPT_MAX).decode("utf-8", "replace")
