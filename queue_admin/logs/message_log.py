"""The lines of the log about one message, by its number and birth. Pure.

A number is used again, and delivery numbers begin at 1 with each run of queue-send. So the lines of a message are
those from its `new msg N`, the first one after its birth, to its `end msg N`, and the results of the deliveries that
were started for it: a delivery number is that of the latest `starting delivery` with it.

A message that was requeued has a later birth than its `new msg N`: then the first line about N after the birth is
another one. After a kill a message is logged as new once more, with the same `info msg N`; another `info msg N` is that
of the next message, whose predecessor's end was lost with the log.

Recipients that are stored for an on-demand domain outlast the `end msg N`. The lines about them name the long id, so
they are chosen until each of these recipients is done or requeued.
"""

import re
from typing import NamedTuple

from queue_wire import logline
from queue_wire.ids import pack_long_id

AFTER_END = 600 * 1_000_000_000  # Nanoseconds after the end in which the lines of its bounce come.
_ABOUT = re.compile(rb"([a-z]+) msg (\d{1,20})(?![\d])")
_STARTING = re.compile(rb"starting delivery (\d{1,20}): msg (\d{1,20}) to ")
_DELIVERY = re.compile(rb"delivery (\d{1,20}): ")
_MADE = re.compile(rb"(bounce|delay) msg \d+ qp (\d{1,18})\Z")
_TROUBLE = re.compile(rb"(?:alert|warning): (?:[^ ]+: )?.*?\bmsg (\d{1,20})(?!\d)", re.DOTALL)
_ONDEMAND = re.compile(rb"ondemand ([^ ]+) ([a-z]+) (\d{1,20}-[0-9a-z]{1,20}): ?(.*)", re.DOTALL)
_RECIPIENT = re.compile(rb"(?:.* )?to ([^ ]+)", re.DOTALL)
_TRIPLE = re.compile(rb"(?:triple|double) bounce: discarding bounce/(\d{1,20})\Z")


class MadeMessage(NamedTuple):
    """A message that queue-send made about another one: `bounce` or `delay`, its number, the time of its `new msg`
    line in nanoseconds since the epoch."""

    kind: str
    message: int
    when: int


class MessageLog:
    """The lines about one message, chosen from all lines in their order.

    began: whether a line about it has come. begins_new: whether that was its `new msg` line. made: its bounce and its
    delay notices.
    """

    def __init__(self, message: int, birth: int) -> None:
        """`birth` is in microseconds since the epoch."""
        self.began = False
        self.begins_new = False
        self.made: list[MadeMessage] = []
        self._number = b"%d" % message
        self._needle = b" msg " + self._number
        self._birth = birth * 1000
        self._info = b""
        self._again: list[tuple[int, bytes]] = []  # A second `new msg` line, until its `info msg` line comes.
        self._ended: int | None = None
        self._open: set[bytes] = set()  # Deliveries of it in flight.
        self._wanted: dict[int, str] = {}  # By the pid of its injector, the kind of its own mail to come.
        self._new: tuple[bytes, int] = b"", 0  # The latest `new msg` line, while some are wanted.
        self._long_id = pack_long_id(message, birth).encode()
        self._stored: set[tuple[bytes, bytes]] = set()  # Domain and recipient of what is stored on demand.

    @property
    def ended(self) -> bool:
        """Whether its end has come, and that of what is stored of it."""
        return self._ended is not None and not self._stored

    @property
    def stored(self) -> bool:
        """Whether recipients of it are stored for an on-demand domain."""
        return bool(self._stored)

    @property
    def over(self) -> bool:
        """Whether no more lines are to be looked at."""
        return self.ended and not self._wanted

    def may_concern(self, line: bytes) -> bool:
        """Return whether a line, with or without its stamp, has to be taken. Most have not, and this is quick."""
        if self._needle in line or (self._open and b"delivery " in line):
            return True
        if self._wanted and (b"new msg " in line or b"info msg " in line):
            return True
        if self._ended is not None:
            return self._wanted != {} or b"ondemand " in line
        return b"/" + self._number in line or b"ondemand " in line

    def take(self, when: int, text: bytes) -> list[tuple[int, bytes]]:
        """Take the next line, with its time in nanoseconds; return the lines that are known now to be about it."""
        if when < self._birth or self.over:
            return []
        if self._is_stored(text):
            self.began = True
            return [(when, text)]
        if self._ended is not None and when > self._ended + AFTER_END:
            self._wanted.clear()
            return []
        if self._wanted:
            self._look_for_made(when, text)
        if self._ended is not None or not self._concerns(text):
            return []
        if not self.began:
            self.began, self.begins_new = True, text.startswith(b"new ")
        elif text.startswith(b"new ") and self._info:
            self._again = [(when, text)]
            return []
        if text.startswith(b"info "):
            if self._info not in (b"", text):
                self._ended = when
                self._wanted.clear()
                return []
            self._info = text
        elif text.startswith(b"end "):
            self._ended = when
        elif own := _MADE.match(text):
            self._wanted[int(own[2])] = own[1].decode("ascii")
        found, self._again = [*self._again, (when, text)], []
        return found

    def _is_stored(self, text: bytes) -> bool:
        """Return whether a line is about what is stored of the message on demand."""
        line = _ONDEMAND.match(text)
        if line is None:
            return False
        domain, what, long_id, rest = line.groups()
        if what == b"stored" and self._ended is None and long_id.startswith(self._number + b"-"):
            # The birth of a message that was requeued, or that is named by its `new msg` line, is another one.
            self._long_id = long_id
        if long_id != self._long_id:
            return False
        recipient = _RECIPIENT.match(rest)
        if recipient is not None:
            # The line about a result has the first 300 bytes of a long recipient.
            one = domain, recipient[1][:300]
            if what == b"stored":
                self._stored.add(one)
            elif what in (b"done", b"requeued"):
                self._stored.discard(one)
        return True

    def _concerns(self, text: bytes) -> bool:
        starting = _STARTING.match(text)
        if starting is not None:
            delivery, number = starting.groups()
            if number != self._number:
                self._open.discard(delivery)
                return False
            self._open.add(delivery)
            return True
        result = _DELIVERY.match(text)
        if result is not None:
            mine = result[1] in self._open
            self._open.discard(result[1])
            return mine
        about = _ABOUT.match(text)
        if about is not None:
            return about[2] == self._number
        other = _TRIPLE.match(text) or _TROUBLE.match(text)
        return other is not None and other[1] == self._number

    def _look_for_made(self, when: int, text: bytes) -> None:
        about = _ABOUT.match(text)
        if about is None:
            return
        if about[1] == b"new":
            self._new = about[2], when
            return
        pid = logline.injector(text)
        kind = None if pid is None else self._wanted.pop(pid, None)
        if kind is not None:
            number, new = self._new
            self.made.append(MadeMessage(kind, int(about[2]), new if number == about[2] else when))
