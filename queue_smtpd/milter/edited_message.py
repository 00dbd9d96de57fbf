"""A message that filters look at and change: the fields of its header, and its body. Line ends are LF.

Filters do not see the server's own Received field. Where they name a place for a new field it counts, as with Postfix
and Sendmail: place 0 is in front of it, place 1 behind it.

A header may have hundreds of thousands of fields. What looks at all of them is a generator, which has done some of its
work whenever it yields, so that the caller can let others have their turns. A field is its bytes, with its last LF,
because objects of more parts would take ten times the memory.
"""

import re
from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple, TypeVar

from queue_smtpd.milter.message_spool import MessageSpool
from queue_smtpd.milter.milter_client import HeaderEdit

# More of a message is not searched for the end of its header; the server takes no larger ones.
HEADER_MAX = (1 << 20) + 4096
_FIELD = re.compile(rb"([!-9;-~]+)[ \t]*:")
_ONCE = (
    b"from", b"sender", b"reply-to", b"to", b"cc", b"message-id", b"in-reply-to", b"references", b"subject", b"date",
)  # fmt: skip
_LINE_MAX = 998


# Lines, or fields, of a step.
_STEP = 1000

Found = TypeVar("Found")
Steps = Generator[None, None, Found]


class ParsedHeader(NamedTuple):
    """The fields of a header, the empty line behind it (or nothing, where it is missing), and where the body begins."""

    fields: list[bytes]
    separator: bytes
    body: int


def field_name(field: bytes) -> bytes:
    """Return the name of a field."""
    return field[: field.find(b":")].rstrip(b" \t")


def field_value(field: bytes) -> bytes:
    """Return what is behind the colon of a field, without the last LF."""
    return field[field.find(b":") + 1 :].removesuffix(b"\n")


def parse_header(text: bytes) -> Steps[ParsedHeader]:
    """Find the header at the beginning of a message. A line that is no field begins the body."""
    fields: list[bytes] = []
    named = False
    begin = at = lines = 0
    separator = b""
    while at < len(text):
        lines += 1
        if not lines % _STEP:
            yield
        end = text.find(b"\n", at) + 1 or len(text)
        if text[at] == 10:
            separator = b"\n"
            break
        if not named or text[at] not in b" \t":
            if _FIELD.match(text, at, end) is None:
                break
            if named:
                fields.append(text[begin:at])
            named, begin = True, at
        at = end
    if named:
        fields.append(text[begin:at])
    return ParsedHeader(fields, separator, at + len(separator))


def find_header_fault(header: ParsedHeader, size: int, smtputf8: bool) -> Steps[bytes]:
    """Find in a word what of a header breaks RFC 5322, empty if nothing does. `size` is that of the message."""
    if not header.separator and header.body < size:
        return b"line-that-is-no-field"
    counts = dict.fromkeys(_ONCE, 0)
    fault = b""
    for number, field in enumerate(header.fields, 1):
        if not number % _STEP:
            yield
        name = field_name(field).lower()
        if name in counts:
            counts[name] += 1
        if fault:
            pass
        elif b"\0" in field or (not smtputf8 and not field.isascii()):
            fault = b"bytes-in-" + name
        elif _has_long_line(field):
            fault = b"long-line-in-" + name
    for name in (b"from", b"date"):
        if not counts[name]:
            return b"no-" + name
    return next((b"two-" + name for name in _ONCE if counts[name] > 1), fault)


def _has_long_line(field: bytes) -> bool:
    at = 0
    while len(field) - at > _LINE_MAX:
        end = field.rfind(b"\n", at, at + _LINE_MAX + 1)
        if end < 0:
            return True
        at = end + 1
    return False


class EditedMessage:
    """A message: its fields, with the server's own, and its body."""

    def __init__(self, received: bytes, header: ParsedHeader, text: MessageSpool) -> None:
        self.header = header
        self._received = received
        self._text = text
        self._separator = header.separator
        self._all = [received, *header.fields]
        self._body: MessageSpool | None = None

    @property
    def fields(self) -> Iterator[bytes]:
        """The fields that filters see, as they are now."""
        return (field for field in self._all if field is not self._received)

    def body_pieces(self) -> Iterator[bytes]:
        """Yield the body. Raises OSError."""
        return self._text.pieces(self.header.body) if self._body is None else self._body.pieces()

    def pieces(self) -> Iterator[bytes]:
        """Yield the whole message. Raises OSError."""
        for at in range(0, len(self._all), _STEP):
            yield b"".join(self._all[at : at + _STEP])
        # Without it, the body would be read as a part of the header.
        if separator := self._separator if self._body is None else b"\n":
            yield separator
        yield from self.body_pieces()

    def replace_body(self, body: MessageSpool) -> None:
        """Put another body in the place of the message's."""
        if self._body is not None:
            self._body.close()
        self._body = body

    def edit_header(self, edits: Iterable[HeaderEdit]) -> Steps[None]:
        """Change the header, in order. A place behind its end is the end, a field that does not exist is added."""
        fields = self._all
        # Where the fields of a name are: a milter may remove thousands, one by one, of a sender who wrote them.
        known, places = b"", [0]
        for edit in edits:
            yield
            if not self._separator:
                self._end_header()
            field, name = _make_field(edit), edit.name.lower()
            if edit.replaces and name != known:
                known, places = name, []
                for begin in range(0, len(fields), _STEP):
                    places += self._find_named(name, begin)
                    yield
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

    def _find_named(self, name: bytes, begin: int) -> list[int]:
        """Return the places of the fields of a name among the _STEP fields from `begin` on."""
        return [
            at
            for at, field in enumerate(self._all[begin : begin + _STEP], begin)
            if field_name(field).lower() == name and field is not self._received
        ]

    def _end_header(self) -> None:
        """End the last field, and the header, where the message does not."""
        self._separator = b"\n"
        if not self._all[-1].endswith(b"\n"):
            self._all[-1] += b"\n"

    def close(self) -> None:
        """Forget the replaced body."""
        if self._body is not None:
            self._body.close()


def _make_field(edit: HeaderEdit) -> bytes:
    """Return a field whose lines behind the first one are continuations, whatever its value has."""
    lines = edit.value.replace(b"\r\n", b"\n").replace(b"\r", b"\n").strip(b"\n").split(b"\n")
    folded = [lines[0], *(line if line[:1] in (b" ", b"\t") else b"\t" + line for line in lines[1:] if line.strip())]
    return edit.name + b":" + b"\n".join(folded) + b"\n"
