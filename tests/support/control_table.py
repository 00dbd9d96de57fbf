"""Writes the table of docs/configure.md from the registry: `cd tests; ../.venv/bin/python -m support.control_table`."""

from pathlib import Path
from typing import Any

from queue_wire.control.control_file import ControlFile
from queue_wire.control.registry import FILES

PAGE = Path(__file__).resolve().parents[2] / "docs/configure.md"
HEAD = "| file | default | range | meaning | used by | read | page |\n|---|---|---|---|---|---|---|\n"


def _row(file: ControlFile[Any]) -> str:
    note = f" [{file.note}]" if file.note else ""
    page = f"[{file.page}]" if file.page else "-"
    cells = (f"`{file.name}`", file.default, file.range or "-", file.what, ", ".join(file.readers), file.read + note)
    return " | ".join(("", *cells, page, "")).strip() + "\n"


def renew_table(text: str) -> str:
    """Return docs/configure.md with the table as it is to be."""
    before, head, rest = text.partition(HEAD)
    assert head, "docs/configure.md has no table"
    return before + head + "".join(map(_row, FILES)) + rest[rest.index("\n\n") + 1 :]


if __name__ == "__main__":
    PAGE.write_text(renew_table(PAGE.read_text()))
