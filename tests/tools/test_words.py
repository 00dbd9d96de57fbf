"""A class name and a module name stand once in queue_*: one word has one meaning (docs/design/words.md)."""

import ast
from collections import defaultdict
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
# What each program has.
MODULES_OF_PROGRAMS = {"__init__", "__main__", "config", "main"}
# Modules here are named as the subcommands of queuectl, which are words of its users.
SUBCOMMANDS = TOP / "queue_admin" / "commands"


def modules() -> list[Path]:
    packages = [path for path in TOP.glob("queue_*") if (path / "__init__.py").exists()]
    return sorted(path for package in packages for path in package.rglob("*.py"))


def twice(places: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: where for name, where in places.items() if len(where) > 1}


def module_names() -> dict[str, list[str]]:
    """Return the modules by name, those of subcommands excepted. Folders do not count."""
    found = defaultdict(list)
    for path in modules():
        if path.parent != SUBCOMMANDS and path.stem not in MODULES_OF_PROGRAMS:
            found[path.stem.lstrip("_")].append(str(path.relative_to(TOP)))
    return found


def class_names() -> dict[str, list[str]]:
    """Return the classes of all modules by name, private ones without the underscore."""
    found = defaultdict(list)
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(f"{path.relative_to(TOP)}:{node.lineno}")
    return found


def test_a_module_name_stands_once() -> None:
    assert not twice(module_names())


def test_a_class_name_stands_once() -> None:
    assert not twice(class_names())


def test_a_private_name_counts_as_the_same_name(tmp_path: Path) -> None:
    assert twice({"Key": ["a.py", "b.py"], "Lock": ["c.py"]}) == {"Key": ["a.py", "b.py"]}
