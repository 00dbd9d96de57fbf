"""Takes a message's header from its first bytes: whole fields, and where the body begins.

As qmail-inject does: a line that cannot be a field begins the body, with an empty line before it;
an mbox `From ` line becomes an MBOX-Line field. Nothing of the body is kept or changed.
"""

from queue_wire.format_error import FormatError

HEADER_MAX = 16 * 1024 * 1024
FIELDS_MAX = 100_000
# Of a field's name and the blanks behind it: a line without a colon so far is text (RFC 5322 section 2.1.1).
NAME_MAX = 998
_PRINTABLE = bytes(range(33, 127))
_MBOX = b"mbox-line"
# Names as they were written, and in lower case: a batch has the same few in each message.
_known_names: dict[bytes, bytes] = {}
_KNOWN_MAX = 1000
_KNOWN_SIZE = 80


class Field:
    """name: in lower case, without colon; data: the whole field with its newlines; line: where in the message it
    begins, 1 being the first line.
    """

    __slots__ = ("data", "line", "name")

    def __init__(self, name: bytes, data: bytes, line: int) -> None:
        self.name = name
        self.data = data
        self.line = line

    def __repr__(self) -> str:
        return f"Field({self.data!r})"


class HeaderReader:
    """Takes a message as it arrives; at the header's end, `fields` is complete and `body` is what came after it."""

    def __init__(self) -> None:
        self.fields: list[Field] = []
        self.body = b""
        # The field that may still go on: its name, its first line's number, and what of it is no longer at hand.
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
        # Most headers end with an empty line: then no line of the body is looked at.
        blank = data.find(b"\n\n") + 1
        place = blank or data.rfind(b"\n") + 1
        ended = self._take(data, place)
        if len(self.fields) > FIELDS_MAX:
            raise FormatError(f"its header has over {FIELDS_MAX} fields")
        if ended is None and blank:
            ended = b"", blank
        if ended is None and self._is_body(data[place : place + NAME_MAX + 1]):
            # All of a body may be one line: what has come of it says already that it is no field.
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

    def end(self) -> None:
        """The message has ended before its header did: a last line without newline gets one, unless it is a body."""
        if self._rest and self.feed(b"\n"):
            self.body = self.body[:-1]
        self._end_field(b"")

    def _take(self, data: bytes, size: int) -> tuple[bytes, int] | None:
        """Take the whole lines data[:size]. Where one begins the body, return what must stand before it, and its place.

        Every message of a batch goes through this loop: it does as little as it can for each line.
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
                # The very object: a field of that name is one like any other.
                if name is _MBOX:
                    self._held.append(b"MBOX-Line: ")
                begin = place
            place += len(line) + 1
            self._line += 1
        if place > begin:
            self._held.append(data[begin:place])
        return None if ended is None else (ended, place)

    def _is_body(self, line: bytes) -> bool:
        """Return whether a line that has only begun can neither be a field nor go on with one."""
        if len(line) <= NAME_MAX or line.startswith(b"From ") or (self._name is not None and line[:1] in (b" ", b"\t")):
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
    """Return the name of the field that begins with this line, or what must stand between it and the header."""
    if line in (b"", b"\r"):
        return None, b""
    # `From : x` is a field (RFC 5322 section 4.5), though qmail-inject takes it for an mbox line.
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
    """Return the name of a field's first line, in lower case, or None where it is none: printable, then a colon."""
    name, colon, _ = line.partition(b":")
    if not colon or len(name) > NAME_MAX:
        return None
    name = name.rstrip(b" \t")
    if not name or name.translate(None, _PRINTABLE):
        return None
    return name.lower()
