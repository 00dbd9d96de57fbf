"""Reads control files. A missing file means the default; a file that cannot be read or parsed raises Temporary."""

import os

from queue_base.durable import read_file
from queue_base.errors import Temporary, reason
from queue_base.home import Home
from queue_wire.control.lines import refuse_nul, unpack_line
from queue_wire.format_error import FormatError, wrong_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from queue_wire.control.control_file import ControlFile
    from queue_wire.control.destinationlimits import LimitLines
    from queue_wire.control.smtproutes import Relays

    Value = TypeVar("Value")


def read_control(home: Home, name: str) -> bytes | None:
    """Return the contents of a control file, None if it does not exist. Raises Temporary, naming the file.

    A NUL byte is refused, because records on disk and on pipes end with NUL.
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
    try:
        refuse_nul(data)
    except FormatError as error:
        raise unable_to_parse(home, name, error) from error
    return data


def unable_to_parse(home: Home, name: str, error: FormatError) -> Temporary:
    """Return the failure for a control file that cannot be parsed. It names the file, and the line if one is wrong."""
    return Temporary(f"unable to parse {wrong_in(f'{home.control}/{name}', error)}")


def check_modes(home: Home) -> None:
    """Check that not everybody may write to control/ or to a file in it. Raises Temporary, naming the path.

    Whoever may write there decides where all mail goes.
    """
    for path, why in find_open_modes(home):
        raise Temporary(f"unable to use {path}: {why}")


def find_open_modes(home: Home) -> "list[tuple[str, str]]":
    """Return control/, and each file in it, to which everybody may write, and what is wrong. Raises Temporary."""
    try:
        with os.scandir(home.control) as entries:
            modes = [(home.control, os.stat(home.control).st_mode)]
            modes += [(entry.path, entry.stat().st_mode) for entry in entries if entry.is_file()]
    except OSError as error:
        raise Temporary(f"unable to read {error.filename or home.control}: {reason(error)}") from error
    why = "everybody may write to it (mode %04o); chmod o-w"
    return [(path, why % (mode & 0o7777)) for path, mode in modes if mode & 0o002]


def read_parsed(home: Home, name: str, unpack: "Callable[[bytes], Value]") -> "Value | None":
    """Return a control file parsed by `unpack`, None if it does not exist.

    Raises Temporary, naming the file, if it cannot be read or `unpack` raises FormatError.
    """
    data = read_control(home, name)
    if data is None:
        return None
    try:
        return unpack(data)
    except FormatError as error:
        raise unable_to_parse(home, name, error) from error


def read_value(home: Home, file: "ControlFile[Value]") -> "Value":
    """Return the value of a control file, what counts without it if it does not exist.

    Raises Temporary, naming the file, if it cannot be read or parsed.
    """
    data = read_control(home, file.name)
    try:
        return file.value(data)
    except FormatError as error:
        raise unable_to_parse(home, file.name, error) from error


def read_line(home: Home, name: str, default: bytes) -> bytes:
    """Return the first line of a control file, or `default` if it does not exist."""
    data = read_control(home, name)
    return default if data is None else unpack_line(data)


def read_me(home: Home) -> bytes:
    """Return control/me, the name of this host. Raises Temporary if it is missing, because it has no default."""
    return me_in(home, read_control(home, "me"))


def me_in(home: Home, data: bytes | None) -> bytes:
    """Return the name of this host by the contents of control/me. Raises Temporary if there is none."""
    # A fully qualified name may have a final dot, which no mail has.
    line = unpack_line(data or b"").removesuffix(b".")
    if not line:
        raise Temporary(f"unable to read {home.control}/me: it is missing or empty; write this host's name into it")
    return line


def read_local_servers(home: Home, recipient: bytes) -> "tuple[Relays, bytes] | None":
    """Return the LMTP servers of a local recipient, rewritten by virtualdomains, and the address that they know it by.

    None if queue-local has it. Raises Temporary, naming the file.
    """
    from queue_wire.address import strip_prepend
    from queue_wire.control.localroutes import find_local_route
    from queue_wire.control.registry import LOCALROUTES, VIRTUALDOMAINS

    routes = read_value(home, LOCALROUTES)
    if not routes:
        return None
    named = strip_prepend(recipient, read_value(home, VIRTUALDOMAINS))
    servers = find_local_route(routes, named)
    return None if servers is None else (servers, named)


def read_limit_lines(home: Home) -> "LimitLines":
    """Return the lines of destinationlimits and destinationrate together. Raises Temporary, naming the file."""
    from queue_wire.control.destinationlimits import join_lines
    from queue_wire.control.registry import DESTINATIONLIMITS, DESTINATIONRATE

    return join_lines(read_value(home, DESTINATIONLIMITS), read_value(home, DESTINATIONRATE))
