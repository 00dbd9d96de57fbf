"""queue-report as it is submitted to a cluster: the packages in one zip file, and the main program beside it."""

import configparser
import os
import re
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# What `pip install --target libraries numpy pandas pyarrow deltalake` makes; not all of it is there in each version.
LIBRARIES = (
    *("numpy", "numpy.libs", "pyarrow", "pyarrow.libs", "pandas", "pandas.libs", "dateutil", "pytz", "six.py"),
    *("tzdata", "deltalake", "arro3", "deprecated", "wrapt", "typing_extensions.py"),
)
# Parts of the packages that our code does not load.
_UNUSED = re.compile(r"/(tests|include|__pycache__)$")
# bin/queue-report, which spark-submit takes only under a name that ends in .py; and it says where its code is from.
MAIN = """
import sys
from queue_report import main
print("code:", main.__file__)
sys.exit(main.main(sys.argv))
"""


def pack(top: Path) -> tuple[Path, Path]:
    """Make the zip file, of what setup.cfg says that a wheel has, and the main program in `top`; return their paths."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    code, main = top / "queue_suite.zip", top / "queue-report.py"
    with zipfile.ZipFile(code, "w") as archive:
        for package in settings["options"]["packages"].split():
            root = ROOT / "spark" if package.startswith("queue_report") else ROOT
            for path in sorted((root / package.replace(".", "/")).rglob("*")):
                if path.suffix in (".py", ".sql", ".css") and str(path.relative_to(root)) not in archive.namelist():
                    archive.write(path, path.relative_to(root))
    main.write_text(MAIN)
    return code, main


def pack_libraries(top: Path) -> Path:
    """Make an archive of what executors need beside Python, as docs/cluster.md says; return its path.

    Parts of the packages that nobody loads are left out.
    """
    libraries, archive = Path(sysconfig.get_path("purelib")), top / "libraries.tar"
    with tarfile.open(archive, "w") as made:
        for name in LIBRARIES:
            if (libraries / name).exists():
                made.add(libraries / name, name, filter=lambda found: None if _UNUSED.search(found.name) else found)
    return archive


def write_bare_python(top: Path) -> Path:
    """Write a Python that sees no site directory, so that it has what the standard library and PYTHONPATH have."""
    python = top / "bare-python"
    python.write_text(f'#!/bin/sh\nexec {sys._base_executable} -S "$@"\n')  # type: ignore[attr-defined]
    python.chmod(0o755)
    return python


def bare_environment(environment: dict[str, str], top: Path) -> dict[str, str]:
    """Return an environment whose Python has what was installed beside queue-suite, and not queue-suite itself.

    Executors get nothing of it: their Python is a bare one. `top`: where its program is written.

    A checkout is installed by a .pth file, and such files count in site directories only, not on PYTHONPATH.
    """
    libraries = sysconfig.get_path("purelib")
    assert not os.path.isdir(os.path.join(libraries, "queue_base")), "queue-suite is installed as a copy"
    return {**environment, "PYSPARK_PYTHON": str(write_bare_python(top)), "PYTHONPATH": libraries}
