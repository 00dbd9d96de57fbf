"""bounce/I: the permanent failures of a message, as text, one paragraph a recipient (qmail's format).

    <recipient>:
    the text of the delivery report, on one or more lines

Each paragraph ends with an empty line and contains none. Paragraphs are only appended, so after a crash the file may
end with an incomplete one, which was not yet relied on.

The text of a failure has at most TEXT_MAX bytes when it is written and when it is read. A host that sends long replies
for many recipients cannot fill the disk or the memory of the reader.
"""

from collections.abc import Iterator

END = b"\n\n"
TEXT_MAX = 1000  # Bytes of the text of one failure.
BRIEF_MAX = 250  # Of one in a file that has very many: no report has so many reasons, but each has the status.
_TAIL_MAX = 200  # Bytes of these for its last lines, which have the decision, such as "Giving up".
_CUT = b" [...]\n"
_PARAGRAPH_MAX = 65536  # Bytes of one paragraph that the reader examines; ours have at most 2,010.
_PARTS = 256  # Dicts that the reader uses instead of a single one, which would pause the program each time it grows.


def pack_failure(recipient: bytes, text: bytes, brief: bool = False) -> bytes:
    """Return the paragraph for one recipient. Newlines in the address become `_`; the text is that of clean_text, or
    the beginning and the end of that.
    """
    body = clean_text(text) or b"No reason was reported."
    body = _shorten(body, BRIEF_MAX) if brief else body
    return b"<%s>:\n%s%s" % (recipient.replace(b"\n", b"_"), body, END)


def clean_text(text: bytes) -> bytes:
    """Return a report's text without empty lines and a final newline, at most TEXT_MAX bytes.

    Of a longer text the beginning and the last whole lines are kept, with `[...]` between them.
    """
    return _shorten(b"\n".join(line for line in text.split(b"\n") if line.strip(b"\r")))


def _shorten(body: bytes, most: int = TEXT_MAX) -> bytes:
    if len(body) <= most:
        return body
    tail = body[-min(_TAIL_MAX, most // 3) :].partition(b"\n")[2]
    head = body[: most - len(_CUT) - len(tail)].rstrip(b"\n")
    return head + (_CUT + tail).rstrip(b"\n")


def whole_length(data: bytes) -> int:
    """Return the length of the complete paragraphs in `data`; an incomplete one may follow after a crash."""
    end = data.rfind(END)
    return end + len(END) if end >= 0 else 0


class FailureReader:
    """Reads bounce/I in pieces of any size; `take` yields the complete paragraphs.

    No input is an error. A paragraph without a first line, as other tools may write, has an empty recipient and its
    whole content as the text.
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
        if len(rest) > _PARAGRAPH_MAX:
            # The last byte is kept, because it may be the first byte of END.
            rest = rest[:_PARAGRAPH_MAX] + _CUT.rstrip(b"\n") + rest[-1:]
        self._rest = rest

    def _take(self, paragraph: bytes) -> None:
        self._count += 1
        head, colon, text = paragraph.partition(b">:\n")
        if head[:1] == b"<" and colon:
            self._keep(head[1:], text[:TEXT_MAX])
        elif paragraph.strip():
            self._keep(b"\0%d" % self._count, paragraph[:TEXT_MAX])

    def _keep(self, key: bytes, text: bytes) -> None:
        part = self._found[hash(key) % _PARTS]
        if key not in part:
            self._order.append(key)
        part[key] = text

    def __len__(self) -> int:
        """The number of recipients that `take` has not yielded yet."""
        return len(self._order)

    def take(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield (recipient, text) of each complete paragraph; the last one if a recipient has several.

        Each one is removed when it is yielded, because freeing hundreds of thousands at once would take too long.
        """
        self._order.reverse()
        while self._order:
            key = self._order.pop()
            yield b"" if key[:1] == b"\0" else key, self._found[hash(key) % _PARTS].pop(key)


def unpack_failures(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return (recipient, text) of each complete paragraph in a whole file, as FailureReader does."""
    reader = FailureReader()
    reader.feed(data)
    return list(reader.take())
