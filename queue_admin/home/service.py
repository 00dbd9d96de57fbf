"""Writes a service directory for daemontools' supervise and runit's runsv.

A new directory is made under a name that begins with a dot, which svscan and runsvdir ignore, and is renamed when it is
complete. An existing script that differs is an error, unless `force`.
"""

import os
import shlex

from queue_admin.home.maker import Maker
from queue_admin.home.tree import Tree, unable_to
from queue_base.accounts import Owner
from queue_base.durable import read_file
from queue_base.errors import Permanent
from queue_base.home import Home
from queue_base.service_log import SVLOGD_CONFIG, log_script


def run_script(home: Home, start: str) -> bytes:
    """Return the script `run`, which execs the program `start` with QUEUE_HOME set and stderr sent to the log."""
    return f"#!/bin/sh\nexec 2>&1\nexec env QUEUE_HOME={shlex.quote(home.path)} {shlex.quote(start)}\n".encode()


def write_service(
    home: Home, directory: str, start: str, top: Owner, log: tuple[str | None, Owner], force: bool
) -> list[str]:
    """Make or complete the service directory and return the paths written. Raises Permanent or Temporary.

    `top` owns the scripts. `log` is the account that the logger runs as (None: the one that starts it), and its ids.
    """
    account, log_owner = log
    new = not os.path.lexists(directory)
    parent, name = os.path.split(directory)
    work = f"{parent}/.{name}.new" if new else directory
    maker = Maker(top)
    maker.directory(work, 0o755)
    maker.directory(f"{work}/log", 0o755)
    mains = Maker(log_owner, maker.commit)
    mains.directory(f"{work}/log/main", 0o755)
    # The logger's account owns the directory, and may have put links there.
    with Tree(f"{work}/log/main") as tree:
        config = Maker(log_owner, tree=tree)
        config.file(f"{work}/log/main/config", SVLOGD_CONFIG, 0o644)
        tree.sync()
    # In a directory that an interrupted run left, scripts are replaced.
    for script, text in (("log/run", log_script(account)), ("run", run_script(home, start))):
        _write_script(maker, f"{work}/{script}", text, force or new)
    made = maker.made + mains.made + config.made
    with unable_to("make", directory):
        maker.commit.sync()
        if new:
            maker.commit.rename(work, directory)
            maker.commit.sync()
    return [directory + path.removeprefix(work) for path in made]


def _write_script(maker: Maker, path: str, text: bytes, force: bool) -> None:
    if os.path.lexists(path):
        with unable_to("read", path):
            if read_file(path) == text and os.access(path, os.X_OK):
                return
        if not force:
            raise Permanent(f"unable to write {path}: it exists and differs; --force replaces it")
    maker.replace(path, text, 0o755)
