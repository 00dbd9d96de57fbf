"""Each test asserts something: itself, or by a function of the tests that it calls."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

TESTS = Path(__file__).resolve().parents[1]
# Calls that fail a test.
FAILING = {"raises", "warns", "fail", "run_state_machine_as_test"}
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def functions_of(node: ast.AST) -> Iterator[Function]:
    return (each for each in ast.walk(node) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))


def fails_itself(function: Function) -> bool:
    """Return whether a function has an assertion of its own."""
    for node in ast.walk(function):
        if isinstance(node, (ast.Assert, ast.Raise)):
            return True
        if isinstance(node, ast.Call) and name_of(node) in FAILING:
            return True
    return False


def name_of(call: ast.Call) -> str:
    """Return the name of the function or method that is called; "" for one without a name."""
    return getattr(call.func, "attr", "") or getattr(call.func, "id", "")


@functools.cache
def helpers() -> dict[str, bool]:
    """Return the names of the functions in support/, and whether each asserts something, itself or by another one."""
    bodies: dict[str, list[Function]] = {}
    for path in sorted((TESTS / "support").rglob("*.py")):
        for function in functions_of(tree_of(path)):
            bodies.setdefault(function.name, []).append(function)
    return asserting(bodies, {})


def asserting(bodies: dict[str, list[Function]], known: dict[str, bool]) -> dict[str, bool]:
    """Return `known` and, of these functions, whether each asserts something; to do so it may call another one."""
    found = {**known, **{name: any(map(fails_itself, each)) for name, each in bodies.items()}}
    while True:
        more = {
            name
            for name, each in bodies.items()
            if not found[name] and any(found.get(name_of(call), False) for body in each for call in calls_of(body))
        }
        if not more:
            return found
        found.update(dict.fromkeys(more, True))


def calls_of(function: Function) -> Iterator[ast.Call]:
    return (node for node in ast.walk(function) if isinstance(node, ast.Call))


def without_assertion(path: Path) -> list[str]:
    """Return the tests of a file that assert nothing."""
    bodies: dict[str, list[Function]] = {}
    for function in functions_of(tree_of(path)):
        bodies.setdefault(function.name, []).append(function)
    found = asserting(bodies, helpers())
    return [name for name in bodies if name.startswith("test_") and not found[name]]


def test_each_test_asserts_something() -> None:
    found = {str(path.relative_to(TESTS)): without_assertion(path) for path in sorted(TESTS.rglob("test_*.py"))}
    assert len(found) > 200
    assert {path: names for path, names in found.items() if names} == {}


def test_one_that_asserts_nothing_is_found(tmp_path: Path) -> None:
    path = tmp_path / "test_few.py"
    path.write_text(
        "def helper():\n    assert f()\n"
        "def test_by_itself():\n    assert f()\n"
        "def test_by_a_helper():\n    helper()\n"
        "def test_nothing():\n    f()\n"
    )
    assert without_assertion(path) == ["test_nothing"]
