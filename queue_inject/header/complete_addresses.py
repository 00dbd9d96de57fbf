"""Address lists of header fields (RFC 5322 section 3.4, obsolete forms of section 4.4): finds and completes them.

`plain_addresses` recognizes the ordinary field, in which nothing is to be completed. `rewrite_list` is the full parser:
it splits the field into tokens, finds the addresses and completes each. A name without @ gets @defaulthost, a host
that ends in + gets plusdomain in place of the +, and a host without a dot gets defaultdomain (qmail-inject(8)), but
localhost stays.

The parser accepts what qmail-inject accepts: a comma is inserted between addresses that only a space separates, source
routes are removed, and so is a dot or @ at the end of an address. Anything else that is wrong raises FormatError with
the reason, so no address is dropped silently. Bytes that belong to no completed address stay as they are.
`readable_addresses` finds what can be read of such a field.
"""

from queue_wire.files.envelope import ADDRESS_MAX, check_address
from queue_wire.format_error import FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    # Takes "defaulthost", "defaultdomain" or "plusdomain" and returns the value.
    Names = Callable[[str], bytes]

# The kinds of tokens (RFC 5322 section 3.2), besides the specials, which are their own kind.
SPECIALS = ".,@<>:;"
ATOM = "atom"
QUOTED_STRING = "quoted string"
LITERAL = "domain literal"
COMMENT = "comment"

_SPACE = " \t\r\n"
# What ends an atom. All other characters, 8-bit ones too, may be part of one, as other programs write them.
_ATOM_END = frozenset(_SPACE + SPECIALS + '()[]"')
_CLOSING = {"(": (")", COMMENT), '"': ('"', QUOTED_STRING), "[": ("]", LITERAL)}
_LINE_LENGTH = 78
_WORDS = (ATOM, QUOTED_STRING, LITERAL)

_SPACE_BYTES = _SPACE.encode("ascii")
# The characters of atoms, and dots: printable ASCII without specials, and 8-bit text (RFC 6532 section 3.2).
_ATOM_BYTES = bytes(byte for byte in range(33, 256) if byte != 127 and byte not in b'()<>[]",:;@\\')
_ADDRESS_BYTES = _ATOM_BYTES + b"@"
_PHRASE_BYTES = _ATOM_BYTES + _SPACE_BYTES


def plain_addresses(body: bytes) -> list[bytes] | None:
    """Return the addresses of a field's body, or None if only the full parser can tell.

    Ordinary fields are `Ann Person <ann@example.org>, bob@example.net` and `"A. P." <ann@example.org>`. A group, a
    comment, a backslash, a comma in quotes or an incomplete address needs the full parser. The result is what
    `rewrite_list` would find, and `rewrite_list` would leave the body as it is.
    """
    addresses = []
    for item in body.split(b","):
        address = item.strip(_SPACE_BYTES)
        if address[-1:] == b">":
            phrase, angle, address = address[:-1].rpartition(b"<")
            if not angle or (phrase.translate(None, _PHRASE_BYTES) and not _is_quoted(phrase.strip(_SPACE_BYTES))):
                return None
        local, _, host = address.partition(b"@")
        # A host that contains a dot needs no defaultdomain. One that ends in a dot or + must be changed.
        if not local or b"." not in host or b"@" in host or host[-1:] in (b".", b"+"):
            return None
        if address.translate(None, _ADDRESS_BYTES) or len(address) > ADDRESS_MAX:
            return None
        if not address.isascii():
            try:
                _check(address)
            except FormatError:
                return None
        addresses.append(address)
    return addresses


def _is_quoted(phrase: bytes) -> bool:
    inside = phrase[1:-1]
    return len(phrase) > 1 and phrase[:1] == phrase[-1:] == b'"' and b'"' not in inside and b"\\" not in inside


class Token:
    """A token of an address field, with the bytes that it came from.

    kind: a special, ATOM, QUOTED_STRING, LITERAL or COMMENT; value: the text without quoting; raw: the text as it was
    written; gap: the white space before it. `untokenize` of unchanged tokens gives the original field.
    """

    __slots__ = ("gap", "kind", "raw", "value")

    def __init__(self, kind: str, value: str, raw: str, gap: str = "") -> None:
        self.kind = kind
        self.value = value
        self.raw = raw
        self.gap = gap


def tokenize(text: str) -> tuple[list[Token], str]:
    """Return the tokens of a field's body, and the white space after the last one. Raises FormatError.

    `text` is the body decoded as Latin-1, so that each character is one byte.
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
        place, token = _read_token(text, place, gap)
        tokens.append(token)


def _read_token(text: str, start: int, gap: str) -> tuple[int, Token]:
    """Return where the token that begins at `start` ends, and the token. Raises FormatError."""
    character = text[start]
    if character in SPECIALS:
        return start + 1, Token(character, character, character, gap)
    if character in ")]":
        raise FormatError(f"a {character} that nothing has opened")
    kind = ATOM
    if character in _CLOSING:
        closing, kind = _CLOSING[character]
        place, value = _read_enclosed(text, start, character, closing)
    else:
        place, value = _read_atom(text, start)
    return place, Token(kind, f"[{value}]" if kind is LITERAL else value, text[start:place], gap)


def _read_atom(text: str, place: int) -> tuple[int, str]:
    parts = []
    while place < len(text) and text[place] not in _ATOM_END:
        if text[place] == "\\":
            place += 1
        if place == len(text):
            raise FormatError("a backslash at the end")
        parts.append(text[place])
        place += 1
    return place, "".join(parts)


def _read_enclosed(text: str, place: int, opening: str, closing: str) -> tuple[int, str]:
    """Return where a quoted string, literal or comment ends, and its contents. Comments nest."""
    level = 1
    parts = []
    while level:
        place += 1
        character = text[place : place + 1]
        if character == "\\":
            place += 1
            character = text[place : place + 1]
            parts.append(character)
        elif character == closing:
            level -= 1
        elif character == opening:
            level += 1
        elif character not in ("\r", "\n"):
            # A line end is folding and not part of the text (RFC 5322 section 2.2.3).
            parts.append(character)
        if not character:
            raise FormatError(f"a {opening} without its {closing}")
    return place + 1, "".join(parts)


def untokenize(tokens: list[Token], tail: str) -> str:
    """Return the text of the tokens. It is the original text unless the tokens were changed."""
    return "".join([token.gap + token.raw for token in tokens]) + tail


def fold(tokens: list[Token], column: int) -> None:
    """Start a new line after a comma where the next address would exceed the line length. Changes only the gaps.

    `column` is the column of the first token. A line without a comma keeps its length.
    """
    begin = 0
    for end in range(1, len(tokens) + 1):
        if end < len(tokens) and tokens[end - 1].kind != ",":
            continue
        piece = untokenize(tokens[begin:end], "")
        if "\n" in piece:
            column = len(piece) - piece.rfind("\n") - 1
        elif begin and column + len(piece) > _LINE_LENGTH:
            tokens[begin].gap = "\n  "
            column = 2 + len(piece.lstrip())
        else:
            column += len(piece)
        begin = end


class _Span:
    """An address: tokens start to end, `first` being the first token of its display name.

    `unseparated` says that no comma separates it from the address before it.
    """

    __slots__ = ("end", "first", "start", "unseparated")

    def __init__(self, first: int, start: int, end: int, unseparated: bool) -> None:
        self.first = first
        self.start = start
        self.end = end
        self.unseparated = unseparated


def rewrite_list(body: bytes, names: "Names", column: int = 0, sender: bool = False) -> tuple[bytes, list[bytes]]:
    """Return a field's body with complete addresses, and the addresses as an envelope has them.

    If nothing has to be completed, the body is returned as it is. `column` is the length of the field's name with its
    colon. `sender` permits `<>`. Raises FormatError.
    """
    tokens, tail = tokenize(body.decode("latin-1"))
    before = untokenize(tokens, tail)
    done: list[Token] = []
    addresses = []
    place = 0
    for span in _find(tokens):
        done += tokens[place : span.first]
        if span.unseparated:
            done.append(Token(",", ",", ","))
        done += tokens[span.first : span.start]
        rewritten, address = complete_tokens(tokens[span.start : span.end], names)
        if not address and not sender:
            raise FormatError("an address is empty")
        done += rewritten
        addresses.append(address)
        place = span.end
    done += tokens[place:]
    if untokenize(done, tail) == before:
        return body, addresses
    fold(done, column)
    return untokenize(done, tail).encode("latin-1"), addresses


def readable_addresses(body: bytes, names: "Names") -> list[bytes]:
    """Return the addresses that can be read of a body that `rewrite_list` refuses, or that is too long for it.

    An address counts if it is alone between separators or stands after a `<`, and has an @: a word without one may be
    part of a broken display name. A `"` or `[` without its end is passed over. What follows a `(` without its end may
    be a comment, and is not read.
    """
    text = body.decode("latin-1")
    reader = _AddressReader(names)
    passed = _SPACE
    place = 0
    while place < len(text):
        if text[place] in passed:
            place += 1
            continue
        try:
            place, token = _read_token(text, place, "")
        except FormatError:
            if text[place] not in '"[])':
                break
            # No later one has its end either. They are not tried again, which would take quadratic time.
            passed += text[place]
        else:
            reader.take(token)
    reader.end_item()
    return reader.addresses


class _AddressReader:
    """Takes the tokens of a list and keeps the addresses that can be read. It holds the tokens of one address only."""

    def __init__(self, names: "Names") -> None:
        self.addresses: list[bytes] = []
        self._names = names
        self._tokens: list[Token] = []
        # Whether a < is open; whether the item has had an address in angle brackets, so that its words are a name.
        self._open = self._named = False

    def take(self, token: Token) -> None:
        kind = token.kind
        is_route = self._open and bool(self._tokens) and self._tokens[0].kind == "@"
        if kind == "<":
            self._tokens, self._open, self._named = [], True, True
        elif kind == ">":
            self._end_address(self._open)
        elif kind == ";" or (kind == "," and not is_route):
            self.end_item()
        elif kind == ":" and not self._open:
            self._tokens = []  # The name of a group, or words with a colon.
        elif kind != COMMENT and len(self._tokens) <= ADDRESS_MAX:
            self._tokens.append(token)

    def end_item(self) -> None:
        """A separator or the end: a `<` without its `>` ends here."""
        self._end_address(self._open or not self._named)
        self._named = False

    def _end_address(self, counts: bool) -> None:
        tokens, self._tokens, self._open = self._tokens, [], False
        if counts and any(token.kind == "@" for token in tokens):
            try:
                self.addresses.append(complete_tokens(tokens, self._names)[1])
            except FormatError:
                pass


def _find(tokens: list[Token]) -> list[_Span]:
    """Return the addresses in order. A semicolon outside of a group becomes a comma: some clients separate by it."""
    found: list[_Span] = []
    # The words since the last separator, as start and end of what may be an address or part of a display name.
    words: list[list[int]] = []
    # follows: an address came since the last separator; joined: a dot or @ joins the next word to the last one.
    in_group = follows = joined = False
    place = 0
    while place < len(tokens):
        token = tokens[place]
        kind = token.kind
        if kind in _WORDS or kind in ".@":
            if words and (joined or kind not in _WORDS):
                words[-1][1] = place + 1
            else:
                words.append([place, place + 1])
            joined = kind not in _WORDS
        elif kind == "<":
            end = _find_angle_end(tokens, place)
            found.append(_Span(words[0][0] if words else place, place + 1, end, follows))
            words, follows, joined = [], True, False
            place = end
        elif kind == ">":
            raise FormatError("a > without its <")
        elif kind != COMMENT:
            if kind == ":":
                if in_group:
                    raise FormatError("a group inside a group, or a : that belongs in quotes")
                in_group = True
            else:
                _add_bare_addresses(found, words, follows)
            if kind == ";":
                if not in_group:
                    tokens[place] = Token(",", ",", ",", token.gap)
                in_group = False
            words, follows, joined = [], False, False
        place += 1
    if in_group:
        raise FormatError("a group (NAME: ADDRESSES;) without its semicolon")
    _add_bare_addresses(found, words, follows)
    return found


def _add_bare_addresses(found: list[_Span], words: list[list[int]], follows: bool) -> None:
    for start, end in words:
        found.append(_Span(start, start, end, follows))
        follows = True


def _find_angle_end(tokens: list[Token], start: int) -> int:
    for place in range(start + 1, len(tokens)):
        if tokens[place].kind == ">":
            return place
        if tokens[place].kind in "<;":
            break
    raise FormatError("a < without its >")


def complete_tokens(tokens: list[Token], names: "Names") -> tuple[list[Token], bytes]:
    """Return the tokens of one address, completed, and the address as an envelope has it: empty for `<>`."""
    tokens = _remove_route(tokens)
    significant = [token for token in tokens if token.kind != COMMENT]
    if not significant:
        return tokens, b""
    for end in ".@":
        if significant and significant[-1].kind == end:
            tokens.remove(significant.pop())
    kinds = [token.kind for token in significant]
    if not kinds or kinds[0] == "@":
        raise FormatError("an address without a name before the @")
    if kinds[-1] in ".@":
        raise FormatError(f"a {kinds[-1]} at the end of an address")
    if kinds.count("@") > 1:
        raise FormatError("an address with more than one @; addresses need commas between them")
    for number, kind in enumerate(kinds):
        if kind in ",:":
            raise FormatError(f"a {kind} inside an address")
        if number and kind in _WORDS and kinds[number - 1] in _WORDS:
            raise FormatError("a space inside an address")
    added = []
    if "@" not in kinds:
        added = [Token("@", "@", "@"), _make_atom(names("defaulthost"))]
    at = kinds.index("@") if "@" in kinds else len(kinds)
    host = significant[at + 1 :] + added[1:]
    added += _complete_host(host, names)
    place = tokens.index(significant[-1]) + 1
    tokens[place:place] = added
    local = "".join([token.value for token in significant[:at]])
    domain = "".join([token.value for token in [*significant[at:], *added]])
    if not local:
        # In an envelope, `@host` is nobody: its mail would be discarded.
        raise FormatError('an address whose name before the @ is empty ("")')
    return tokens, _check((local + domain).encode("latin-1"))


def _complete_host(host: list[Token], names: "Names") -> list[Token]:
    """Return the tokens to add to a host, and remove its + if it ends in one."""
    last = host[-1]
    if last.kind is ATOM and last.value.endswith("+"):
        last.value, last.raw = last.value[:-1], last.raw[:-1]
        return [_make_atom(b"." * bool(last.value) + names("plusdomain"))]
    if any(token.kind is LITERAL or "." in token.value for token in host):
        return []
    if "".join([token.value for token in host]).lower() == "localhost":
        # This host under any domain (RFC 6761 section 6.3), and in no other domain.
        return []
    return [_make_atom(b"." + names("defaultdomain"))]


def _make_atom(name: bytes) -> Token:
    text = name.decode("latin-1")
    return Token(ATOM, text, text)


def _remove_route(tokens: list[Token]) -> list[Token]:
    """Return a copy without the source route `@a,@b:` (RFC 5322 section 4.4)."""
    significant = [token.kind for token in tokens if token.kind != COMMENT]
    if significant[:1] == ["@"] and ":" in significant:
        colon = max(place for place, token in enumerate(tokens) if token.kind == ":")
        return tokens[colon + 1 :]
    return tokens[:]


def _check(address: bytes) -> bytes:
    if not address.isascii() or address.translate(None, _ADDRESS_BYTES):
        # Imported here because ordinary addresses do not need it.
        from queue_wire.address import refuse_unsendable

        refuse_unsendable(address)
    return check_address(address)


def complete_argument(address: bytes, names: "Names") -> bytes:
    """Return an address of the command line, completed. The last @ divides it, and nothing in it is quoted.

    Raises FormatError.
    """
    local, at, host = address.rpartition(b"@")
    return complete_parts(local, host, names) if at else complete_parts(host, None, names)


def complete_parts(local: bytes, host: bytes | None, names: "Names") -> bytes:
    """Return the complete address of a local part without quoting and a host; a host of None is defaulthost.

    Raises FormatError.
    """
    # Nothing is quoted here, but a `""` is most likely an empty local part that was quoted elsewhere.
    if local in (b"", b'""'):
        raise FormatError("no name before the @" if local or host is not None else "it is empty")
    text = local.decode("latin-1")
    tokens = [] if host is None else tokenize("@" + host.decode("latin-1"))[0]
    return complete_tokens([Token(QUOTED_STRING, text, text), *tokens], names)[1]
