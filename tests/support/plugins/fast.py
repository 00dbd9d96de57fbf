"""The option --fast: only the test files that start no process and wait for nothing.

A test file is one of them if neither it nor a support module that it imports, directly or through others, imports one
of WAITING. It is decided by the source, so the other files are not even imported.
"""

import ast
import functools
from pathlib import Path

import pytest

_TESTS = Path(__file__).resolve().parents[2]
WAITING = {"asyncio", "multiprocessing", "pyspark", "socket", "subprocess", "threading"}
# Fixtures of conftest.py that start a process.
_FIXTURES = {"send", "spark"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("--fast") or not collection_path.name.startswith("test_"):
        return None
    return True if waits(collection_path) else None


@functools.cache
def waits(path: Path) -> bool:
    """Return whether a module starts processes or waits for something, itself or by what it imports."""
    tree = ast.parse(path.read_text())
    names = set(_imported(tree))
    if WAITING & {name.partition(".")[0] for name in names} or _FIXTURES & set(_arguments(tree)):
        return True
    modules = (_TESTS / f"{name.replace('.', '/')}.py" for name in names if name.startswith("support."))
    return any(waits(module) for module in modules if module.exists())


def _imported(tree: ast.Module) -> list[str]:
    """Return the modules that a module imports, and `module.name` for what it takes from them."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def _arguments(tree: ast.Module) -> list[str]:
    """Return the names of the arguments of its functions: the fixtures that its tests use."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [argument.arg for function in functions for argument in function.args.args]
