"""A message as it stands in an mbox file (mbox(5), qmail-local(8)): what is added and quoted. Pure.

From sender date          with the other lines of the delivery: `head`
the message               a line that matches `>*From ` gets one more `>`; the last line gets its newline
an empty line
"""

import re
from collections.abc import Iterable, Iterator

from queue_local.mbox_journal import fold

_FROM = re.compile(rb"(\n>*)From ")
# What a line may begin with, behind its `>`, at the end of a piece, when the next piece can make it `From `.
_BEGUN = (b"", b"F", b"Fr", b"Fro", b"From")
# Longer than any From_ line: the date is within it.
_WINDOW = 1200
_FROM_LINE = re.compile(rb"From [^\n]{0,1100}\d\d:\d\d")
_HEAD = (b"From ", b"Return-Path: <", b"Delivered-To: ")


def mbox_text(head: bytes, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes to append for a message that comes in pieces of any size."""
    yield head
    at_start, kept, last = True, b"", b""
    for piece in pieces:
        # One byte in front says whether a line begins here; what may become `From ` waits for the next piece.
        data = _FROM.sub(rb"\1>From ", (b"\n" if at_start else b"x") + kept + piece)
        begun = data[data.rfind(b"\n") + 1 :].lstrip(b">") if b"\n" in data else None
        at_start, kept = (True, begun) if begun in _BEGUN and begun is not None else (False, b"")
        yield data[1 : len(data) - len(kept)]
        last = piece or last
    yield kept
    yield b"\n" if not last or last.endswith(b"\n") else b"\n\n"


def missing_end(last: bytes) -> bytes:
    """Return what a file that ends in `last` (two bytes, fewer in a shorter file) lacks of an empty line at its end."""
    if not last or last == b"\n\n":
        return b""
    return b"\n" if last.endswith(b"\n") else b"\n\n"


def is_cut_message(pieces: Iterable[bytes], check: int) -> bool:
    """Return whether the end of an mbox, in pieces, is the beginning of a message that we were adding, and no more.

    `check` is its head's. False where it might be anybody else's, or has anybody else's behind it: a From_ line that
    is not the first.
    """
    kept, first = b"", True
    for piece in pieces:
        data = kept + piece
        if first:
            data, first = data.removeprefix(b"\n").removeprefix(b"\n"), False
            if not _starts_as_ours(data.rstrip(b"\0"), check):
                return False
            # Behind its first byte the own From_ line is no other one.
            data = data[1:]
        if _FROM_LINE.search(data):
            return False
        kept = data[-_WINDOW:]
    return True


def _starts_as_ours(data: bytes, check: int) -> bool:
    """Return whether the first three lines are those of the head, as far as they are there."""
    *lines, cut = data.split(b"\n", len(_HEAD))
    if len(lines) == len(_HEAD):
        return fold(b"\n".join(lines) + b"\n") == check
    start = _HEAD[len(lines)]
    return all(line.startswith(begin) for line, begin in zip(lines, _HEAD, strict=False)) and (
        cut.startswith(start) or start.startswith(cut)
    )
