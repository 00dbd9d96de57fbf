""".qmail files (dot-qmail(5)): their names for an address, and the instructions in them.

Each line is an instruction, whose kind is given by its first byte: `#` comment, `|` program, `.` or `/` a path (a
maildir if it ends in `/`, else an mbox), `&` or anything else a forward. Trailing spaces and tabs are ignored. Empty
lines are ignored, but the first line must not be empty. After the line `+list`, or in a file with the execute bit, only
forwards are allowed. Other lines that begin with `+` are reserved.
"""

from typing import NamedTuple

from queue_wire.format_error import FormatError

MAILDIR = "maildir"
MBOX = "mbox"
PROGRAM = "program"
FORWARD = "forward"

_NAME = b".qmail"
_DEFAULT = b"default"
# A dot would allow `..`. qmail keeps slashes, but here a mail address must not choose another directory.
_SAFE = bytes(ord(":") if byte in b"./" else byte for byte in range(256)).lower()


class Instruction(NamedTuple):
    """One line: its kind (MAILDIR, MBOX, PROGRAM or FORWARD) and its path, command or address."""

    kind: str
    argument: bytes


def safe_extension(extension: bytes) -> bytes:
    """Return an address extension as used in file names: in lower case, with `:` for each dot and slash."""
    return extension.translate(_SAFE)


def qmail_names(dash: bytes, extension: bytes) -> list[bytes]:
    """Return the names of the .qmail files that may control an address. The first file that exists is used.

    Without dash and extension this is `.qmail`. With `-` and the extension a-b: `.qmail-a-b`, `.qmail-a-default`,
    `.qmail-default`.
    """
    if not dash and not extension:
        return [_NAME]
    base, safe = _NAME + dash, safe_extension(extension)
    prefixes = [safe[:end] for end in range(len(safe), -1, -1) if not end or safe[end - 1 : end] == b"-"]
    return [base + safe, *(base + prefix + _DEFAULT for prefix in prefixes)]


def default_part(dash: bytes, extension: bytes, name: bytes) -> bytes | None:
    """Return what `default` in the name of a .qmail file stands for: the variable DEFAULT of its programs.

    `name` is one of qmail_names(dash, extension). The case of the extension is kept. Returns None if the name does not
    end in `default`. An address may also contain the word itself.
    """
    if not name.endswith(_DEFAULT):
        return None
    start = len(name) - len(_NAME + dash + _DEFAULT)
    return extension[start:] if start >= 0 else None


def owner_names(dash: bytes, extension: bytes) -> tuple[bytes, bytes]:
    """Return the names of the files that change the sender of forwards: `-owner` and `-owner-default`."""
    owner = _NAME + dash + safe_extension(extension) + b"-owner"
    return owner, owner + b"-" + _DEFAULT


def unpack_dotqmail(data: bytes, forward_only: bool = False) -> list[Instruction]:
    """Return the instructions in a .qmail file, in order. Raises FormatError with a text for the sender.

    An empty file has none, which means the default delivery. `forward_only` is the execute bit of the file.
    """
    found = []
    for number, raw in enumerate(data.split(b"\n")):
        line = raw.rstrip(b" \t")
        if b"\0" in line:
            raise FormatError(f"Uh-oh: line {number + 1} of .qmail file holds a NUL. (#4.2.1)")
        if not line and not number:
            raise FormatError("Uh-oh: first line of .qmail file is blank. (#4.2.1)")
        if line[:1] == b"+":
            forward_only = forward_only or line == b"+list"
        elif line and line[:1] != b"#":
            found.append(_instruction(line))
            if forward_only and found[-1].kind != FORWARD:
                word = "prog" if found[-1].kind == PROGRAM else "file"
                raise FormatError(f"Uh-oh: .qmail has {word} delivery but has x bit set. (#4.7.0)")
    return found


def _instruction(line: bytes) -> Instruction:
    first = line[:1]
    if first in (b".", b"/"):
        return Instruction(MAILDIR if line.endswith(b"/") else MBOX, line)
    if first == b"|":
        return Instruction(PROGRAM, line[1:])
    return Instruction(FORWARD, line[1:] if first == b"&" else line)
