"""What a program wrote, as far as a report wants it: the beginning and the end of it, cleaned. Pure."""

# Of what a program writes, so much of the beginning is kept, and so much of the end, where its last words are.
HEAD_MOST = 2000
TAIL_MOST = 800
_LEFT_OUT = b"\n[...]\n"
# Tabs are spaces, newlines stay, every other control byte is `_`.
_KEPT = {9: ord(" "), 10: 10, 127: ord("_")}
_PRINTED = bytes(_KEPT.get(byte, byte if byte >= 32 else ord("_")) for byte in range(256))


class Output:
    """Takes bytes without end; holds no more than is kept."""

    __slots__ = ("_head", "_tail", "_total")

    def __init__(self) -> None:
        self._head = b""
        self._tail = b""
        self._total = 0

    def feed(self, data: bytes) -> None:
        self._total += len(data)
        room = HEAD_MOST - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail = (self._tail + data[-TAIL_MOST:])[-TAIL_MOST:]

    def kept(self) -> bytes:
        """Return what was kept, cleaned."""
        between = _LEFT_OUT if self._total > len(self._head) + len(self._tail) else b""
        return clean_output(self._head + between + self._tail)


def clean_output(data: bytes) -> bytes:
    """Return text for a report: UTF-8, no control characters but newlines, no empty lines, one newline at its end.

    What is not UTF-8 becomes `?`, byte by byte. Nothing at all stays nothing.
    """
    text = data.replace(b"\r\n", b"\n").translate(_PRINTED)
    if not text.isascii():
        # U+0080 to U+009F are control characters as well; a bad byte must not take three of ours.
        text = "".join(_character(char) for char in text.decode("utf-8", "surrogateescape")).encode()
    lines = [line.rstrip(b" ") for line in text.split(b"\n")]
    return b"".join(line + b"\n" for line in lines if line)


def _character(char: str) -> str:
    return char if char == "\n" or char.isprintable() else "?"
