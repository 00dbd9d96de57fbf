"""Splits the beginning of a message into header fields, and finds where the body begins.

As in qmail-inject, a line that cannot be part of a field begins the body, and an empty line is put before it. An mbox
`From ` line becomes an MBOX-Line field. The body is neither kept nor changed. A header over HEADER_MAX bytes or
FIELDS_MAX fields raises FormatError.
"""

from queue_wire.format_error import FormatError

HEADER_MAX = 16 * 1024 * 1024
FIELDS_MAX = 100_000
# Byte order marks of UTF-8 and UTF-16, which editors put at the beginning of a file.
_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
# The length of a field's name with the blanks after it. A line without a colon up to there is text (RFC 5322 section
# 2.1.1).
NAME_MAX = 998
_PRINTABLE = bytes(range(33, 127))
_MBOX = b"mbox-line"
# Names as they were written, with their lower case: the messages of a batch have the same few.
_known_names: dict[bytes, bytes] = {}
_KNOWN_MAX = 1000
_KNOWN_SIZE = 80


class Field:
    """name: in lower case, without colon; data: the whole field with its newlines; line: the number of its first line
    in the message, counted from 1.
    """

    __slots__ = ("data", "line", "name")

    def __init__(self, name: bytes, data: bytes, line: int) -> None:
        self.name = name
        self.data = data
        self.line = line

    def __repr__(self) -> str:
        return f"Field({self.data!r})"


class HeaderReader:
    """Takes a message in pieces. When the header has ended, `fields` is complete and `body` is what came after it."""

    def __init__(self) -> None:
        self.fields: list[Field] = []
        self.body = b""
        # The field that may continue: its name, the number of its first line, and its lines from earlier pieces.
        self._name: bytes | None = None
        self._begin = 0
        self._held: list[bytes] = []
        self._rest = b""
        self._line = 1
        self._size = 0

    def feed(self, data: bytes) -> bool:
        """Return whether the header has ended. Raises FormatError for one over HEADER_MAX or FIELDS_MAX."""
        if self._rest:
            data = self._rest + data
        # Most headers end with an empty line. Then no line of the body is examined.
        blank = data.find(b"\n\n") + 1
        place = blank or data.rfind(b"\n") + 1
        ended = self._take(data, place)
        if len(self.fields) > FIELDS_MAX:
            raise FormatError(f"its header has over {FIELDS_MAX} fields")
        if ended is None and blank:
            ended = b"", blank
        if ended is None and self._is_body(data[place : place + NAME_MAX + 1]):
            # The whole body may be one line. Its beginning is enough to see that it is no field.
            ended = b"\n", place
        if ended is not None:
            separator, place = ended
            self.body = separator + data[place:]
            self._end_field(b"")
            return True
        self._rest = data[place:]
        self._size += place
        if self._size + len(self._rest) > HEADER_MAX:
            raise FormatError(f"its header is over {HEADER_MAX} bytes")
        return False

    @property
    def lacks_recipients(self) -> str:
        """Why nobody is named to whom the message goes. A byte order mark makes text of the fields behind it."""
        if not any(field.name != _MBOX for field in self.fields) and self.body.lstrip(b"\n").startswith(_MARKS):
            return "it begins with a byte order mark (BOM), so it has no header; save it as UTF-8 without BOM"
        return "it has no recipients; name them as arguments or in To, Cc or Bcc"

    def end(self) -> None:
        """End a message that ended within its header. A last line without newline gets one unless it is the body."""
        if self._rest and self.feed(b"\n"):
            self.body = self.body[:-1]
        self._end_field(b"")

    def _take(self, data: bytes, size: int) -> tuple[bytes, int] | None:
        """Take the lines data[:size]. If one begins the body, return the separator to put before it, and its place.

        Every message of a batch passes this loop, so it does as little as possible for each line.
        """
        lines = data[:size].split(b"\n")
        lines.pop()
        known = _known_names
        begin = place = 0
        ended = None
        for line in lines:
            head, colon, _ = line.partition(b":")
            name = known.get(head) if colon else None
            if name is None and not (self._name is not None and line[:1] in (b" ", b"\t")):
                name, ended = _begin_line(line)
                if ended is not None:
                    break
            if name is not None:
                self._end_field(data[begin:place])
                self._name, self._begin = name, self._line
                # Compared by identity: a field that is really named mbox-line is an ordinary one.
                if name is _MBOX:
                    self._held.append(b"MBOX-Line: ")
                begin = place
            place += len(line) + 1
            self._line += 1
        if place > begin:
            self._held.append(data[begin:place])
        return None if ended is None else (ended, place)

    def _is_body(self, line: bytes) -> bool:
        """Return whether an incomplete line can neither begin a field nor continue one."""
        continues = self._name is not None and line[:1] in (b" ", b"\t")
        if len(line) <= NAME_MAX or line.startswith(b"From ") or continues:
            return False
        return field_name(line) is None

    def _end_field(self, data: bytes) -> None:
        if self._name is not None:
            if self._held:
                data = b"".join([*self._held, data])
                self._held = []
            self.fields.append(Field(self._name, data, self._begin))
            self._name = None


def _begin_line(line: bytes) -> tuple[bytes | None, bytes | None]:
    """Return the name of the field that this line begins, or None and the separator if the line begins the body."""
    if line in (b"", b"\r"):
        return None, b""
    # `From : x` is a field (RFC 5322 section 4.5), although qmail-inject treats it as an mbox line.
    if line.startswith(b"From ") and not line[5:].lstrip(b" \t").startswith(b":"):
        return _MBOX, None
    name = field_name(line)
    if name is None:
        return None, b"\n"
    head = line.partition(b":")[0]
    if len(_known_names) < _KNOWN_MAX and len(head) <= _KNOWN_SIZE:
        _known_names[head] = name
    return name, None


def field_name(line: bytes) -> bytes | None:
    """Return the name of the field that a line begins, in lower case, or None: printable characters and a colon."""
    name, colon, _ = line.partition(b":")
    if not colon or len(name) > NAME_MAX:
        return None
    name = name.rstrip(b" \t")
    if not name or name.translate(None, _PRINTABLE):
        return None
    return name.lower()
