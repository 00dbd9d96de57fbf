"""Commands, root, and what else of the machine some tests need: found, or the test is skipped, saying what to install.

Under CI=true nothing is skipped: what is missing there is a failure. Call these inside a test or a fixture.
"""

import glob
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

_LIST = Path(__file__).resolve().parents[1] / "tools.txt"
PACKAGES = dict(line.split() for line in _LIST.read_text().splitlines() if not line.startswith("#"))
# Where Debian keeps programs for root, which are not on everybody's PATH.
_ALSO = "/usr/local/sbin:/usr/sbin:/sbin"


def missing(what: str) -> NoReturn:
    """End the test, which needs something: skipped, or failed under CI=true. `what` names it and its remedy."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"needs {what}", pytrace=False)
    pytest.skip(f"needs {what}")


def need(command: str) -> str:
    """Return the path of a command of tools.txt, or of one that every Debian machine has."""
    found = shutil.which(command, path=os.environ.get("PATH", os.defpath) + ":" + _ALSO)
    return found or missing(f"{command}: apt-get install {PACKAGES.get(command, command)}")


def need_file(pattern: str) -> None:
    """Go on only where there is a file of tools.txt; `pattern` is as there."""
    if not glob.glob(pattern):
        missing(f"{pattern}: apt-get install {PACKAGES[pattern]}")


def need_root() -> None:
    """Go on as root only."""
    if os.geteuid() != 0:
        missing("root")


def need_private_mounts() -> None:
    """Go on only where we may make a mount namespace: root may, but in some containers."""
    need_root()
    words = [need("unshare"), "--mount", "--propagation", "private", "true"]
    if subprocess.run(words, capture_output=True, check=False, timeout=60).returncode != 0:
        missing("a machine on which root may make a mount namespace")


def need_shared_python() -> str:
    """Return the interpreter that runs the tests, where every account can run it."""
    found = Path(sys.executable).resolve()
    if any(not directory.stat().st_mode & 0o001 for directory in [found, *found.parents]):
        missing(f"a Python that every account may run, and {found} is not: apt-get install python3-venv")
    return str(found)


def need_tracing() -> None:
    """Go on only where strace(1) may trace a process; some containers forbid it."""
    done = subprocess.run([need("strace"), "-o", os.devnull, "true"], capture_output=True, check=False, timeout=60)
    if done.returncode != 0:
        missing(f"a machine on which strace may trace processes: {done.stderr.decode(errors='replace').strip()}")
