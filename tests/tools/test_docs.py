"""README.md and docs/: links, control files, length of lines, and no reference to a design that is not there."""

import ast
import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PAGES = sorted([*TOP.glob("*.md"), *TOP.glob("bench/*.md"), *TOP.glob("docs/**/*.md")])
PACKAGES = sorted(path for path in TOP.glob("queue_*") if (path / "__init__.py").exists())
WIDTH = 120
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)|^\[[^\]\n]+\]: (\S+)$", re.MULTILINE)
# Names of functions that read a control file; its name is one of their arguments.
READER = re.compile(r"_?(read_\w+|line|number|parsed|value|choices)")
NAME = re.compile(r"[a-z]{2,24}")
# Texts in such calls that are no control files.
NO_CONTROL_FILES = {"ascii", "replace", "remote", "local", "little", "big", "stored"}


def name_of(page: Path) -> str:
    return str(page.relative_to(TOP))


@cache
def text_of(page: Path) -> str:
    """Return a page without its blocks of code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^    .*$", "", text, flags=re.MULTILINE)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for match in LINK.finditer(text_of(page)):
        link = match[1] or match[2]
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page if not path else (page.parent / path).resolve()
        assert target.exists(), link
        assert target.is_relative_to(TOP), link
        if anchor:
            assert anchor in anchors(target), link


def test_each_page_of_docs_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [TOP / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = [(match[1] or match[2]).partition("#")[0] for match in LINK.finditer(text_of(page))]
        waiting += [(page.parent / link).resolve() for link in links if link and "://" not in link]
    assert set(PAGES) <= seen


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_line_is_longer_than_120_characters(page: Path) -> None:
    long = [number for number, line in enumerate(page.read_text().splitlines(), 1) if len(line) > WIDTH]
    assert not long


def constants(tree: ast.Module) -> dict[str, str]:
    """Return the module's names for texts."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.update({target.id: node.value.value for target in node.targets if isinstance(target, ast.Name)})
    return found


def trees(without: str = "") -> Iterator[ast.Module]:
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            if (text := path.read_text()) != without:
                yield ast.parse(text)


@cache
def control_files() -> frozenset[str]:
    """Return the names that the code reads: texts, or names for texts, in the calls of functions that READER names."""
    parsed = list(trees())
    named = {name: text for tree in parsed for name, text in constants(tree).items()}
    found = set()
    for tree in parsed:
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            name = getattr(called, "id", getattr(called, "attr", ""))
            if not READER.fullmatch(name):
                continue
            for argument in node.args[:2]:
                text = argument.value if isinstance(argument, ast.Constant) else None
                text = named.get(argument.id) if isinstance(argument, ast.Name) else text
                if isinstance(text, str) and NAME.fullmatch(text):
                    found.add(text)
    return frozenset(found - NO_CONTROL_FILES)


def documented() -> dict[str, list[str]]:
    """Return the rows of the table of control files by name, each as its cells."""
    text = (TOP / "docs/configure.md").read_text()
    table = text.partition("\n## The control files\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if line[:3] == "| `"]
    return {row[0].strip("` "): row for row in rows}


def test_each_control_file_that_the_code_reads_by_its_name_is_in_the_table() -> None:
    assert len(control_files()) > 10
    assert not control_files() - set(documented())


def test_each_control_file_in_the_table_is_read_by_the_code() -> None:
    rows = (TOP / "queue_wire/control/registry.py").read_text()
    used = set()
    for node in itertools.chain.from_iterable(ast.walk(tree) for tree in trees(without=rows)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            used.add(node.value)
        elif isinstance(node, ast.Name | ast.Attribute):
            used.add((node.id if isinstance(node, ast.Name) else node.attr).lower())
    assert not set(documented()) - used


def test_each_row_of_the_table_has_a_default_and_a_page_that_names_the_file() -> None:
    links = dict(re.findall(r"^\[(.+)\]: (\S+)$", (TOP / "docs/configure.md").read_text(), re.MULTILINE))
    for name, row in documented().items():
        assert len(row) == 7, row
        assert row[1], row
        # The row of one without a page says all.
        page = row[6].strip("[] |") != "-" and (links[row[6].strip("[] ")].partition("#")[0] or "configure.md")
        assert not page or re.search(rf"\b{name}\b", (TOP / "docs" / page).read_text()), row


def names_in(tree: ast.Module) -> set[str]:
    """Return the functions and classes of a module, and the methods as `Class.method`."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


def test_the_path_of_a_message_leads_through_functions_that_exist() -> None:
    text = (TOP / "CONTRIBUTING.md").read_text().partition("\n## The path of a message\n")[2].partition("\n## ")[0]
    places = re.findall(r"\| `([\w/]+\.py)` \| `([\w.]+)` \|$", text, re.MULTILINE)
    assert len(places) == text.count("\n| ") - 1 > 20
    for module, name in places:
        assert name in names_in(ast.parse((TOP / module).read_text())), (module, name)


def test_each_module_that_a_page_names_exists() -> None:
    files = [path for top in (*PACKAGES, TOP / "spark", TOP / "tests", TOP / "bench") for path in top.rglob("*.py")]
    known = {str(path.relative_to(TOP)) for path in files} | {path.name for path in files} | {"setup.py"}
    for page in PAGES:
        for name in re.findall(r"`((?:[\w-]+/)*[\w-]+\.py)`", page.read_text()):
            assert name in known, (page, name)


def test_nothing_refers_to_a_design_outside_of_the_repository() -> None:
    places = [*PACKAGES, TOP / "spark", TOP / "tests", TOP / "bench", TOP / "bin", TOP / "docs"]
    files = [path for place in places for path in place.rglob("*") if path.suffix in ("", ".py", ".md", ".txt")]
    word = "DESIGN"
    for path in files:
        if path.is_file() and path != Path(__file__).resolve():
            assert not re.search(rf"\b{word}\b", path.read_text(errors="replace")), path
