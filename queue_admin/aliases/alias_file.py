"""aliases(5), the alias file of sendmail and Postfix: its entries. Pure.

    name: target, target, ...

A line that begins with white space continues the one before, as does the line after a backslash. Empty lines, and lines
whose first character other than white space is `#`, are ignored, also between continued lines. Names have no domain and
no case. A target is an address, `\\user`, "|command", /file, /maildir/ or :include:/file. Names and targets may be
quoted, as may be parts of an address. Text in parentheses in an address is a comment, and of `Ann <ann@example.org>`
only the part in angle brackets counts.

What is wrong is returned as Fault, never raised, so that the other entries can be used.
"""

from typing import NamedTuple

from queue_wire.files.envelope import ADDRESS_MAX

ADDRESS = "address"
PROGRAM = "program"
PATH = "path"
INCLUDE = "include"

_SPACE = b" \t\r\n\v\f"
_INCLUDE = b":include:"


class AliasTarget(NamedTuple):
    """Where mail goes: ADDRESS, PROGRAM, PATH (a file, or a maildir if it ends in `/`) or INCLUDE (a path)."""

    kind: str
    argument: bytes


class Alias(NamedTuple):
    """One entry: the number of its first line, its name in lower case, and its targets, of which there is one."""

    line: int
    name: bytes
    targets: list[AliasTarget]


class Fault(NamedTuple):
    """What cannot be used: the number of its line, the alias's name in lower case, empty if unknown, and why."""

    line: int
    name: bytes
    why: str


class AliasFile(NamedTuple):
    """The entries of a file that can be used, and those that cannot."""

    aliases: list[Alias]
    faults: list[Fault]


class _Unusable(ValueError):
    """A name or a target cannot be used; the text says why."""


def parse_aliases(data: bytes) -> AliasFile:
    """Return the entries of an alias file. Of several with one name the first is used."""
    found = AliasFile([], [])
    seen: dict[bytes, int] = {}
    for line, text in _logical_lines(data):
        name = b""
        try:
            name, rest = _split_name(text)
            if name in seen:
                raise _Unusable(f"line {seen[name]} has this name too, and only that one counts")
            seen[name] = line
            targets = _targets(rest)
            if not targets:
                raise _Unusable("it has no target")
            found.aliases.append(Alias(line, name, targets))
        except _Unusable as error:
            found.faults.append(Fault(line, name, str(error)))
    return found


def parse_include(data: bytes) -> tuple[list[AliasTarget], list[tuple[int, str]]]:
    """Return the targets in an included file, and what is wrong in it: (line, why).

    It has targets divided by commas and newlines. Only addresses are allowed: the file may belong to any user, who
    could otherwise run programs and write files.
    """
    targets: list[AliasTarget] = []
    faults = []
    for line, text in _logical_lines(data, False):
        try:
            for target in _targets(text):
                if target.kind != ADDRESS:
                    raise _Unusable(f"a {target.kind} is not allowed in an included file")
                targets.append(target)
        except _Unusable as error:
            faults.append((line, str(error)))
    return targets, faults


def _logical_lines(data: bytes, joined: bool = True) -> list[tuple[int, bytes]]:
    """Return the lines with the numbers they begin at; `joined` if a line may continue the one before."""
    found: list[tuple[int, bytes]] = []
    parts: list[bytes] = []
    first, backslash = 0, False
    for number, line in enumerate(data.split(b"\n"), 1):
        line = line.rstrip(_SPACE)
        if not backslash and line.lstrip(_SPACE)[:1] in (b"", b"#"):
            continue
        continues = backslash or (joined and line[:1] in (b" ", b"\t"))
        if parts and not continues:
            found.append((first, b"".join(parts)))
            parts = []
        if not parts:
            first = number
        backslash = joined and line.endswith(b"\\") and not line.endswith(b"\\\\")
        parts.append(line[:-1] if backslash else line)
    if parts:
        found.append((first, b"".join(parts)))
    return found


def _split_name(text: bytes) -> tuple[bytes, bytes]:
    """Return (name in lower case, text after the colon). Raises _Unusable."""
    if text[:1] in (b" ", b"\t"):
        raise _Unusable("it begins with white space, and there is no line before that it could continue")
    tokens, end = _scan(text, 0, b":")
    if end == len(text):
        raise _Unusable("it has no colon after a name")
    name = b"".join(token.text for token in tokens).strip(_SPACE).lower()
    if not name:
        raise _Unusable("it has no name")
    if b"@" in name:
        raise _Unusable("the name has a domain; control/virtualdomains is for that")
    _refuse_bytes(name)
    return name, text[end + 1 :]


class _AliasToken(NamedTuple):
    """A part of a target: quoted text, or text outside of quotes in which backslashes are resolved."""

    text: bytes
    quoted: bool


def _targets(text: bytes) -> list[AliasTarget]:
    found = []
    start = 0
    while start < len(text):
        tokens, end = _scan(text, start, b",")
        raw = text[start:end].strip(_SPACE)
        start = end + 1
        if raw:
            found.append(_target(raw, tokens))
    return found


def _scan(text: bytes, start: int, stop: bytes) -> tuple[list[_AliasToken], int]:
    """Return the tokens from `start` up to a byte `stop` outside of quotes, and where that is. Raises _Unusable."""
    tokens: list[_AliasToken] = []
    plain = bytearray()
    is_command = text[start:].lstrip(_SPACE)[:1] == b"|"
    depth = 0
    at = start
    while at < len(text):
        byte = text[at : at + 1]
        if byte == b"\\" and at + 1 < len(text):
            # A backslash at the beginning is part of `\user`.
            if not depth:
                plain += text[at : at + 2] if not tokens and not plain.strip(_SPACE) else text[at + 1 : at + 2]
            at += 2
            continue
        if byte == b'"' and not depth:
            quoted, at = _quoted(text, at + 1)
            tokens += [_AliasToken(bytes(plain), False), _AliasToken(quoted, True)]
            plain.clear()
            continue
        if not depth and byte == stop:
            break
        if byte == b"(" and not is_command:
            depth += 1
        elif byte == b")" and depth:
            depth -= 1
        elif not depth:
            plain += byte
        at += 1
    if depth:
        raise _Unusable("a parenthesis is not closed")
    tokens.append(_AliasToken(bytes(plain), False))
    return [token for token in tokens if token.quoted or token.text], at


def _quoted(text: bytes, at: int) -> tuple[bytes, int]:
    """Return the text of a quoted string that begins at `at`, and the place after its end. Raises _Unusable."""
    found = bytearray()
    while at < len(text):
        byte = text[at : at + 1]
        if byte == b'"':
            return bytes(found), at + 1
        if byte == b"\\" and at + 1 < len(text):
            at += 1
            byte = text[at : at + 1]
        found += byte
        at += 1
    raise _Unusable("a quotation mark is not closed")


def _target(raw: bytes, tokens: list[_AliasToken]) -> AliasTarget:
    """Return the target that one text between commas is. Raises _Unusable."""
    whole = b"".join(token.text for token in tokens).strip(_SPACE)
    _refuse_bytes(whole)
    if whole[:1] == b"|":
        # The quotes of an unquoted command are its shell's, but for one pair around all of it.
        is_quoted = raw[:1] == b'"'
        bare = not is_quoted and len([token for token in tokens if token.quoted]) == 1 and tokens[-1].quoted
        bare = bare and tokens[0].text.strip(_SPACE) == b"|"
        command = (whole if is_quoted or bare else raw)[1:].strip(_SPACE)
        if not command:
            raise _Unusable("the command is empty")
        return AliasTarget(PROGRAM, command)
    if whole[:1] == b"/":
        return AliasTarget(PATH, whole)
    if whole[: len(_INCLUDE)].lower() == _INCLUDE:
        path = whole[len(_INCLUDE) :].strip(_SPACE)
        if path[:1] != b"/":
            raise _Unusable("the path of :include: does not begin with a slash")
        return AliasTarget(INCLUDE, path)
    if whole[:1] == b":":
        raise _Unusable("it is neither an address nor :include:")
    return AliasTarget(ADDRESS, _address(tokens))


def _address(tokens: list[_AliasToken]) -> bytes:
    """Return an address without quotes, comments and name. Raises _Unusable."""
    plain = b"".join(b"\0" * len(token.text) if token.quoted else token.text for token in tokens)
    whole = b"".join(token.text for token in tokens)
    begin, end = plain.find(b"<"), plain.rfind(b">")
    if begin >= 0 or end >= 0:
        if not 0 <= begin < end or plain[end + 1 :].strip(_SPACE) or plain.count(b"<") + plain.count(b">") != 2:
            raise _Unusable("the angle brackets are not those of one address")
        plain, whole = plain[begin + 1 : end], whole[begin + 1 : end]
    start = len(plain) - len(plain.lstrip(_SPACE))
    plain, whole = plain.strip(_SPACE), whole[start : start + len(plain.strip(_SPACE))]
    if plain[:1] == b"\\":
        plain, whole = plain[1:], whole[1:]
    elif whole[:1] == b"\\":
        whole = whole[1:]
    if any(byte in _SPACE for byte in plain):
        raise _Unusable("white space in an address; a comma divides two of them")
    if any(byte in b":;" for byte in plain):
        raise _Unusable("it is no address")
    local, at, domain = whole.rpartition(b"@")
    if not whole or (at and not (local and domain)):
        raise _Unusable("an address without a user or a domain")
    if whole[-1:] in (b" ", b"\t"):
        raise _Unusable("an address that ends with white space")
    if len(whole) > ADDRESS_MAX:
        raise _Unusable(f"an address with over {ADDRESS_MAX} bytes")
    return whole


def _refuse_bytes(text: bytes) -> None:
    if b"\0" in text:
        raise _Unusable("it holds a NUL byte")
