"""Reads control files. A file that is not there is the default; one that cannot be read or parsed is Temporary."""

import os

from queue_base.durable import read_file
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_wire.control.lines import unpack_line, unpack_map, unpack_number, unpack_set, unpack_size
from queue_wire.format_error import FormatError, LineError, wrong_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Value = TypeVar("Value")


def read_control(home: Home, name: str) -> bytes | None:
    """Return a control file's bytes, None where there is none. Raises Temporary, naming the file.

    A NUL in it is garbage: records on the disk and on pipes end with one.
    """
    path = f"{home.control}/{name}"
    try:
        data = read_file(path)
    except FileNotFoundError as error:
        if os.path.isdir(home.control):
            return None
        raise Temporary(f"unable to read {path}: {home.control} is not there; queuectl init makes a home") from error
    except OSError as error:
        raise Temporary(f"unable to read {path}: {reason(error)}") from error
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise unable_to_parse(home, name, LineError(line, "it holds a NUL byte"))
    return data


def unable_to_parse(home: Home, name: str, error: FormatError) -> Temporary:
    """Return the failure for what is wrong in a control file: it names the file, and the line where it is one."""
    return Temporary(f"unable to parse {wrong_in(f'{home.control}/{name}', error)}")


def read_parsed(home: Home, name: str, unpack: "Callable[[bytes], Value]") -> "Value | None":
    """Return what `unpack` makes of a control file, None where there is no file.

    Raises Temporary, naming the file, also where `unpack` raises FormatError.
    """
    data = read_control(home, name)
    if data is None:
        return None
    try:
        return unpack(data)
    except FormatError as error:
        raise unable_to_parse(home, name, error) from error


def read_line(home: Home, name: str, default: bytes) -> bytes:
    """Return the first line of a control file; the default where there is no file."""
    data = read_control(home, name)
    return default if data is None else unpack_line(data)


def read_me(home: Home) -> bytes:
    """Return control/me, this host's name. Raises Temporary where it is missing: too much depends on it."""
    line = read_line(home, "me", b"")
    if not line:
        raise Temporary(f"unable to read {home.control}/me: it is missing or empty; write this host's name into it")
    return line


def read_number(home: Home, name: str, default: int) -> int:
    """Return a control file's number. Raises Temporary where it holds something else, or is out of its range."""
    found = read_parsed(home, name, lambda data: unpack_number(data, name))
    return default if found is None else found


def read_size(home: Home, name: str, default: int) -> int:
    """Return a control file's size in bytes. Raises Temporary where it holds something else."""
    found = read_parsed(home, name, unpack_size)
    return default if found is None else found


def read_set(home: Home, name: str) -> frozenset[bytes] | None:
    """Return a control file's lines in lower case, None where there is no file."""
    data = read_control(home, name)
    return None if data is None else unpack_set(data)


def read_map(home: Home, name: str) -> dict[bytes, bytes] | None:
    """Return a control file's `key:value` lines, keys in lower case, None where there is no file."""
    data = read_control(home, name)
    return None if data is None else unpack_map(data)
