"""What a reader of a format may do with any bytes: make a value of them, or raise FormatError."""

from collections.abc import Callable
from typing import TypeVar

from queue_wire.format_error import FormatError

Value = TypeVar("Value")


def value_or_refusal(unpack: Callable[[bytes], Value], data: bytes) -> Value | FormatError:
    """Return the value or the FormatError. Any other exception fails the test."""
    try:
        return unpack(data)
    except FormatError as refusal:
        return refusal
    except Exception as error:
        raise AssertionError(f"{unpack.__name__} raised {error!r}") from error
