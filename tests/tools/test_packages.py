"""What pip installs: every package and data file of the checkout is named in setup.cfg."""

from configparser import ConfigParser
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
CONFIG = ConfigParser()
CONFIG.read(TOP / "setup.cfg")
# spark/ is the source root of queue_report.
PACKAGES = [path.parent for root in (TOP, TOP / "spark") for path in root.glob("queue_*/__init__.py")]


def test_every_package_is_installed() -> None:
    there = {path.parent.relative_to(top.parent) for top in PACKAGES for path in top.rglob("__init__.py")}
    assert set(CONFIG["options"]["packages"].split()) == {".".join(path.parts) for path in there}


def test_every_data_file_is_installed() -> None:
    lines = CONFIG["options.package_data"].items()
    patterns = {(name.replace(".", "/"), glob.strip()) for name, globs in lines for glob in globs.split(",")}
    roots = {top.parent for top in PACKAGES}
    found = (root.glob(f"{place}/{glob}") for root in roots for place, glob in patterns if place != "*")
    named = {path for paths in found for path in paths}
    there = {
        path
        for top in PACKAGES
        for path in top.rglob("*")
        if path.is_file() and path.suffix in (".css", ".json", ".yml", ".sql", ".txt", ".html")
    }
    assert there - named == set()
