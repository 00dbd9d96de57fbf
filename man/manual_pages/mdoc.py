"""Writes mdoc(7), the language of manual pages, from plain text and from the Markdown of docs/."""

import re
import textwrap
from collections.abc import Iterable

from manual_pages.markdown import Block, CodeBlock, Heading, Items, Paragraph, Table, blocks

# mandoc asks for lines of text of at most 80 bytes, with each sentence on a line of its own.
_WIDTH = 68
_SENTENCE = re.compile(r"(?<=[.?!])(\)?) +(?=\S)")
_LINK = re.compile(r"\[([^\]]+)\]\([^)\s]+\)")
_SPAN = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*")
_GLYPHS = {"\\": "\\e", "^": "\\(ha", "~": "\\(ti", "…": "...", "√": "\\(sr", "²": "\\(S2"}


def escape(text: str, code: bool = False) -> str:
    """Return text that roff prints as it is. In `code` a hyphen, a quote and an accent are those of ASCII."""
    glyphs = _GLYPHS | ({"-": "\\-", "'": "\\(aq", "`": "\\(ga"} if code else {})
    return "".join(glyphs.get(letter, letter) for letter in text)


def argument(text: str, code: bool = False) -> str:
    """Return text as one argument of a macro."""
    return '"' + spans(text, code).replace('"', "\\(dq") + '"'


def spans(text: str, code: bool = False) -> str:
    """Return a line of Markdown with code in bold, and links as their texts."""
    text = _LINK.sub(r"\1", text)
    parts = []
    at = 0
    for match in _SPAN.finditer(text):
        bold = escape(match[1], True) if match[1] else spans(match[2])
        parts += [escape(text[at : match.start()], code), f"\\fB{bold}\\fP"]
        at = match.end()
    return "".join([*parts, escape(text[at:], code)])


def paragraph(text: str) -> list[str]:
    """Return the lines of a text, which is Markdown: each sentence begins one."""
    found = []
    for sentence in _SENTENCE.sub(r"\1\n", spans(text)).split("\n"):
        for line in textwrap.wrap(sentence, _WIDTH, break_long_words=False, break_on_hyphens=False):
            found.append(f"\\&{line}" if line.startswith((".", "'")) else line)
    return found


def literal(lines: Iterable[str]) -> list[str]:
    """Return a block of lines that are shown as they are."""
    shown = [escape(line.expandtabs(), True) for line in lines]
    shown = [f"\\&{line}" if line.startswith((".", "\\(aq")) else line for line in shown]
    return [".Bd -literal -offset indent", *shown, ".Ed"]


def markdown(text: str) -> list[str]:
    """Return a section of a page of docs/; what is below a heading becomes a subsection."""
    found: list[str] = []
    for block in blocks(text):
        if isinstance(block, Paragraph) and found and not found[-1].startswith(".Ss"):
            found.append(".Pp")
        found += _block(block)
    return found


def _block(block: Block) -> list[str]:
    match block:
        case Heading(text):
            return [f".Ss {spans(text)}"]
        case Paragraph(text):
            return paragraph(text)
        case CodeBlock(lines):
            return literal(lines)
        case Items(items, numbered):
            kind = "enum" if numbered else "bullet"
            return [f".Bl -{kind}", *(line for item in items for line in [".It", *paragraph(item)]), ".El"]
        case Table():
            return _table(block)


def _table(table: Table) -> list[str]:
    """Return a table as a list with tags: the first cell is the tag, each other one a sentence behind its head.

    A row with an empty first cell goes on with the tag before it.
    """
    found = [".Bl -tag -width Ds"]
    for tag, *cells in table.rows:
        found.append(f".It {argument(tag)}" if tag else ".Pp")
        if len(cells) == 1:
            found += paragraph(cells[0])
        elif len(cells) == 2 and not table.head[1]:
            found += paragraph(": ".join(cells))
        else:
            facts = [f"{name}: {cell}" if name else cell for name, cell in zip(table.head[1:], cells, strict=True)]
            found += paragraph("; ".join(facts) + ".")
    return [*found, ".El"]


def words(text: str) -> str:
    """Return options and arguments as macros: `-f SENDER` is `Fl f Ar SENDER`, brackets are `Op`."""
    found: list[str] = []
    tokens = re.findall(r"\[|\](?:\.\.\.)?|[^\s\[\]]+", text)
    for token in tokens:
        bare = token.rstrip(",;:")
        end = f" {token[len(bare)]}" if bare != token else ""
        if token == "[":
            found.append("Oo")
        elif token == "]":
            found.append("Oc")
        elif token == "]...":
            found.append("Oc Ns Ar ...")
        elif bare.startswith("-") and bare != "-":
            found.append(f"Fl {escape(bare[1:], True)}{end}")
        elif match := re.fullmatch(r"(\d?<)(\w+)", bare):
            found.append(f"No {match[1]} Ns Ar {match[2]}{end}")
        elif re.fullmatch(r"[A-Z][A-Z0-9:]*(\.\.\.)?", bare):
            found.append(f"Ar {escape(bare, True)}{end}")
        elif bare == "...":
            found.append("Ar ...")
        else:
            found.append(f'No "{escape(bare, True)}"{end}')
    return " ".join(found)
