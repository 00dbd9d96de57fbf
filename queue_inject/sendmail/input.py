"""What sendmail makes of the bytes on its standard input before they are a message. Pure: chunks in, chunks out.

Line ends: each CRLF becomes LF, as Postfix's sendmail does it by itself. Callers mix them (PHP writes a header
with CRLF over a body with LF), and the queue has LF; other CRs stay. An mbox line (`From SENDER DATE`) on top goes, and
so do the `>From ` lines right below it: they are the mailbox's, not the message's. A line with a lone dot ends
the message where the caller did not say -i; what comes after it is not read.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# An mbox line is short; what goes on for longer is none.
_MBOX_LINE_MAX = 4096


def take_message(source: "Iterable[bytes]", dot_ends: bool) -> "Iterator[bytes]":
    """Yield the message in `source`, in no particular pieces."""
    lines = without_mbox_lines(with_unix_ends(source))
    return until_dot(lines) if dot_ends else lines


def with_unix_ends(source: "Iterable[bytes]") -> "Iterator[bytes]":
    """Yield the bytes with LF for each CRLF."""
    held = b""
    for data in source:
        data = held + data
        # The LF of a last CR may come next.
        held = b"\r" if data.endswith(b"\r") else b""
        yield data[: len(data) - len(held)].replace(b"\r\n", b"\n")
    if held:
        yield held


def until_dot(source: "Iterable[bytes]") -> "Iterator[bytes]":
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


def without_mbox_lines(source: "Iterable[bytes]") -> "Iterator[bytes]":
    """Yield the bytes without an mbox line on top and the >From lines below it."""
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


def _is_mbox_line(line: bytes, below: bool) -> bool:
    """Return whether a line is an mbox line, or one `below` it: what has no time of day is text like other text."""
    if below or len(line) > _MBOX_LINE_MAX:
        return below and line.startswith(b">From ")
    return line.startswith(b"From ") and any(
        word[2:3] == b":" and word[:2].isdigit() and word[3:5].isdigit() for word in line.split()[2:]
    )


def _may_begin(held: bytes, below: bool) -> bool:
    start = b">From " if below else b"From "
    return held.startswith(start) or start.startswith(held)
