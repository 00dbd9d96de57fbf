"""Each test asserts something: itself, or by a function of the tests that it calls."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

TESTS = Path(__file__).resolve().parents[1]
# Calls that fail a test.
FAILING = {"raises", "warns", "fail", "run_state_machine_as_test"}
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Body(NamedTuple):
    """What a function does: whether it has an assertion of its own, and the names of what it calls."""

    fails: bool
    calls: frozenset[str]


def functions_of(path: Path) -> Iterator[tuple[str, Body]]:
    """Yield the name of each function of a file, and what it does."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, body_of(node)


def body_of(function: Function) -> Body:
    """Return what a function does."""
    nodes = list(ast.walk(function))
    calls = frozenset(name_of(node) for node in nodes if isinstance(node, ast.Call))
    return Body(bool(calls & FAILING) or any(isinstance(node, (ast.Assert, ast.Raise)) for node in nodes), calls)


def name_of(call: ast.Call) -> str:
    """Return the name of the function or method that is called; "" for one without a name."""
    return getattr(call.func, "attr", "") or getattr(call.func, "id", "")


@functools.cache
def helpers() -> dict[str, bool]:
    """Return the names of the functions in support/, and whether each asserts something, itself or by another one."""
    bodies: dict[str, list[Body]] = {}
    for path in sorted((TESTS / "support").rglob("*.py")):
        for name, body in functions_of(path):
            bodies.setdefault(name, []).append(body)
    return asserting(bodies, {})


def asserting(bodies: dict[str, list[Body]], known: dict[str, bool]) -> dict[str, bool]:
    """Return `known` and, of these functions, whether each asserts something; to do so it may call another one."""
    found = {**known, **{name: any(body.fails for body in each) for name, each in bodies.items()}}
    while True:
        more = {
            name
            for name, each in bodies.items()
            if not found[name] and any(found.get(call, False) for body in each for call in body.calls)
        }
        if not more:
            return found
        found.update(dict.fromkeys(more, True))


def without_assertion(path: Path) -> list[str]:
    """Return the tests of a file that assert nothing."""
    bodies: dict[str, list[Body]] = {}
    for name, body in functions_of(path):
        bodies.setdefault(name, []).append(body)
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
