"""bounce/I: the permanent failures of a message, as text, one paragraph a recipient (qmail's format).

    <recipient>:
    what the delivery reported, on one or more lines

Each paragraph ends with an empty line, and holds none. Appending is the only change, so after a
crash the file is whole paragraphs and then, perhaps, a piece that was never promised to anyone.

The text of one failure is at most TEXT_MOST bytes, as it is written and as it is read: a host that
says a lot to each of many recipients must not fill the disk, nor the memory of whoever reads the file.
"""

from collections.abc import Iterator

END = b"\n\n"
TEXT_MOST = 1000  # Bytes of text that are kept of one failure.
_TAIL_MOST = 200  # Bytes of them for its last lines, which say what was decided: "Giving up", "too long".
_CUT = b" [...]\n"
_PARAGRAPH_MOST = 65536  # Bytes of one paragraph that the reader looks at; ours have 2,010 at most.
_PARTS = 256  # Dicts that the reader has in the place of one, which would stop everything each time that it grows.


def pack_failure(recipient: bytes, text: bytes) -> bytes:
    """Return the paragraph for one recipient: newlines in the address become `_`, the text is as clean_text has it."""
    body = clean_text(text) or b"No reason was reported."
    return b"<%s>:\n%s%s" % (recipient.replace(b"\n", b"_"), body, END)


def clean_text(text: bytes) -> bytes:
    """Return what was reported without empty lines and a newline at its end, TEXT_MOST bytes at the most.

    Of a longer one the beginning and the last whole lines are kept, with `[...]` between them.
    """
    return _shorten(b"\n".join(line for line in text.split(b"\n") if line.strip(b"\r")))


def _shorten(body: bytes) -> bytes:
    if len(body) <= TEXT_MOST:
        return body
    tail = body[-_TAIL_MOST:].partition(b"\n")[2]
    head = body[: TEXT_MOST - len(_CUT) - len(tail)].rstrip(b"\n")
    return head + (_CUT + tail).rstrip(b"\n")


def whole_length(data: bytes) -> int:
    """Return how many bytes of `data` are whole paragraphs; what follows is a piece from a crash."""
    end = data.rfind(END)
    return end + len(END) if end >= 0 else 0


class FailureReader:
    """Takes the bytes of bounce/I in pieces of any size; `take` hands over those of the whole paragraphs.

    Nothing is refused: a paragraph without its first line, as other tools may write, has the empty
    recipient and all of itself as the text.
    """

    def __init__(self) -> None:
        self._found: list[dict[bytes, bytes]] = [{} for _ in range(_PARTS)]
        self._order: list[bytes] = []
        self._rest = b""
        self._count = 0

    def feed(self, data: bytes) -> None:
        *whole, rest = (self._rest + data).split(END)
        for paragraph in whole:
            self._take(paragraph)
        if len(rest) > _PARAGRAPH_MOST:
            # The last byte stays, as it may be the first one of an END.
            rest = rest[:_PARAGRAPH_MOST] + _CUT.rstrip(b"\n") + rest[-1:]
        self._rest = rest

    def _take(self, paragraph: bytes) -> None:
        self._count += 1
        head, colon, text = paragraph.partition(b">:\n")
        if head[:1] == b"<" and colon:
            self._keep(head[1:], text[:TEXT_MOST])
        elif paragraph.strip():
            self._keep(b"\0%d" % self._count, paragraph[:TEXT_MOST])

    def _keep(self, key: bytes, text: bytes) -> None:
        part = self._found[hash(key) % _PARTS]
        if key not in part:
            self._order.append(key)
        part[key] = text

    def __len__(self) -> int:
        """Recipients that `take` has yet to yield."""
        return len(self._order)

    def take(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield (recipient, text) of each whole paragraph, the last one of a recipient that is there twice.

        What was yielded is not kept: to let go of all at once would take as long as hundreds of thousands are many.
        """
        self._order.reverse()
        while self._order:
            key = self._order.pop()
            yield b"" if key[:1] == b"\0" else key, self._found[hash(key) % _PARTS].pop(key)


def unpack_failures(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return what a FailureReader makes of a whole file."""
    reader = FailureReader()
    reader.feed(data)
    return list(reader.take())
