"""HTML as text in which nothing from outside can become markup: strings are escaped unless `tag` made them. Pure."""

import unicodedata
from typing import TypeAlias

_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
# Elements without an end in HTML.
_VOID = frozenset({"br", "hr", "input", "meta", "wbr"})
# Controls, formats (bidi overrides, zero width), surrogates, private use, unassigned, line and paragraph separators.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


class Markup(str):
    """Text that is markup already. Only `tag`, `join` and constants of a page make it."""

    __slots__ = ()


Child: TypeAlias = "str | int | Markup | None"


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """Return an element. An attribute that is None is left out; `class_` is class, `_` in another one a hyphen."""
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
    return Markup("".join(one if isinstance(one, Markup) else escape(str(one)) for one in children if one is not None))


def escape(text: str) -> str:
    """Return text for a place between tags or between quotes."""
    return text.translate(_ESCAPED)


def mark_unseen(text: str) -> str:
    """Return text with U+FFFD for each character that is not seen: controls, and those that turn a line's direction."""
    if text.isascii() and text.isprintable():
        return text
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(one) in _UNSEEN else one for one in text)


def _plain(value: str | float) -> str:
    """Return an attribute's value; coordinates need no more than a hundredth."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)
