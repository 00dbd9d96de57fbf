"""Reads the Markdown of docs/: sections, paragraphs, lists, tables and blocks of code."""

import re
from typing import NamedTuple


class Heading(NamedTuple):
    """A heading below that of the section."""

    text: str


class Paragraph(NamedTuple):
    """Text, in one line."""

    text: str


class CodeBlock(NamedTuple):
    """Lines that are shown as they are, without their indent."""

    lines: list[str]


class Items(NamedTuple):
    """A list; `numbered` or with bullets. Each item is one line."""

    items: list[str]
    numbered: bool


class Table(NamedTuple):
    """A table: the cells of its head and of its rows."""

    head: list[str]
    rows: list[list[str]]


Block = Heading | Paragraph | CodeBlock | Items | Table
_ITEM = re.compile(r"(- |\d+\. )")
_CELL = re.compile(r"(?<!\\)\|")


def section(text: str, heading: str) -> str:
    """Return what stands under a heading, with what is below it; `` is what stands before the second heading.

    Raises KeyError if there is no such heading.
    """
    parts = _divided(text)
    if not heading:
        return parts[0][2]
    for number, (depth, name, body) in enumerate(parts):
        if name == heading:
            for below, title, more in parts[number + 1 :]:
                if below <= depth:
                    break
                body += f"\n\n{'#' * below} {title}\n\n{more}"
            return body
    raise KeyError(heading)


def _divided(text: str) -> list[tuple[int, str, str]]:
    """Return (depth, heading, what stands under it alone) of all headings; blocks of code may hold lines with #."""
    parts: list[tuple[int, str, str]] = []
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        match = None if fenced else re.fullmatch(r"(#+) (.+)", line)
        if match:
            parts.append((len(match[1]), match[2], ""))
        else:
            depth, name, body = parts.pop()
            parts.append((depth, name, f"{body}{line}\n"))
    return parts


def blocks(text: str) -> list[Block]:
    """Return the blocks of a section, in order. Definitions of links are left out."""
    found: list[Block] = []
    lines = text.splitlines()
    while lines:
        line = lines[0]
        if not line.strip() or re.match(r"\[[^\]]+\]: ", line):
            del lines[0]
        elif line.startswith("#"):
            found.append(Heading(lines.pop(0).lstrip("# ")))
        elif line.startswith("```"):
            end = lines.index("```", 1)
            found.append(CodeBlock(lines[1:end]))
            del lines[: end + 1]
        elif line.startswith("    "):
            found.append(CodeBlock(_take_code(lines)))
        elif line.startswith("|"):
            found.append(_take_table(lines))
        elif _ITEM.match(line):
            numbered = not line.startswith("-")
            items: list[str] = []
            while lines and _ITEM.match(lines[0]):
                items.append(_ITEM.sub("", _take_text(lines), count=1))
            found.append(Items(items, numbered))
        else:
            found.append(Paragraph(_take_text(lines)))
    return found


def _take_text(lines: list[str]) -> str:
    """Take the lines of a paragraph or an item from the front; return them as one."""
    taken = [lines.pop(0)]
    while lines and lines[0].strip() and not _ITEM.match(lines[0]) and not lines[0].startswith(("|", "```")):
        taken.append(lines.pop(0).strip())
    return " ".join(taken)


def _take_code(lines: list[str]) -> list[str]:
    taken = []
    while lines and (lines[0].startswith("    ") or not lines[0].strip()):
        taken.append(lines.pop(0)[4:])
    while not taken[-1].strip():
        taken.pop()
    return taken


def _take_table(lines: list[str]) -> Table:
    rows = []
    while lines and lines[0].startswith("|"):
        cells = _CELL.split(lines.pop(0).strip())[1:-1]
        rows.append([cell.strip().replace("\\|", "|") for cell in cells])
    return Table(rows[0], rows[2:])
