""".qmail files (dot-qmail(5)): their names for an address, and the instructions in them.

One instruction a line, told by its first byte: `#` comment, `|` program, `&` or anything else forward,
`.` or `/` a path: a maildir where it ends in `/`, else an mbox. Spaces and tabs at a line's end do not
count; an empty line says nothing, but must not be the first. The line `+list`, or the execute bit of
the file, allows nothing but forwards after it; other lines that start with `+` are kept for later use.
"""

from queue_wire.format_error import FormatError

MAILDIR = "maildir"
MBOX = "mbox"
PROGRAM = "program"
FORWARD = "forward"

_NAME = b".qmail"
_DEFAULT = b"default"
# A dot would allow `..`, a slash another directory. qmail leaves the slash; a mail address chooses no directory here.
_SAFE = bytes(ord(":") if byte in b"./" else byte for byte in range(256)).lower()


class Instruction:
    """One line: its kind (MAILDIR, MBOX, PROGRAM or FORWARD) and its path, command or address."""

    __slots__ = ("argument", "kind")

    def __init__(self, kind: str, argument: bytes) -> None:
        self.kind = kind
        self.argument = argument

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Instruction) and (self.kind, self.argument) == (other.kind, other.argument)

    def __repr__(self) -> str:
        return f"Instruction({self.kind!r}, {self.argument!r})"


def safe_extension(extension: bytes) -> bytes:
    """Return an address extension as it stands in a file name: lower case, `:` for each dot and slash."""
    return extension.translate(_SAFE)


def qmail_names(dash: bytes, extension: bytes) -> list[bytes]:
    """Return the names of the .qmail files that may control an address, the first that exists counts.

    With neither dash nor extension it is `.qmail` alone. With `-` and the extension a-b: `.qmail-a-b`,
    `.qmail-a-default`, `.qmail-default`.
    """
    if not dash and not extension:
        return [_NAME]
    base, safe = _NAME + dash, safe_extension(extension)
    prefixes = [safe[:end] for end in range(len(safe), -1, -1) if not end or safe[end - 1 : end] == b"-"]
    return [base + safe, *(base + prefix + _DEFAULT for prefix in prefixes)]


def default_part(dash: bytes, extension: bytes, name: bytes) -> bytes | None:
    """Return what `default` stands for in the file `name`, one of qmail_names(dash, extension): DEFAULT of programs.

    It has the extension's own case; None where the name has no such part. (An address may spell it out.)
    """
    if not name.endswith(_DEFAULT):
        return None
    start = len(name) - len(_NAME + dash + _DEFAULT)
    return extension[start:] if start >= 0 else None


def owner_names(dash: bytes, extension: bytes) -> tuple[bytes, bytes]:
    """Return the files that make the owner the sender of forwards: the owner's, and that of its VERP addresses."""
    owner = _NAME + dash + safe_extension(extension) + b"-owner"
    return owner, owner + b"-" + _DEFAULT


def unpack_dotqmail(data: bytes, forward_only: bool = False) -> list[Instruction]:
    """Return the instructions in a .qmail file's bytes, in order. Raises FormatError with a text for the sender.

    An empty file is for the caller: it means the default delivery. `forward_only` is the execute bit.
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
