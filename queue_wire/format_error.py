"""The errors that the unpack functions raise for bytes that are not in their format."""


class FormatError(ValueError):
    """Bytes that are not in their format. The text names the format and the fault, and quotes at most 40 bytes."""


class LineError(FormatError):
    """A line of a file that is not in its format. `line` counts from 1, including comments and empty lines."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line
        self.why = why


class InLine:
    """`with InLine(3):` turns a FormatError in the block into a LineError of that line."""

    __slots__ = ("_line",)

    def __init__(self, line: int) -> None:
        self._line = line

    def __enter__(self) -> None:
        """Begin the line."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FormatError):
            raise LineError(self._line, error.why if isinstance(error, LineError) else str(error)) from error


class FieldError(FormatError):
    """A field of the header is wrong. `field` is its name as it was written, `line` the number of its first line."""

    def __init__(self, field: str, line: int, text: str) -> None:
        super().__init__(text)
        self.field = field
        self.line = line

    @property
    def where(self) -> str:
        """The place of the error, for an error message."""
        return f"the {self.field} field in line {self.line}"


class AddressTooLong(FormatError):
    """An envelope address longer than queue_wire.files.envelope.ADDRESS_MAX; qmail-queue's exit code 11."""


def wrong_in(path: str, error: FormatError) -> str:
    """Return an error with the path of its file: `PATH line 3: WHY`, or `PATH: WHY` if it is not about a line."""
    return f"{path} {error}" if isinstance(error, LineError) else f"{path}: {error}"


def quoted(data: bytes) -> str:
    """Return at most 40 bytes of `data` as printable ASCII, for an error text."""
    shown = ascii(data[:40])[1:]
    return shown + ("..." if len(data) > 40 else "")
