"""What every unpack raises when bytes are not in the format that they should be in."""


class FormatError(ValueError):
    """Bytes that break a format. The text says which format and how, and quotes no more than 40 bytes."""


class LineError(FormatError):
    """A line of a file; `line` counts from 1, comments and empty lines with it, as an editor does."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line
        self.why = why


class InLine:
    """`with InLine(3):` makes a FormatError within it the LineError of that line."""

    __slots__ = ("_line",)

    def __init__(self, line: int) -> None:
        self._line = line

    def __enter__(self) -> None:
        """Begin the line."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FormatError):
            raise LineError(self._line, error.why if isinstance(error, LineError) else str(error)) from error


class AddressTooLong(FormatError):
    """An envelope address over the limit (queue_wire.envelope.ADDRESS_MAX); qmail-queue's exit code 11."""


def wrong_in(path: str, error: FormatError) -> str:
    """Return what is wrong in a file: `PATH line 3: WHY`, or `PATH: WHY` where it is no single line."""
    return f"{path} {error}" if isinstance(error, LineError) else f"{path}: {error}"


def quoted(data: bytes) -> str:
    """Return at most 40 bytes of `data` as printable ASCII, for an error text."""
    shown = ascii(data[:40])[1:]
    return shown + ("..." if len(data) > 40 else "")
