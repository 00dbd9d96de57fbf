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

# As multilog's arguments in log/run: 20 files of 1 MB.
_SVLOGD_CONFIG = b"s1000000\nn20\n"


def run_script(home: Home, start: str) -> bytes:
    """Return the script `run`, which execs the program `start` with QUEUE_HOME set and stderr sent to the log."""
    return f"#!/bin/sh\nexec 2>&1\nexec env QUEUE_HOME={shlex.quote(home.path)} {shlex.quote(start)}\n".encode()


def log_script(account: str | None) -> bytes:
    """Return the script `log/run`, which execs multilog if it is on PATH, else svlogd; under `account` if not None.

    Both add a TAI64N stamp to each line. svlogd gets a buffer that is larger than the longest line, so that it does
    not split lines.
    """
    name = shlex.quote(account) if account else ""
    own = f" && chown {name} ./main" if account else ""
    as_account = (f"setuidgid {name} ", f"chpst -u {name} ") if account else ("", "")
    return f"""#!/bin/sh
exec 2>&1
mkdir -p ./main{own} || exit 111
if command -v multilog >/dev/null; then
  exec {as_account[0]}multilog t s1000000 n20 ./main
fi
if command -v svlogd >/dev/null; then
  exec {as_account[1]}svlogd -t -l 2000 -b 8192 ./main
fi
echo 'log: fatal: neither multilog (daemontools) nor svlogd (runit) is on PATH'
sleep 10
exit 111
""".encode()


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
        config.file(f"{work}/log/main/config", _SVLOGD_CONFIG, 0o644)
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
