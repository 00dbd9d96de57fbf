"""Address lists (RFC 5322 section 3.4, obsolete forms of 4.4 too): finds each address and completes it.

Liberal as qmail-inject is: addresses with only a space between them get a comma, source routes go, a dot
or @ at the end goes. A name without @ gets @defaulthost, a host that ends in + gets plusdomain for
it, and a host without a dot gets defaultdomain (qmail-inject(8)). What cannot be understood raises
FormatError with the reason, so no address is ever dropped in silence.
"""

from queue_inject.header.tokens import ATOM, COMMENT, LITERAL, QUOTE, Token, fold, tokenize, untokenize
from queue_wire.envelope import check_address
from queue_wire.format_error import FormatError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    # Takes defaulthost, defaultdomain or plusdomain and returns that name.
    Names = Callable[[str], bytes]

_WORDS = (ATOM, QUOTE, LITERAL)
_CONTROLS = bytes((*range(32), 127))


class _Mailbox:
    """Tokens start to end are an address; `first` is where its display name begins."""

    __slots__ = ("end", "first", "start", "unseparated")

    def __init__(self, first: int, start: int, end: int, unseparated: bool) -> None:
        self.first = first
        self.start = start
        self.end = end
        self.unseparated = unseparated


def rewrite_list(body: bytes, names: "Names", column: int = 0, sender: bool = False) -> tuple[bytes, list[bytes]]:
    """Return a field's body with complete addresses, and the addresses as the envelope has them.

    Where nothing is to be completed the body is returned as it is. `column` is how much of the line
    the field's name takes. `sender` allows `<>`. Raises FormatError.
    """
    tokens, tail = tokenize(body.decode("latin-1"))
    before = untokenize(tokens, tail)
    done: list[Token] = []
    addresses = []
    place = 0
    for mailbox in _find(tokens):
        done += tokens[place : mailbox.first]
        if mailbox.unseparated:
            done.append(Token(",", ",", ","))
        done += tokens[mailbox.first : mailbox.start]
        rewritten, address = complete(tokens[mailbox.start : mailbox.end], names)
        if not address and not sender:
            raise FormatError("an address is empty")
        done += rewritten
        addresses.append(address)
        place = mailbox.end
    done += tokens[place:]
    if untokenize(done, tail) == before:
        return body, addresses
    fold(done, column)
    return untokenize(done, tail).encode("latin-1"), addresses


def _find(tokens: list[Token]) -> list[_Mailbox]:
    """Return the mailboxes in order. A semicolon outside of groups becomes a comma, as some clients mean it."""
    found: list[_Mailbox] = []
    words: list[list[int]] = []
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
            end = _angle_end(tokens, place)
            found.append(_Mailbox(words[0][0] if words else place, place + 1, end, follows))
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
                _take_words(found, words, follows)
            if kind == ";":
                if not in_group:
                    tokens[place] = Token(",", ",", ",", token.gap)
                in_group = False
            words, follows, joined = [], False, False
        place += 1
    if in_group:
        raise FormatError("a group (NAME: ADDRESSES;) without its ;")
    _take_words(found, words, follows)
    return found


def _take_words(found: list[_Mailbox], words: list[list[int]], follows: bool) -> None:
    for start, end in words:
        found.append(_Mailbox(start, start, end, follows))
        follows = True


def _angle_end(tokens: list[Token], start: int) -> int:
    for place in range(start + 1, len(tokens)):
        if tokens[place].kind == ">":
            return place
        if tokens[place].kind in "<;":
            break
    raise FormatError("a < without its >")


def complete(tokens: list[Token], names: "Names") -> tuple[list[Token], bytes]:
    """Return one address's tokens made complete, and the address as the envelope has it; `<>` is left empty."""
    tokens = _without_route(tokens)
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
        added = [Token("@", "@", "@"), _atom(names("defaulthost"))]
    at = kinds.index("@") if "@" in kinds else len(kinds)
    host = significant[at + 1 :] + added[1:]
    added += _host_end(host, names)
    place = tokens.index(significant[-1]) + 1
    tokens[place:place] = added
    local = "".join([token.value for token in significant[:at]])
    domain = "".join([token.value for token in [*significant[at:], *added]])
    if not local:
        # `@host` means nobody in an envelope: its mail would be discarded.
        raise FormatError('an address whose name before the @ is empty ("")')
    return tokens, _checked((local + domain).encode("latin-1"))


def _host_end(host: list[Token], names: "Names") -> list[Token]:
    """Return what is to be added to a host; its + goes."""
    last = host[-1]
    if last.kind is ATOM and last.value.endswith("+"):
        last.value, last.raw = last.value[:-1], last.raw[:-1]
        return [_atom(b"." * bool(last.value) + names("plusdomain"))]
    if any(token.kind is LITERAL or "." in token.value for token in host):
        return []
    return [_atom(b"." + names("defaultdomain"))]


def _atom(name: bytes) -> Token:
    text = name.decode("latin-1")
    return Token(ATOM, text, text)


def _without_route(tokens: list[Token]) -> list[Token]:
    """Return a copy without the source route, `@a,@b:` (RFC 5322 section 4.4)."""
    significant = [token.kind for token in tokens if token.kind != COMMENT]
    if significant[:1] == ["@"] and ":" in significant:
        colon = max(place for place, token in enumerate(tokens) if token.kind == ":")
        return tokens[colon + 1 :]
    return tokens[:]


def _checked(address: bytes) -> bytes:
    if len(address.translate(None, _CONTROLS)) != len(address):
        raise FormatError("a control character in an address")
    return check_address(address)


def complete_argument(address: bytes, names: "Names") -> bytes:
    """Return an address from the command line, made complete. The last @ divides; nothing needs quoting.

    Raises FormatError.
    """
    local, at, host = address.rpartition(b"@")
    return complete_parts(local, host, names) if at else complete_parts(host, None, names)


def complete_parts(local: bytes, host: bytes | None, names: "Names") -> bytes:
    """Return the address of a local part, taken as it is, and a host; None is defaulthost. Raises FormatError."""
    # Nothing is quoted here, but `""` is what an empty name looks like elsewhere, and nobody's real one.
    if local in (b"", b'""'):
        raise FormatError("no name before the @" if local or host is not None else "it is empty")
    text = local.decode("latin-1")
    tokens = [] if host is None else tokenize("@" + host.decode("latin-1"))[0]
    return complete([Token(QUOTE, text, text), *tokens], names)[1]
