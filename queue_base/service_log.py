"""The logger of a service: the script log/run of a service directory, svlogd's config, and how much is kept.

queuectl and queue-report write the same.
"""

import shlex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# Bytes of a file of the log, and files. multilog takes less than 16,777,216 bytes.
SMALL = (1_000_000, 20)
# A week of 100,000 messages a day. A message to one recipient takes 700 to 900 bytes of the log, with its stamps.
WEEK = (16_000_000, 64)
DIRECTORY_MODE = 0o2750
MULTILOG, SVLOGD, S6_LOG = "multilog", "svlogd", "s6-log"
# What runs a program under an account, with each logger.
_AS_ACCOUNT = {MULTILOG: "setuidgid", SVLOGD: "chpst -u", S6_LOG: "s6-setuidgid"}
_FROM = {MULTILOG: "daemontools", SVLOGD: "runit", S6_LOG: "s6"}


def svlogd_config(size: tuple[int, int]) -> bytes:
    """Return the file `config` in the directory of a log that svlogd writes."""
    return b"s%d\nn%d\n" % size


def logger_words(logger: str, directory: str, size: tuple[int, int]) -> list[str]:
    """Return the command of a logger. Each adds a TAI64N stamp to each line.

    svlogd gets a buffer that is larger than the longest line, so that it does not split lines.
    """
    if logger == SVLOGD:
        return [SVLOGD, "-t", "-l", "2000", "-b", "8192", directory]
    dashes = ["--"] if logger == S6_LOG else []
    return [logger, *dashes, "t", f"s{size[0]}", f"n{size[1]}", directory]


def log_script(
    account: str | None,
    directory: str = "./main",
    size: tuple[int, int] = SMALL,
    loggers: "Sequence[str]" = (MULTILOG, SVLOGD),
) -> bytes:
    """Return the script `log/run`, which execs the first of the loggers that is on PATH; under `account` if not None.

    The directory is made if it does not exist. Others than its owner and its group cannot read it.
    """
    name, where = shlex.quote(account) if account else "", shlex.quote(directory)
    # Who may write the directory above may put a link in its place meanwhile.
    own = f" && chown -h {name} {where}" if account else ""
    lines = [
        "#!/bin/sh",
        "exec 2>&1",
        "umask 027",
        f"[ -d {where} ] || {{ mkdir -p {where}{own}; }} || exit 111",
    ]
    for logger in loggers:
        become = f"{_AS_ACCOUNT[logger]} {name} " if account else ""
        command = shlex.join(logger_words(logger, directory, size))
        lines += [f"if command -v {logger} >/dev/null; then", f"  exec {become}{command}", "fi"]
    missing = [f"{logger} ({_FROM[logger]})" for logger in loggers]
    lacks = f"{missing[0]} is not" if len(missing) == 1 else f"neither {' nor '.join(missing)} is"
    lines += [f"echo 'log: fatal: {lacks} on PATH'", "sleep 10", "exit 111"]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")
