"""What MIME that was made to be slow costs: time that grows with its bytes, and memory likewise.

The limits are far above what is needed and far below the minutes that work with the square of the bytes takes.
"""

import time
import tracemalloc

import pytest

from queue_remote.message.converter import most_written
from queue_remote.message.downgrade import Downgrade
from queue_remote.message.mime import find_parts
from queue_wire.format_error import FormatError

SIZE = 2_000_000
CPU_SECONDS = 6.0
END = b"\n\n\xe9\n"


def nested(boundaries: list[bytes]) -> bytes:
    return b"".join(b'Content-Type: multipart/mixed; boundary="%s"\n\n--%s\n' % (name, name) for name in boundaries)


CASES = {
    "semicolons in a quoted string": b"Content-Type: multipart/mixed; boundary=b\n\n"
    + (b'--b\nContent-Type: text/plain; x="' + b";" * 16_000 + END) * (SIZE // 16_050),
    "quotes and backslashes": b'Content-Type: text/plain; x="' + b'\\"' * 400_000 + b";" * 100_000 + END,
    "parameters": b"Content-Type: text/plain" + b"; boundary*1=a" * 60_000 + END,
    "comments in comments": b"Content-Type: " + b"(" * 900_000 + END,
    "a word without end": b"Content-Type: text/plain; " + b"x" * 900_000 + END,
    "fifty levels of lines with dashes": nested([b"%d" % level for level in range(50)]) + b"--x\n" * (SIZE // 4) + END,
    "prefixes of each other": nested([b"b" * level for level in range(1, 50)]) + b"--bbbbb-\n" * (SIZE // 9) + END,
    "the same boundary again and again": nested([b"b"] * 9_000) + END,
    "lines that are almost a boundary": nested([b"b" * 70]) + (b"--" + b"b" * 69 + b"\n") * (SIZE // 72) + END,
    "a boundary and many blanks": nested([b"b"]) + (b"--b" + b" " * 990 + b"x\n") * (SIZE // 995) + END,
    "thousands of parts": nested([b"b"]) + (b"--b" + END) * 9_000,
    "thousands of messages": nested([b"b"]) + b"--b\nContent-Type: message/rfc822\n\nX: y\n\n" * 4_000 + END,
    "8-bit parts, then a long line": nested([b"b"]) + (b"--b" + END) * 9_000 + b"x\n" * 500_000 + b"y" * 2_000,
    "long header lines": (b"X: " + b"many words " * 23_000 + b"\n") * 4 + b"\xe9\n",
    "continuation lines": b"X: y" + b"\n " * 400_000 + END,
    "fields": b"a:\n" * 300_000 + END,
    "a name without a colon": b"x" * SIZE + b"\xe9\n",
    "blanks behind a name": b"x" + b" " * SIZE + END,
    "empty lines": b"\n" * SIZE + b"\xe9",
    "8-bit bytes in quoted-printable": b"Content-Transfer-Encoding: quoted-printable\n\n" + b"\xe9=" * (SIZE // 2),
    "one line of base64": b"Content-Transfer-Encoding: base64\n\n" + b"QUJD" * (SIZE // 4) + b"\n",
    "one line of text": b"\n" + b"x" * SIZE + b"\xe9",
}


@pytest.mark.parametrize("short_lines", [False, True], ids=["7-bit", "7-bit and short lines"])
@pytest.mark.parametrize("message", CASES.values(), ids=CASES)
def test_mime_that_was_made_to_be_slow_costs_what_its_bytes_are_worth(message: bytes, short_lines: bool) -> None:
    size = 0

    def put(piece: bytes) -> None:
        nonlocal size
        size += len(piece)

    begun = time.process_time()
    try:
        Downgrade(message, True, short_lines, put).run()
    except FormatError:
        size = len(message)
    assert time.process_time() - begun < CPU_SECONDS
    assert len(message) <= size <= most_written(len(message))


@pytest.mark.parametrize("message", CASES.values(), ids=CASES)
def test_the_parts_of_a_message_take_no_more_memory_than_the_message(message: bytes) -> None:
    tracemalloc.start()
    try:
        find_parts(message)
        _, most = tracemalloc.get_traced_memory()
    except FormatError:
        return
    finally:
        tracemalloc.stop()
    assert most < 10_000_000
