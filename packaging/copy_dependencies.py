"""Copies what setup.cfg's install_requires names, and what that requires, from this Python's site-packages to DIR.

usage: .venv/bin/python3 packaging/copy_dependencies.py SETUP_CFG DIR

So a package has the versions with which the tests have run, and nothing is fetched. Programs of the libraries and
compiled modules of Python (`.pyc`) are left out. Exit 1 names what is not installed.
"""

import configparser
import shutil
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement


def closure(wanted: list[str]) -> list[Distribution]:
    """Return the distributions that the requirements need, each once. Raises PackageNotFoundError."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(line, "") for line in wanted]
    while waiting:
        line, extra = waiting.pop()
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = distribution(requirement.name)
        found[requirement.name.lower()] = name
        for wish in ("", *requirement.extras):
            if (requirement.name.lower(), wish) not in seen:
                seen.add((requirement.name.lower(), wish))
                waiting += [(below, wish) for below in name.requires or []]
    return [found[key] for key in sorted(found)]


def copy(library: Distribution, to: Path) -> None:
    """Copy the files of one distribution. Those outside of site-packages are left out."""
    for file in library.files or []:
        if ".." in file.parts or file.is_absolute() or "__pycache__" in file.parts or file.name == "INSTALLER":
            continue
        target = to / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(library.locate_file(file)), target)


def main(argv: list[str]) -> int:
    """Copy, and print each name and version; return the exit code."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(argv[1], encoding="utf-8")
    wanted = settings["options"]["install_requires"].strip().splitlines()
    try:
        libraries = closure(wanted)
    except PackageNotFoundError as error:
        print(f"copy_dependencies: fatal: unable to find {error.name}; run bin/setup-venv", file=sys.stderr)
        return 1
    for library in libraries:
        copy(library, Path(argv[2]))
        print(f"{library.metadata['Name']} {library.version} {library.metadata['License-Expression'] or ''}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
