"""queue_smtp is below the programs and does no I/O, and the formats are below queue_smtp."""

import ast
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
# All that queue_smtp imports. scramp does SCRAM's arithmetic.
ALLOWED = {
    *("binascii", "collections", "enum", "hashlib", "hmac", "ipaddress", "re", "struct", "typing"),
    *("queue_smtp", "queue_wire", "scramp"),
}


def imported(path: Path) -> set[str]:
    """Return the first parts of the names of the modules that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("path", sorted((TOP / "queue_smtp").glob("*.py")), ids=lambda path: path.stem)
def test_the_protocol_imports_formats_and_no_io(path: Path) -> None:
    assert imported(path) <= ALLOWED


@pytest.mark.parametrize("package", ["queue_wire", "queue_base"])
def test_what_is_below_the_protocol_does_not_import_it(package: str) -> None:
    assert not [path for path in (TOP / package).rglob("*.py") if "queue_smtp" in imported(path)]
