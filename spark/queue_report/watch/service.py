"""The service directory of a resident build, for daemontools' supervise and runit's runsv, as queuectl makes its own.

A new one is made under a name that begins with a dot, which svscan and runsvdir ignore, and is renamed when it is
complete. An existing script that differs stays, with a warning, unless `force`.
"""

import os
import shlex
import shutil
from collections.abc import Sequence

from queue_base.durable import Commit
from queue_base.errors import Permanent, Temporary, complain, reason
from queue_base.service_log import SMALL, log_script, svlogd_config

_DIRECTORIES = ("log", "log/main")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


def run_script(command: Sequence[str]) -> bytes:
    """Return the script `run`, which execs a command with stderr sent to the log."""
    return f"#!/bin/sh\nexec 2>&1\nexec {shlex.join(command)}\n".encode("utf-8", "surrogateescape")


def write_service(directory: str, command: Sequence[str], force: bool) -> list[str]:
    """Make or complete the service directory that runs a command; return the paths written.

    Raises Permanent where something else is in the way, Temporary where a system call fails.
    """
    directory = os.path.abspath(directory)
    scripts = {"log/run": log_script(None), "run": run_script(command)}
    try:
        new = not os.path.lexists(directory)
        if not new and not os.path.isdir(directory):
            raise Permanent(f"unable to make {directory}: something that is no directory is in its place; move it away")
        parent, name = os.path.split(directory)
        place = os.path.join(parent, f".{name}.new") if new else directory
        if new:
            # What an interrupted run has left.
            shutil.rmtree(place, ignore_errors=True)
        wanted = []
        for script, text in scripts.items():
            path = f"{place}/{script}"
            if os.path.lexists(path) and not (new or force):
                if not _is_there(path, text):
                    complain("queue-report", f"warning: {path} differs and stays as it is; --force replaces it")
            elif not _is_there(path, text):
                wanted.append(script)
        commit, written = Commit(), []
        for path in (place, *(f"{place}/{each}" for each in _DIRECTORIES)):
            if not os.path.isdir(path):
                os.mkdir(path, 0o755)
                commit.removed(path)
                written.append(path)
        if not os.path.lexists(f"{place}/log/main/config"):
            _write(commit, f"{place}/log/main/config", svlogd_config(SMALL), 0o644)
            written.append(f"{place}/log/main/config")
        for script in wanted:
            _write(commit, f"{place}/{script}", scripts[script], 0o755)
            written.append(f"{place}/{script}")
        commit.sync()
        if new:
            commit.rename(place, directory)
            commit.sync()
    except OSError as error:
        raise Temporary(f"unable to make {error.filename or directory}: {reason(error)}; run it again") from error
    return [directory + path.removeprefix(place) for path in written]


def _is_there(path: str, text: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read() == text and os.access(path, os.X_OK)
    except FileNotFoundError:
        return False


def _write(commit: Commit, path: str, text: bytes, mode: int) -> None:
    """Write a file aside, safe on the disk, and give it its name."""
    handle = os.open(f"{path}.new", _NEW, 0o600)
    try:
        os.write(handle, text)
        os.fchmod(handle, mode)
        os.fsync(handle)
    finally:
        os.close(handle)
    commit.rename(f"{path}.new", path)
