"""bounce/I: the permanent failures of a message, as text, one paragraph a recipient (qmail's format).

    <recipient>:
    what the delivery reported, on one or more lines

Each paragraph ends with an empty line, and holds none. Appending is the only change, so after a
crash the file is whole paragraphs and then, perhaps, a piece that was never promised to anyone.
"""

END = b"\n\n"


def pack_failure(recipient: bytes, text: bytes) -> bytes:
    """Return the paragraph for one recipient: newlines in the address become `_`, empty lines in the text go."""
    lines = [line for line in text.split(b"\n") if line.strip(b"\r")]
    body = b"\n".join(lines) or b"No reason was reported."
    return b"<%s>:\n%s%s" % (recipient.replace(b"\n", b"_"), body, END)


def whole_length(data: bytes) -> int:
    """Return how many bytes of `data` are whole paragraphs; what follows is a piece from a crash."""
    end = data.rfind(END)
    return end + len(END) if end >= 0 else 0


def unpack_failures(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return (recipient, text) of each whole paragraph, the last one of a recipient that is there twice.

    Nothing is refused: a paragraph without its first line, as other tools may write, has the empty
    recipient and all of itself as the text.
    """
    found: dict[bytes, bytes] = {}
    for number, paragraph in enumerate(data[: whole_length(data)].split(END)[:-1]):
        head, colon, text = paragraph.partition(b">:\n")
        if head[:1] == b"<" and colon:
            found[head[1:]] = text
        elif paragraph.strip():
            found[b"\0%d" % number] = paragraph
    return [(b"" if key[:1] == b"\0" else key, text) for key, text in found.items()]
