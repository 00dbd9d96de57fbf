"""HTML and SVG as text in which nothing from a log can become markup: strings are escaped unless `tag` made them."""

import unicodedata
from typing import TypeAlias

# The longest text of a log that the page shows whole; a reason may be 1,000 characters, and an address 900.
LONGEST = 160

_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
# Elements without an end in HTML.
_VOID = frozenset({"meta", "br", "hr"})


class Markup(str):
    """Text that is markup already. Only `tag`, `join` and our own constants make it."""

    __slots__ = ()


Child: TypeAlias = "str | int | Markup | None"


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """Return an element. None is left out; `class_` is class, and `_` in any other attribute a hyphen."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Return the children one after the other."""
    return Markup("".join(c if isinstance(c, Markup) else escape(str(c)) for c in children if c is not None))


def escape(text: str) -> str:
    """Return text for a place between tags or between quotes."""
    return text.translate(_ESCAPED)


def visible(text: str) -> str:
    """Return a log's text with a mark for each character that is not seen: controls, and those that turn the line."""
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in _UNSEEN else c for c in text)


# Controls, formats (bidi overrides, zero width), surrogates, private use, unassigned, line and paragraph separators.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def shown(text: str, longest: int = LONGEST) -> str:
    """Return a log's text made visible and cut to a length."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return visible(cut)


def _plain(value: str | float) -> str:
    """Return an attribute's value; coordinates need no more than a tenth of a pixel."""
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return str(value)
