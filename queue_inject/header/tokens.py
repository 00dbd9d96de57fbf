"""Words and signs of an address field (RFC 5322 section 3.2), and the field again, byte for byte.

A Token keeps the bytes that it came from and the white space before it, so that putting tokens back
together changes nothing but what a caller changed.
"""

from queue_wire.format_error import FormatError

SIGNS = ".,@<>:;"
ATOM = "atom"
QUOTE = "quoted string"
LITERAL = "domain literal"
COMMENT = "comment"

_SPACE = " \t\r\n"
# What ends an atom. The rest, 8-bit bytes too, may be in one: others write what they like.
_ATOM_END = frozenset(_SPACE + SIGNS + '()[]"')
_CLOSING = {"(": (")", COMMENT), '"': ('"', QUOTE), "[": ("]", LITERAL)}
_LINE = 78


class Token:
    """kind: a sign, ATOM, QUOTE, LITERAL or COMMENT; value: without quoting; raw: with it; gap: white space before."""

    __slots__ = ("gap", "kind", "raw", "value")

    def __init__(self, kind: str, value: str, raw: str, gap: str = "") -> None:
        self.kind = kind
        self.value = value
        self.raw = raw
        self.gap = gap


def tokenize(text: str) -> tuple[list[Token], str]:
    """Return the tokens of a field's body, and the white space after the last one. Raises FormatError.

    `text` is the bytes as Latin-1, so that each character is a byte.
    """
    tokens: list[Token] = []
    place, size = 0, len(text)
    while True:
        start = place
        while place < size and text[place] in _SPACE:
            place += 1
        gap = text[start:place]
        if place == size:
            return tokens, gap
        start, sign = place, text[place]
        if sign in SIGNS:
            place += 1
            tokens.append(Token(sign, sign, sign, gap))
        elif sign in _CLOSING:
            closing, kind = _CLOSING[sign]
            place, value = _enclosed(text, place, sign, closing)
            tokens.append(Token(kind, f"[{value}]" if kind is LITERAL else value, text[start:place], gap))
        elif sign in ")]":
            raise FormatError(f"a {sign} that nothing has opened")
        else:
            place, value = _atom(text, place)
            tokens.append(Token(ATOM, value, text[start:place], gap))


def _atom(text: str, place: int) -> tuple[int, str]:
    parts = []
    while place < len(text) and text[place] not in _ATOM_END:
        if text[place] == "\\":
            place += 1
        if place == len(text):
            raise FormatError("a backslash at the end")
        parts.append(text[place])
        place += 1
    return place, "".join(parts)


def _enclosed(text: str, place: int, opening: str, closing: str) -> tuple[int, str]:
    """Return where a quoted string, literal or comment ends, and what is in it. Comments nest."""
    level = 1
    parts = []
    while level:
        place += 1
        sign = text[place : place + 1]
        if sign == "\\":
            place += 1
            sign = text[place : place + 1]
            parts.append(sign)
        elif sign == closing:
            level -= 1
        elif sign == opening:
            level += 1
        elif sign not in ("\r", "\n"):
            # A line end here is folding, not text (RFC 5322 section 2.2.3).
            parts.append(sign)
        if not sign:
            raise FormatError(f"a {opening} without its {closing}")
    return place + 1, "".join(parts)


def untokenize(tokens: list[Token], tail: str) -> str:
    """Return the text that the tokens came from, with whatever was changed in them."""
    return "".join([token.gap + token.raw for token in tokens]) + tail


def fold(tokens: list[Token], column: int) -> None:
    """Start a new line after a comma wherever the next address would pass the line's end; changes gaps only.

    `column` is where the first token begins. A line that has no comma stays as long as it is.
    """
    begin = 0
    for end in range(1, len(tokens) + 1):
        if end < len(tokens) and tokens[end - 1].kind != ",":
            continue
        piece = untokenize(tokens[begin:end], "")
        if "\n" in piece:
            column = len(piece) - piece.rfind("\n") - 1
        elif begin and column + len(piece) > _LINE:
            tokens[begin].gap = "\n  "
            column = 2 + len(piece.lstrip())
        else:
            column += len(piece)
        begin = end
