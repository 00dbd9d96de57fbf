"""Removes forged Authentication-Results from a message while it is received (RFC 8601 section 5).

    removal = ForgedResults(ours)
    text = removal.feed(text)      what of a piece goes on, perhaps later
    text = removal.end()           the rest, once the message is complete

A field is forged if it names one of our authserv-ids: nobody but this host may write them, and the message comes from
elsewhere. The case does not count. The id may stand behind comments, on a folded line, in quotes, with a version behind
it. A field is also removed if its first FIELD_MAX bytes, or PARTS_MAX words, have no semicolon, or an encoded word is
in front of it, or its id is not ASCII (ours with U-labels may be), since nobody can say whose it is. All other bytes go
on as they are, so signatures of other fields are not broken. The header ends at the first empty line. Where a listener
takes bare CRs, a field is looked at in both ways in which readers take one: as a space, and as a line end.

A piece costs time in proportion to its length, and at most FIELD_MAX bytes are kept back.
"""

import re
from collections.abc import Set

# Of a field, in which its authserv-id must be.
FIELD_MAX = 4096
# Of a field up to its first semicolon: words, spaces, brackets. Each costs time.
PARTS_MAX = 200
_NAME = b"authentication-results"
_LF = 10
# What a line of the header begins with that matters: the end of it, or one of these fields. Old mail has spaces before
# the colon, perhaps on the next line. A bare CR, where the listener takes it, is a space for some readers.
_LINE = re.compile(rb"\n\n|\nauthentication-results[ \t\r\n:]", re.IGNORECASE)
_BEGIN = re.compile(rb"authentication-results[ \t\r\n]*:", re.IGNORECASE)
# A field ends before a line that is no continuation.
_FIELD_END = re.compile(rb"\n(?=[^ \t\r])")
# The same for other readers (Python's email among them): a bare CR is a line end.
_LINE_OR_CR = re.compile(rb"\n\n|[\r\n]authentication-results[ \t\r\n:]", re.IGNORECASE)
_FIELD_END_OR_CR = re.compile(rb"\n(?=[^ \t\r])|\r(?=[^ \t\r\n])")
# Begins an encoded word (RFC 2047), which has no place in front of an id.
_ENCODED = b"=?"
_PARTS = re.compile(rb"""\\.|[()";]|\s+|[^\\()";\s]+|\\""", re.DOTALL)


def authserv_ids(value: bytes) -> frozenset[bytes] | None:
    """Return the ids, in lower case, that a reader may see in the value of a field; None if nobody can say.

    A comment or a space ends an id, but some readers take comments out before they look, and OpenDMARC spaces beside a
    dot. A backslash belongs into quotes; elsewhere it may end an id, or not. A reader may decode encoded words, or
    take a bracket for a comment where it is none.
    """
    found: set[bytes] = set()
    word = b""
    depth = 0
    quoted = False
    for steps, match in enumerate(_PARTS.finditer(value), 1):
        part = match[0]
        if steps > PARTS_MAX:
            return None
        if depth:
            depth += (part == b"(") - (part == b")")
        elif part == b'"':
            quoted = not quoted
            found.add(word)
        elif quoted:
            if not part.isspace() or b"\n" not in part:
                word += part[1:] if part[:1] == b"\\" else part
        elif part == b"(" or part.isspace():
            depth = int(part == b"(")
            found.add(word)
        elif part == b";":
            found.add(word)
            if b"(" in word or _ENCODED in value[: match.end()] or not all(map(bytes.isascii, found)):
                return None
            return frozenset([each.lower() for each in found])
        elif part != b")":
            if part[:1] == b"\\":
                found.add(word)
            word += part[1:] if part[:1] == b"\\" else part
    return None


class ForgedResults:
    """The removal from one message; `ours` are our authserv-ids in lower case. `removed` counts fields.

    `bare`: the message may have bare CRs.
    """

    __slots__ = (
        *("_bare", "_before", "_behind_cr", "_ends", "_held", "_ours", "_over", "_removal_end", "_removing"),
        "removed",
    )

    def __init__(self, ours: Set[bytes], bare: bool = False) -> None:
        self.removed = 0
        self._ends = b"\r\n" if bare else b"\n"
        self._bare = bare
        # What ends the field that is being removed.
        self._removal_end = _FIELD_END
        self._ours = ours
        # A line that may begin such a field; or the LF that may end a field that is being removed.
        self._held = b""
        # The line end before what is held, or comes next; empty if that begins no line.
        self._before = b"\n"
        self._removing = self._over = False
        # The field that is removed began behind a CR.
        self._behind_cr = False

    def feed(self, text: bytes) -> bytes:
        """Take a piece of the message, with LF line ends; return what goes on."""
        if self._over or not text:
            return text
        # A line is found by the line end before it, which is not kept back.
        before = b"" if self._removing else self._before
        text = before + self._held + text
        ahead = len(before)
        self._held = b""
        # What goes on next begins at `at`; `look` is there, or at the line end before it.
        at, look = ahead, 0
        passed: list[bytes] = []
        while at < len(text):
            if self._removing:
                end = self._removal_end.search(text, look)
                if end is None:
                    self._held = self._line_end(text)
                    break
                self._removing = False
                look, at = end.start(), end.end()
                if self._behind_cr and text[look] == _LF:
                    # It is the end of the line whose beginning stays.
                    at = look
            match = (_LINE_OR_CR if self._bare else _LINE).search(text, look)
            if match is None:
                self._keep_back(text, at, passed)
                break
            begin = match.start() + 1
            passed.append(text[at:begin])
            if match.end() == begin + 1:
                self._over = True
                passed.append(text[begin:])
                break
            # The last byte of the match may end the field.
            end = _FIELD_END.search(text, match.end() - 1)
            if end is None and len(text) - begin < FIELD_MAX:
                self._held, self._before = text[begin:], text[begin - 1 : begin]
                break
            most = begin + FIELD_MAX
            stop = len(text) if end is None else end.end()
            cut = _FIELD_END_OR_CR.search(text, match.end() - 1, min(stop, most)) if self._bare else None
            if cut is not None and self._is_forged(text[begin : cut.end()], True):
                self._removing, self._removal_end = True, _FIELD_END_OR_CR
            elif self._is_forged(text[begin:stop], end is not None):
                self._removing, self._removal_end = True, _FIELD_END
            if self._removing:
                self.removed += 1
                self._behind_cr = text[begin - 1] != _LF
                at, look = begin, begin
            else:
                at = min(stop, most) if cut is None else cut.end()
                look = at - 1
                passed.append(text[begin:at])
                self._before = self._line_end(text)
        return b"".join(passed)

    def end(self) -> bytes:
        """Return the rest of the message, which is complete."""
        held, self._held = self._held, b""
        behind_cr = self._behind_cr
        if not self._removing:
            if not self._is_forged(held, True):
                return held
            self.removed += 1
            behind_cr = self._before == b"\r"
        return b"\n" if behind_cr and held.endswith(b"\n") else b""

    def _line_end(self, text: bytes) -> bytes:
        """Return the line end at the end of a text; empty if there is none."""
        return text[-1:] if text[-1] in self._ends else b""

    def _keep_back(self, text: bytes, at: int, passed: list[bytes]) -> None:
        """Pass on the rest of a text but for a last line that may begin such a field."""
        line = max([text.rfind(end) for end in self._ends]) + 1
        last = text[line : line + len(_NAME) + 1].lower()
        if line and last and _NAME.startswith(last):
            self._held, self._before = text[line:], text[line - 1 : line]
            passed.append(text[at:line])
        else:
            self._before = self._line_end(text)
            passed.append(text[at:])

    def _is_forged(self, field: bytes, complete: bool) -> bool:
        """Return whether a field, or the beginning of a long one, is to be removed."""
        name = _BEGIN.match(field)
        if name is None:
            # Without a colon it is no field.
            return not complete and not field[len(_NAME) :].strip()
        if name.end() >= FIELD_MAX:
            return True
        value = field[name.end() : FIELD_MAX]
        # The end of a field ends its id.
        found = authserv_ids(value + b";" if complete and len(field) <= FIELD_MAX else value)
        return found is None or not self._ours.isdisjoint(found)
