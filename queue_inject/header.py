"""Takes a message's header from its first bytes: whole fields, and where the body begins.

As qmail-inject does: a line that cannot be a field begins the body, with an empty line before it;
an mbox `From ` line becomes an MBOX-Line field. Nothing of the body is kept or changed.
"""

from queue_wire.errors import FormatError

HEADER_MAX = 16 * 1024 * 1024
_PRINTABLE = bytes(range(33, 127))


class Field:
    """name: in lower case, without colon; data: the whole field with its newlines."""

    __slots__ = ("data", "name")

    def __init__(self, name: bytes, data: bytes) -> None:
        self.name = name
        self.data = data

    def __repr__(self) -> str:
        return f"Field({self.data!r})"


class HeaderReader:
    """Takes a message as it arrives; at the header's end, `fields` is complete and `body` is what came after it."""

    def __init__(self) -> None:
        self.fields: list[Field] = []
        self.body = b""
        self._lines: list[bytes] = []
        self._rest = b""
        self._size = 0

    def feed(self, data: bytes) -> bool:
        """Return whether the header has ended. Raises FormatError for one over HEADER_MAX."""
        data = self._rest + data
        place = 0
        while (end := data.find(b"\n", place) + 1) > 0:
            separator = self._take(data[place:end])
            if separator is not None:
                self._end_field()
                self.body = separator + data[place:]
                return True
            place = end
        self._rest = data[place:]
        self._size += place
        if self._size + len(self._rest) > HEADER_MAX:
            raise FormatError(f"it is over {HEADER_MAX} bytes")
        return False

    def end(self) -> None:
        """The message has ended before its header did: a last line without newline gets one, unless it is a body."""
        rest, self._rest = self._rest, b""
        if rest:
            separator = self._take(rest + b"\n")
            if separator is not None:
                self.body = separator + rest
        self._end_field()

    def _take(self, line: bytes) -> bytes | None:
        """Note one line of the header, or return what must stand between the header and this line of the body."""
        if line[:1] in (b" ", b"\t") and self._lines:
            self._lines.append(line)
            return None
        if line in (b"\n", b"\r\n"):
            return b""
        if line.startswith(b"From "):
            line = b"MBOX-Line: " + line
        elif field_name(line) is None:
            return b"\n"
        self._end_field()
        self._lines = [line]
        return None

    def _end_field(self) -> None:
        if self._lines:
            self.fields.append(Field(field_name(self._lines[0]) or b"", b"".join(self._lines)))
            self._lines = []


def field_name(line: bytes) -> bytes | None:
    """Return the name of a field's first line, in lower case, or None where it is none: printable, then a colon."""
    name, colon, _ = line.partition(b":")
    name = name.rstrip(b" \t")
    if not colon or not name or name.translate(None, _PRINTABLE):
        return None
    return name.lower()
