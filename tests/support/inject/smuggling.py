"""Message bodies that hold an end of data and the commands of a second message, in every variant that is known.

Where they come from: "SMTP Smuggling" (SEC Consult, December 2023), CVE-2023-51764 (Postfix), CVE-2023-51765
(Sendmail), CVE-2023-51766 (Exim), CVE-2024-27305 (aiosmtpd), and the pairs of everything that any program has ever
taken for a line end.
"""

import itertools
from collections.abc import Iterator

from queue_remote.message.file import CHUNK

SMUGGLED = b"smuggled@evil.example"

PUBLISHED = [
    *(b"\n.\n", b"\n.\r\n", b"\r\n.\n", b"\r.\r", b"\r.\r\n", b"\r\n.\r", b"\n.\r", b"\r.\n", b"\r\n.\r\n"),
    *(b"\r\n\0.\r\n", b"\r\n.\0\r\n", b"\r\n.\r\0\n", b"\r\0\n.\r\n", b"\0\r\n.\r\n", b"\n\0.\n", b"\n.\0\n"),
    *(b"\r\r\n.\r\r\n", b"\r\n.\r\r\n", b"\r\r\n.\r\n", b"\n\n.\n\n", b"\r\n\r\n.\r\n\r\n", b"\n\r.\n\r"),
    *(b"\r\n..\r\n", b"\n..\n", b"\r\n.\r\n.\r\n", b"\n.\n.\n", b"\r\n. \r\n", b"\r\n .\r\n", b"\n.\x1a\n"),
]
_LINE_ENDS = [
    *(b"", b"\n", b"\r", b"\r\n", b"\n\r", b"\r\r\n", b"\r\0\n", b"\n\0", b"\r\0", b"\0\n", b"\r \n", b"\r\n\0"),
    *(b"\x0b", b"\x0c", b"\x1e", b"\x85", b"\xc2\x85", b"\xe2\x80\xa8"),
]
# Around what RFC 5321, Postfix (line_length_limit 2048), aiosmtpd and smtp-sink take for the longest line.
_LENGTHS = [998, 999, 1000, 1001, 2046, 2047, 2048, 2049, 4096, 65535, 65536, 131072]


def bodies() -> Iterator[bytes]:
    """Yield what follows a message's header."""
    pairs = [before + b"." + after for before, after in itertools.product(_LINE_ENDS, repeat=2)]
    for end in [*PUBLISHED, *pairs]:
        yield b"text" + end + _commands(b"\n") + end
    for end in PUBLISHED:
        yield end[1:] + _commands(b"\r\n") + end
        yield b"text" + end + _commands(b"\r") + end + end
        # With nothing behind it: the real end follows at once.
        yield b"text" + end
    for end, length in itertools.product(PUBLISHED[:16], _LENGTHS):
        yield b"x" * length + end + _commands(b"\r\n") + end


def padded(header: int) -> Iterator[bytes]:
    """Yield those that lie across the border between two chunks; a header of so many bytes comes before."""
    for end in PUBLISHED:
        for place in range(len(end) + 1):
            yield b"a\n" + b"x" * (CHUNK - header - 2 - place) + end + _commands(b"\n") + end


def _commands(line_end: bytes) -> bytes:
    lines = [b"MAIL FROM:<%s>" % SMUGGLED, b"RCPT TO:<victim@b.example>", b"DATA", b"Subject: smuggled", b"", b"x"]
    return b"".join(line + line_end for line in lines)
