"""The suite in a virtual environment of its own, as pip and bin/setup-programs install it, without the time of pip."""

import compileall
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# The programs that users run: they find their interpreter and their packages without help.
PROGRAMS = ("queue-inject", "queue-enqueue", "sendmail")
FORMS = ("pip", "pip of Debian", "pip --editable", "setup-programs", "setup-programs, editable")


def copy_packages(to: Path) -> None:
    """Copy the suite's packages with their bytecode, and with the libraries of the compiled form if this is that."""
    to.mkdir(exist_ok=True)
    for path in [*ROOT.glob("queue_*"), ROOT / "spark/queue_report"]:
        if path.is_dir():
            shutil.copytree(path, to / path.name)
        else:
            shutil.copy(path, to)


def install(top: Path, form: str) -> Path:
    """Make a virtual environment with the suite; return its bin/.

    The packages are copied and compiled, but editable ones are those of this checkout. The programs are PROGRAMS, or
    with bin/setup-programs all of them. Debian's pip writes to dist-packages.
    """
    venv.create(top, symlinks=True, with_pip=False)
    packages = next(top.glob("lib/python*/site-packages"))
    others = [path for path in sys.path if path.endswith("site-packages")]
    programs = top / "bin"
    if "editable" in form:
        others[:0] = [str(ROOT), str(ROOT / "spark")]
    else:
        copies = packages.parent / ("dist-packages" if "Debian" in form else "site-packages")
        copy_packages(copies)
        # Where the bytecode is not that of the source; all of it would take a second.
        compileall.compile_dir(copies, quiet=2)
    (packages / "queue.pth").write_text("".join(f"{path}\n" for path in others))
    if form.startswith("setup-programs"):
        subprocess.run([ROOT / "bin/setup-programs", programs], check=True, timeout=60)
    else:
        # pip changes the first line only where that names Python.
        for name in PROGRAMS:
            shutil.copy(ROOT / "bin" / name, programs / name)
    return programs
