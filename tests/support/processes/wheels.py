"""Wheels of what is installed here, for pip in a test: it needs no network then.

The files of each distribution are packed again, without the programs that pip has made of its entry points.
"""

import configparser
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from support.processes.forked import BIN

# What pip builds the suite with; mypy compiles it.
BUILD = ("setuptools", "wheel", "mypy")


def closure(wanted: list[str]) -> list[Distribution]:
    """Return the distributions that requirements need, and that are installed."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(line) for line in wanted]
    while waiting:
        requirement = waiting.pop()
        if requirement.name.lower() in found:
            continue
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found[requirement.name.lower()] = one = distribution(requirement.name)
        except PackageNotFoundError:
            continue  # pip will name it.
        waiting += [Requirement(line) for line in one.requires or []]
    return list(found.values())


def pack(one: Distribution, directory: Path) -> None:
    """Write the wheel of a distribution."""
    lines = (one.read_text("WHEEL") or "").splitlines()
    tags = [line.partition(": ")[2] for line in lines if line.startswith("Tag: ") and "py2" not in line]
    name = one.metadata["Name"].replace("-", "_")
    target = directory / f"{name}-{one.version}-{tags[0]}.whl"
    with zipfile.ZipFile(target, "w") as wheel:
        for file in one.files or []:
            if ".." not in file.parts and "__pycache__" not in file.parts:
                wheel.write(str(one.locate_file(file)), str(file))


def make_wheels(directory: Path, *extras: str) -> dict[str, str]:
    """Write wheels of all that the suite needs, with these extras; return the variables for pip that name them."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(BIN.parent / "setup.cfg", encoding="utf-8")
    wanted = settings["options"]["install_requires"].split("\n")
    for extra in extras:
        wanted += settings["options.extras_require"][extra].split("\n")
    for one in closure([*filter(None, wanted), *BUILD]):
        pack(one, directory)
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(directory), "PIP_CONFIG_FILE": "/dev/null"}
