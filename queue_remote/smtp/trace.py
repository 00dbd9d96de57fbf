"""Prints the SMTP dialogue for --trace: one line an event, with milliseconds since the start.

       0 ms  *  connecting to 192.0.2.1 (mx.example.net), port 25
      12 ms  S: 220 mx.example.net ESMTP
      12 ms  C: EHLO client.example

`C:` marks commands, `S:` replies, `*` other events. Passwords and responses derived from them are shown as `***`, a
message as its number of bytes.
"""

import contextlib
import os
import time

_SHOWN = 1000


class Trace:
    """Writes to a descriptor; errors of the descriptor are ignored."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._start = time.monotonic()
        self._rest = b""

    def note(self, text: str) -> None:
        self._put("* ", text.encode("utf-8", "backslashreplace"))

    def said(self, data: bytes, secret: bool) -> None:
        """Show commands; `secret` if they are responses to AUTH challenges."""
        for line in data.removesuffix(b"\r\n").split(b"\r\n"):
            words = line.split(b" ")
            if words[0] == b"AUTH" and len(words) > 2:
                line = b" ".join([*words[:2], b"***"])
            elif secret and words[0] not in (b"QUIT", b"AUTH"):
                line = b"***"
            self._put("C:", line)

    def sent(self, count: int) -> None:
        self._put("C:", b"(%d bytes of message)" % count)

    def heard(self, data: bytes) -> None:
        """Show replies by lines; an incomplete line is kept until it ends or is too long."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._put("S:", line.removesuffix(b"\r"))
        if len(self._rest) > _SHOWN:
            self.closed()

    def closed(self) -> None:
        """Show an incomplete line."""
        if self._rest:
            self._put("S:", self._rest)
            self._rest = b""

    def _put(self, mark: str, line: bytes) -> None:
        shown = line[:_SHOWN].decode("utf-8", "backslashreplace")
        clean = "".join([char if char.isprintable() else ascii(char)[1:-1] for char in shown])
        more = "..." if len(line) > _SHOWN else ""
        with contextlib.suppress(OSError):
            text = f"{(time.monotonic() - self._start) * 1000:8.0f} ms  {mark} {clean}{more}\n"
            os.write(self._descriptor, text.encode())
