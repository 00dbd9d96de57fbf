"""What is said of a control file: its parser, default, range, readers, when they read it, whether it is secret.

queue_wire.control.registry has one of each. `check` says whether contents can be used. Pure.
"""

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

from queue_wire.control.lines import refuse_nul, unpack_line, unpack_lines
from queue_wire.logline import escape

# Shapes. A LINE is the first line of the file; a LIST has an entry a line; a MAP has `key:value` lines; a TABLE has
# lines of a form of its own; a TEXT counts as a whole.
NUMBER = "number"
SIZE = "size"
LINE = "line"
LIST = "list"
MAP = "map"
TABLE = "table"
TEXT = "text"
ONE_VALUE = (NUMBER, SIZE, LINE)

# When a change takes effect.
HUP = "HUP"
SECOND = "second"
MESSAGE = "message"
DELIVERY = "delivery"
FORWARD = "forward"
TERM = "TERM"
CONNECTION = "smtpd"
NEXT_AUTH = "AUTH"
START_SMTPD = "smtpd start"
START = "start"
# Those at which a daemon reads a file that it keeps in memory.
_KEPT = (HUP, SECOND, DELIVERY, CONNECTION)

SHOWN_MAX = 100  # Bytes of a value in a log line.
Value = TypeVar("Value", covariant=True)
# A file that is missing means what an empty one does.
AS_EMPTY = object()


class ControlFile(Generic[Value]):
    """One control file.

    `default` and `what` are texts for people. `readers` are programs, `read` says when they read it. `page` is where
    docs/ describes it, empty if this says all; `note` is the number of a note of docs/configure.md, 0 for none. A
    `secret` one is made so that only its readers may read it. `range` is what is allowed, for people; empty if the
    shape says it. `bounds` are the default, the least and the most of a number or size.
    """

    def __init__(
        self,
        name: str,
        shape: str,
        parser: Callable[[bytes], Value] | str,
        default: str,
        what: str,
        readers: str,
        read: str,
        page: str = "",
        *,
        refuse: Callable[[bytes], None] | None = None,
        secret: bool = False,
        note: int = 0,
        range: str = "",
        bounds: tuple[int, int, int] = (0, 0, 0),
        absent: object = AS_EMPTY,
    ) -> None:
        self.name = name
        self.shape = shape
        self.default = default
        self.what = what
        self.readers = tuple(readers.split(", "))
        self.read = read
        self.page = page
        self.secret = secret
        self.note = note
        self.range = range
        self.bounds = bounds
        self.refuse = refuse
        self._absent = absent
        # `module:function` below queue_wire.control: a program imports the parsers of its own files alone.
        self._parser: Any = parser

    def unpack(self, data: bytes) -> Value:
        """Return the value that contents mean. Raises FormatError, mostly LineError."""
        if isinstance(self._parser, str):
            module, _, function = self._parser.partition(":")
            self._parser = getattr(import_module(f"queue_wire.control.{module}"), function)
        found: Value = self._parser(data)
        return found

    def value(self, data: bytes | None) -> Value:
        """Return the value of the contents; None is no file. Raises FormatError."""
        if data is not None or self._absent is AS_EMPTY:
            return self.unpack(data or b"")
        return cast(Value, self._absent)

    def is_kept_by(self, program: str) -> bool:
        """Return whether a daemon keeps what it has read of the file."""
        return program in self.readers and bool({*_KEPT} & {*self.read.split(", ")})

    @property
    def follows_me(self) -> bool:
        """Whether the name of this host is what counts without it."""
        return self.default == "`me`"


def check(file: ControlFile[Any], data: bytes) -> None:
    """Raise FormatError, mostly LineError, if the contents of a control file cannot be used, or a line has no effect.

    What is wrong in the files of secrets of queue-remote is left to `queue-remote --check`.
    """
    refuse_nul(data)
    if file.refuse is not None:
        file.refuse(data)
    file.unpack(data)


def contents(file: ControlFile[Any], data: bytes) -> bytes:
    """Return the part of the contents that counts: without comments, empty lines and trailing spaces."""
    if file.shape == TEXT:
        return data
    if file.shape in ONE_VALUE:
        return unpack_line(data)
    return b"\n".join(unpack_lines(data))


def shown_value(file: ControlFile[Any], data: bytes | None) -> str:
    """Return the value as the log and queuectl show it: one value as it is, else the number of lines; or `default`."""
    if data is None:
        return "default"
    if file.shape in ONE_VALUE:
        return escape(unpack_line(data)[:SHOWN_MAX]).decode("ascii") or "empty"
    count = len(unpack_lines(data))
    return "1 line" if count == 1 else f"{count} lines"


def fingerprint(file: ControlFile[Any], data: bytes | None) -> str:
    """Return a check sum of what counts in the contents, by which two readings are compared; `-` for no file."""
    return "-" if data is None else f"{zlib.crc32(contents(file, data)):08x}"
