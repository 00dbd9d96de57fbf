"""A class name and a module name stand once in queue_*, and once in spark: one word has one meaning there."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
# What each program has.
MODULES_OF_PROGRAMS = {"__init__", "__main__", "config", "main"}
# Modules here are named as the subcommands of queuectl and queue-report, which are words of their users.
SUBCOMMANDS = (TOP / "queue_admin" / "commands", TOP / "spark/queue_report/commands")
# The log pipeline has words of its own (docs/design/words.md).
PACKAGES = ("queue_*", "spark/queue_report")


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


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(each).endswith("property") for each in node.decorator_list)


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield the functions of all modules, with their places; properties are left out."""
    for names in PACKAGES:
        for path in modules(names):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_property(node):
                    yield f"{path.relative_to(TOP)}:{node.lineno}", node


def test_the_docstring_of_a_function_is_in_the_imperative() -> None:
    third = re.compile(r"(Returns|Yields|Adds|Sets|Makes|Takes|Reads|Writes|Removes|Begins|Ends|Starts|Logs|Gives)\b")
    places = [where for where, node in functions() if third.match(ast.get_docstring(node) or "")]
    assert not places


def test_the_largest_value_of_something_has_one_word() -> None:
    """It is X_MAX, as in limits.h."""
    files = [path for names in PACKAGES for path in modules(names)]
    trees = {path: ast.parse(path.read_text()) for path in files}
    names = [(path, node.id) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.Name)]
    assert len(names) > 10_000
    assert not [(str(path.relative_to(TOP)), name) for path, name in names if len(name) > 5 and name.endswith("_MOST")]


def test_a_private_name_counts_as_the_same_name(tmp_path: Path) -> None:
    assert twice({"Key": ["a.py", "b.py"], "Lock": ["c.py"]}) == {"Key": ["a.py", "b.py"]}
