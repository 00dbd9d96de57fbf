"""The suite as root with accounts of its own, in a mount namespace with a private /etc, so that none is left behind."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.tools import need, need_private_mounts, need_shared_python

ROOT = Path(__file__).resolve().parents[2]
CODE = ("bin", "tests", "setup.cfg")
LIBRARIES = ("pyinotify", "dns", "uvloop", "psutil", "click", "cdblib")

# The namespace is private to these processes, so the real /etc keeps its accounts.
ENTER = 'mount --bind "$1" /etc && shift && exec "$@"'
UNSHARE = ["--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"]


@pytest.fixture
def readable_code(place: Path) -> Path:
    """A copy of the code and its libraries where every account may read it; a checkout may be where none may."""
    need_private_mounts()
    need("useradd")
    for name in [*CODE, *(path.name for path in ROOT.glob("queue_*"))]:
        source = ROOT / name
        if source.is_dir():
            # With what is compiled of it: the programs may not write there, and would compile at each start.
            shutil.copytree(source, place / name)
        else:
            shutil.copy(source, place / name)
    for name in LIBRARIES:
        spec = find_spec(name)
        assert spec is not None and spec.origin is not None
        origin = Path(spec.origin)
        if origin.name == "__init__.py":
            shutil.copytree(origin.parent, place / "libraries" / name)
        else:
            (place / "libraries").mkdir(exist_ok=True)
            shutil.copy(origin, place / "libraries" / origin.name)
    shutil.copytree("/etc", place / "etc", symlinks=True)
    return place


# It is two dozen tests, most of them with whole suites.
@pytest.mark.timeout(1800)
@pytest.mark.long
def test_each_daemon_gets_only_what_it_needs(readable_code: Path) -> None:
    site = [path for path in sys.path if path.endswith("site-packages")]
    search = ":".join([str(readable_code), str(readable_code / "libraries"), *site])
    inside = [need_shared_python(), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [need("unshare"), *UNSHARE, str(readable_code / "etc"), *inside, str(readable_code / "tests/admin/namespaced")],
        env={**os.environ, "PYTHONPATH": search, "PYTHONDONTWRITEBYTECODE": "1", "QUEUE_NAMESPACED": "1"},
        cwd=readable_code,
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
