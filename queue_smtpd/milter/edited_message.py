"""A message that filters look at and change: the fields of its header, and its body. Line ends are LF.

Filters do not see the server's own Received field. Where they name a place for a new field it counts, as with Postfix
and Sendmail: place 0 is in front of it, place 1 behind it.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from queue_smtpd.milter.message_spool import MessageSpool
from queue_smtpd.milter.milter_client import HeaderEdit

# More of a message is not searched for the end of its header; the server takes no larger ones.
HEADER_MOST = (1 << 20) + 4096
_FIELD = re.compile(rb"([!-9;-~]+)[ \t]*:")
_ONCE = (
    b"from", b"sender", b"reply-to", b"to", b"cc", b"message-id", b"in-reply-to", b"references", b"subject", b"date",
)  # fmt: skip
_LINE_MOST = 998


class HeaderField(NamedTuple):
    """One field. `raw` is all of it, with its last LF."""

    name: bytes
    raw: bytes

    @property
    def value(self) -> bytes:
        """What is behind the colon, without the last LF."""
        return self.raw.partition(b":")[2].removesuffix(b"\n")


class ParsedHeader(NamedTuple):
    """The fields of a header, the empty line behind it (or nothing, where it is missing), and where the body begins."""

    fields: list[HeaderField]
    separator: bytes
    body: int


def parse_header(text: bytes) -> ParsedHeader:
    """Return the header at the beginning of a message. A line that is no field begins the body."""
    fields: list[HeaderField] = []
    name, begin, at = b"", 0, 0
    separator = b""
    while at < len(text):
        end = text.find(b"\n", at) + 1 or len(text)
        if text[at] == 10:
            separator = b"\n"
            break
        if not name or text[at] not in b" \t":
            match = _FIELD.match(text, at, end)
            if match is None:
                break
            if name:
                fields.append(HeaderField(name, text[begin:at]))
            name, begin = match[1], at
        at = end
    if name:
        fields.append(HeaderField(name, text[begin:at]))
    return ParsedHeader(fields, separator, at + len(separator))


def find_header_fault(header: ParsedHeader, size: int, smtputf8: bool) -> bytes:
    """Return in a word what of a header breaks RFC 5322, empty if nothing does. `size` is that of the message."""
    if not header.separator and header.body < size:
        return b"line-that-is-no-field"
    names = [field.name.lower() for field in header.fields]
    for name in (b"from", b"date"):
        if name not in names:
            return b"no-" + name
    for name in _ONCE:
        if names.count(name) > 1:
            return b"two-" + name
    for field in header.fields:
        if b"\0" in field.raw or (not smtputf8 and not field.raw.isascii()):
            return b"bytes-in-" + field.name.lower()
        if any(len(line) > _LINE_MOST for line in field.raw.split(b"\n")):
            return b"long-line-in-" + field.name.lower()
    return b""


class EditedMessage:
    """A message: its fields, with the server's own, and its body."""

    def __init__(self, received: bytes, text: MessageSpool) -> None:
        """Raises OSError."""
        self.header = parse_header(text.head(HEADER_MOST))
        self._received = HeaderField(b"Received", received)
        self._text = text
        self._separator = self.header.separator
        self._all = [self._received, *self.header.fields]
        self._body: MessageSpool | None = None

    @property
    def fields(self) -> list[HeaderField]:
        """The fields that filters see, as they are now."""
        return [field for field in self._all if field is not self._received]

    def body_pieces(self) -> Iterator[bytes]:
        """Yield the body. Raises OSError."""
        return self._text.pieces(self.header.body) if self._body is None else self._body.pieces()

    def pieces(self) -> Iterator[bytes]:
        """Yield the whole message. Raises OSError."""
        # Without it, the body would be read as a part of the header.
        separator = self._separator if self._body is None else b"\n"
        yield b"".join([*(field.raw for field in self._all), separator])
        yield from self.body_pieces()

    def replace_body(self, body: MessageSpool) -> None:
        """Put another body in the place of the message's."""
        if self._body is not None:
            self._body.close()
        self._body = body

    def edit_header(self, edits: Iterable[HeaderEdit]) -> None:
        """Change the header, in order. A place behind its end is the end, a field that does not exist is added."""
        fields = self._all
        # Where the fields of a name are: a milter may remove thousands, one by one, of a sender who wrote them.
        known, places = b"", [0]
        for edit in edits:
            if not self._separator:
                self._end_header()
            field, name = _make_field(edit), edit.name.lower()
            if edit.replaces and name != known:
                known = name
                places = [
                    at for at, each in enumerate(fields) if each.name.lower() == name and each is not self._received
                ]
            number = max(edit.place or 0, 1)
            if edit.place is None or (edit.replaces and number > len(places)):
                if edit.value or not edit.replaces:
                    fields.append(field)
                    known = b""
            elif not edit.replaces:
                fields.insert(edit.place, field)
                known = b""
            elif edit.value:
                fields[places[number - 1]] = field
            else:
                del fields[places[number - 1]]
                places[number - 1 :] = [at - 1 for at in places[number:]]

    def _end_header(self) -> None:
        """End the last field, and the header, where the message does not."""
        self._separator = b"\n"
        last = self._all[-1]
        if not last.raw.endswith(b"\n"):
            self._all[-1] = last._replace(raw=last.raw + b"\n")

    def close(self) -> None:
        """Forget the replaced body."""
        if self._body is not None:
            self._body.close()


def _make_field(edit: HeaderEdit) -> HeaderField:
    """Return a field whose lines behind the first one are continuations, whatever its value has."""
    lines = edit.value.replace(b"\r\n", b"\n").replace(b"\r", b"\n").strip(b"\n").split(b"\n")
    folded = [lines[0], *(line if line[:1] in (b" ", b"\t") else b"\t" + line for line in lines[1:] if line.strip())]
    return HeaderField(edit.name, edit.name + b":" + b"\n".join(folded) + b"\n")
