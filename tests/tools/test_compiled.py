"""The compiled form: which modules it has, and that the form that is tested is the one that runs.

tests/run --compiled sets QUEUE_SUITE_COMPILE.
"""

import ast
import os
import subprocess
import sys
from importlib import import_module, util
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILED = os.environ.get("QUEUE_SUITE_COMPILE") == "1"


def load_setup() -> ModuleType:
    spec = util.spec_from_file_location("suite_setup", ROOT / "setup.py")
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def setup_script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """setup.py, in the directory that it is run in."""
    monkeypatch.chdir(ROOT)
    return load_setup()


@pytest.mark.filterwarnings("ignore:The asyncore module is deprecated:DeprecationWarning")
def test_the_modules_that_run_are_those_of_the_tested_form(setup_script: ModuleType) -> None:
    names = [file.removesuffix(".py").replace("/", ".") for files, _ in setup_script.groups() for file in files]
    files = [import_module(name).__file__ or "" for name in names]
    assert len(files) > 80
    assert {name.endswith(tuple(EXTENSION_SUFFIXES)) for name in files} == {COMPILED}


def test_the_programs_run_the_tested_form() -> None:
    words = [str(Path(sys.executable).with_name("queuectl")), "version"]
    shown = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout
    assert (", compiled, " in shown) == COMPILED


def test_every_module_that_is_left_out_of_a_compiled_package_exists(setup_script: ModuleType) -> None:
    packages = setup_script.COMPILED.split()
    for file in setup_script.PURE:
        assert Path(file).is_file()
        assert str(Path(file).parent) in packages


def names_of(handler: ast.ExceptHandler) -> set[str]:
    """Return the names of the classes that an `except` takes."""
    return {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else set()


def test_no_variable_of_except_is_of_a_compiled_class_and_of_another_one(setup_script: ModuleType) -> None:
    """mypyc gives it the first class for the whole function, and raises TypeError for the other."""
    trees = {file: ast.parse(Path(file).read_text()) for files, _ in setup_script.groups() for file in files}
    compiled = {"Exception", "ValueError"}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} & compiled:
                compiled.add(node.name)
    compiled -= {"Exception", "ValueError"}
    assert "PeerLost" in compiled
    wrong = []
    for file, tree in trees.items():
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            caught: dict[str, set[str]] = {}
            for node in ast.walk(function):
                if isinstance(node, ast.ExceptHandler) and node.name:
                    caught.setdefault(node.name, set()).update(names_of(node))
            wrong += [f"{file}: {function.name}" for names in caught.values() if len(names) > 1 and names & compiled]
    assert wrong == []


def test_what_an_error_was_raised_from_is_asked_of_its_context() -> None:
    """`raise … from` sets __context__ in both forms, __cause__ in Python alone."""
    assert [str(path) for path in ROOT.glob("queue_*/**/*.py") if "__cause__" in path.read_text()] == []


def test_no_membership_is_asked_of_a_display_with_a_star(setup_script: ModuleType) -> None:
    """mypyc asks about each element of a display behind `in` by itself, and fails on one with a star."""
    wrong = []
    for file in (file for group, _ in setup_script.groups() for file in group):
        asked = [node for node in ast.walk(ast.parse(Path(file).read_text())) if isinstance(node, ast.Compare)]
        for node in asked:
            for operator, place in zip(node.ops, node.comparators, strict=True):
                starred = any(isinstance(one, ast.Starred) for one in getattr(place, "elts", ()))
                if isinstance(operator, ast.In | ast.NotIn) and starred:
                    wrong.append(f"{file}:{node.lineno}")
    assert wrong == []


def imported_classes(tree: ast.Module) -> dict[str, str]:
    """Return the names that a module imports from the suite, with the files that they are from."""
    return {
        name.name: f"{node.module.replace('.', '/')}.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("queue_")
        for name in node.names
    }


def test_no_class_inherits_from_one_of_the_suite_of_the_other_form(setup_script: ModuleType) -> None:
    """mypyc would take instances of a compiled class for smaller than they are; a Python class raises TypeError."""
    compiled = {file for group, _ in setup_script.groups() for file in group}
    wrong = []
    for path in Path().glob("queue_*/**/*.py"):
        tree = ast.parse(path.read_text())
        other = {name for name, file in imported_classes(tree).items() if (file in compiled) != (str(path) in compiled)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} & other:
                wrong.append(f"{path}: {node.name}")
    assert wrong == []


def test_no_class_inherits_from_one_of_a_library(setup_script: ModuleType) -> None:
    """pip builds without the libraries, so mypyc does not know the base class: a method that uses it crashes."""
    wrong = []
    for file in (file for group, _ in setup_script.groups() for file in group):
        tree = ast.parse(Path(file).read_text())
        found: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found.update(name.asname or name.name for name in node.names if is_library(name.name))
            elif isinstance(node, ast.ImportFrom) and is_library(node.module or ""):
                found.update(name.asname or name.name for name in node.names)
        bases = [(node.name, base) for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases]
        wrong += [f"{file}: {name}" for name, base in bases if ast.unparse(base).partition(".")[0] in found]
    assert wrong == []


def is_library(module: str) -> bool:
    """Return whether a module is neither the suite's nor of the standard library."""
    top = module.partition(".")[0]
    return not top.startswith("queue_") and top not in sys.stdlib_module_names


@pytest.mark.parametrize(("variable", "value"), [("CC", "/no/such/compiler"), ("CC", "no-such-compiler -O2")])
def test_without_a_compiler_the_installation_says_what_to_install(variable: str, value: str, tmp_path: Path) -> None:
    environment = {**os.environ, "QUEUE_SUITE_COMPILE": "1", variable: value}
    words = [sys.executable, "setup.py", "build_ext", "--build-lib", str(tmp_path), "--build-temp", str(tmp_path)]
    ran = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode != 0
    assert f"there is no C compiler ({value.split()[0]}); install it (on Debian: apt-get install gcc" in ran.stderr
