"""A class name and a module name stand once in queue_*, and once in spark: one word has one meaning there."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
# What each program has.
MODULES_OF_PROGRAMS = {"__init__", "__main__", "config", "main"}
# Modules here are named as the subcommands of queuectl and queue-report, which are words of their users.
SUBCOMMANDS = (TOP / "queue_admin" / "commands", TOP / "spark" / "commands")
# The log pipeline has words of its own (docs/design/words.md).
PACKAGES = ("queue_*", "spark")


def modules(names: str) -> list[Path]:
    packages = [path for path in TOP.glob(names) if (path / "__init__.py").exists()]
    return sorted(path for package in packages for path in package.rglob("*.py"))


def twice(places: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: where for name, where in places.items() if len(where) > 1}


def module_names(names: str) -> dict[str, list[str]]:
    """Return the modules by name, those of subcommands excepted. Folders do not count."""
    found = defaultdict(list)
    for path in modules(names):
        if not any(top in path.parents for top in SUBCOMMANDS) and path.stem not in MODULES_OF_PROGRAMS:
            found[path.stem.lstrip("_")].append(str(path.relative_to(TOP)))
    return found


def class_names(names: str) -> dict[str, list[str]]:
    """Return the classes of all modules by name, private ones without the underscore."""
    found = defaultdict(list)
    for path in modules(names):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(f"{path.relative_to(TOP)}:{node.lineno}")
    return found


@pytest.mark.parametrize("names", PACKAGES)
def test_a_module_name_stands_once(names: str) -> None:
    assert not twice(module_names(names))


@pytest.mark.parametrize("names", PACKAGES)
def test_a_class_name_stands_once(names: str) -> None:
    assert not twice(class_names(names))


def test_a_private_name_counts_as_the_same_name(tmp_path: Path) -> None:
    assert twice({"Key": ["a.py", "b.py"], "Lock": ["c.py"]}) == {"Key": ["a.py", "b.py"]}
