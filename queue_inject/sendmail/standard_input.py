"""Turns the standard input of sendmail into a message. Pure: takes chunks of bytes and yields chunks.

Each CRLF becomes LF, as in Postfix's sendmail: callers mix line ends (PHP writes a header with CRLF and a body with
LF), and the queue has LF. Other CRs stay. An mbox line (`From SENDER DATE`) at the beginning is removed, and so are the
`>From ` lines that follow it: they belong to the mailbox and not to the message. Unless the caller said -i, a line with
a lone dot ends the message, and what follows it is not read.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# An mbox line is short. A longer line is not one.
_MBOX_LINE_MAX = 4096


def read_message(source: "Iterable[bytes]", dot_ends: bool) -> "Iterator[bytes]":
    """Yield the message in `source`. `dot_ends` says whether a lone dot ends it."""
    lines = remove_mbox_lines(convert_line_ends(source))
    return stop_at_dot(lines) if dot_ends else lines


def convert_line_ends(source: "Iterable[bytes]") -> "Iterator[bytes]":
    """Yield the bytes with LF for each CRLF."""
    held = b""
    for data in source:
        data = held + data
        # The LF after a CR at the end may come next.
        held = b"\r" if data.endswith(b"\r") else b""
        yield data[: len(data) - len(held)].replace(b"\r\n", b"\n")
    if held:
        yield held


def stop_at_dot(source: "Iterable[bytes]") -> "Iterator[bytes]":
    """Yield the bytes before the first line that is a lone dot."""
    # A newline before the first byte, which is not part of the message, makes the first line like any other.
    held, skip = b"\n", 1
    for data in source:
        data = held + data
        dot = data.find(b"\n.\n")
        if dot >= 0:
            yield data[skip : dot + 1]
            return
        end = len(data)
        if data.endswith(b"\n."):
            end -= 2
        elif data.endswith(b"\n"):
            end -= 1
        held = data[end:]
        yield data[skip:end]
        skip = 0 if end else skip
    yield held[skip : 1 if held == b"\n." else None]


def remove_mbox_lines(source: "Iterable[bytes]") -> "Iterator[bytes]":
    """Yield the bytes without an mbox line at the beginning and the >From lines that follow it."""
    held = b""
    found = False
    pieces = iter(source)
    for data in pieces:
        held += data
        while (end := held.find(b"\n") + 1) > 0 and _is_mbox_line(held[:end], found):
            held, found = held[end:], True
        if end or len(held) > _MBOX_LINE_MAX or not _may_begin(held, found):
            yield held
            yield from pieces
            return
    # The last line may lack its newline.
    if not _is_mbox_line(held, found):
        yield held


def _is_mbox_line(line: bytes, follows: bool) -> bool:
    """Return whether a line is an mbox line, or a >From line if it `follows` one. A `From ` line without a time of day
    is text.
    """
    if follows or len(line) > _MBOX_LINE_MAX:
        return follows and line.startswith(b">From ")
    return line.startswith(b"From ") and any(
        word[2:3] == b":" and word[:2].isdigit() and word[3:5].isdigit() for word in line.split()[2:]
    )


def _may_begin(held: bytes, follows: bool) -> bool:
    start = b">From " if follows else b"From "
    return held.startswith(start) or start.startswith(held)
