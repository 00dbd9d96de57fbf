"""The client's side of the milter protocol, version 6, without I/O: commands in, bytes out; bytes in, answers out.

    client.sender(...)              a command, and what the milter wants to know with it
    data = client.data_to_send()
    client.feed(data)               until `waits` is false
    client.answer                   what it says to the command
    client.take_edits()             what it wants changed, at the end of a message
    client.take_body()              pieces of a new body, to be taken after each `feed`, since they may be large

A command that the milter does not want is not sent, one that it does not answer does not wait. Its answers are not
trusted: what is against the protocol, too long or too much raises FormatError, and the connection is then useless.

The protocol is that of libmilter (mfdef.h): a packet is a length of four bytes, a byte for the command, and its data.
"""

import enum
import re
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from queue_smtp.server_replies import ServerReply
from queue_wire.format_error import FormatError, quoted

VERSION = 6
# Nothing longer is asked for, and no milter of libmilter sends more.
PACKET_MAX = 65536 + 64
# The most data of a packet that libmilter takes (MILTER_MAX_DATA_SIZE): it closes the connection at a longer one.
DATA_MAX = 65535
# Of one message. Text of new bodies is counted alone.
EDITS_MAX = 5000
EDIT_BYTES_MAX = 4 << 20
NEW_BODY_MAX = 256 << 20
_REPLY_LINES_MAX = 20
_REPLY_LINE_MAX = 400

# Actions that it may take (SMFIF_*): add and change headers, replace the body, add and remove recipients, quarantine,
# change the sender, and recipients with parameters.
ADD_HEADERS, CHANGE_BODY, ADD_RECIPIENT, DELETE_RECIPIENT = 0x01, 0x02, 0x04, 0x08
CHANGE_HEADERS, QUARANTINE, CHANGE_SENDER, ADD_WITH_PARAMETERS, SET_MACROS = 0x10, 0x20, 0x40, 0x80, 0x100
ACTIONS = 0x1FF
# What it may want of the protocol (SMFIP_*): commands that are not sent, and those that it does not answer.
NO_CONNECT, NO_HELLO, NO_SENDER, NO_RECIPIENT, NO_BODY, NO_HEADERS, NO_HEADERS_END = (1 << bit for bit in range(7))
SILENT_HEADERS, NO_UNKNOWN, NO_DATA, SKIP, REJECTED_RECIPIENTS = (1 << bit for bit in range(7, 12))
SILENT_CONNECT, SILENT_HELLO, SILENT_SENDER, SILENT_RECIPIENT, SILENT_DATA = (1 << bit for bit in range(12, 17))
SILENT_UNKNOWN, SILENT_HEADERS_END, SILENT_BODY, LEADING_SPACE = (1 << bit for bit in range(17, 21))
STEPS = (1 << 21) - 1 - REJECTED_RECIPIENTS

# Commands by their byte: what keeps them from being sent, what from being answered, and the first version with them.
_COMMANDS = {
    b"C": (NO_CONNECT, SILENT_CONNECT, 2),
    b"H": (NO_HELLO, SILENT_HELLO, 2),
    b"M": (NO_SENDER, SILENT_SENDER, 2),
    b"R": (NO_RECIPIENT, SILENT_RECIPIENT, 2),
    b"T": (NO_DATA, SILENT_DATA, 4),
    b"L": (NO_HEADERS, SILENT_HEADERS, 2),
    b"N": (NO_HEADERS_END, SILENT_HEADERS_END, 2),
    b"B": (NO_BODY, SILENT_BODY, 2),
    b"E": (0, 0, 2),
}
# The numbers by which a milter asks for the macros of a stage.
_STAGES = {0: b"C", 1: b"H", 2: b"M", 3: b"R", 4: b"T", 5: b"E", 6: b"N"}
_REPLY = re.compile(rb"([45][0-9][0-9])(?:[ -]([245]\.[0-9]{1,3}\.[0-9]{1,3}))?(?:[ -](.*))?")
_NAME = re.compile(rb"[!-9;-~]{1,200}")

REJECTED = ServerReply(550, b"5.7.1", b"Command rejected")
UNAVAILABLE = ServerReply(451, b"4.7.1", b"Service unavailable - try again later")
CLOSED = ServerReply(421, b"4.7.0", b"Service closes the connection")


class FieldTooLong(Exception):
    """A field of a header that the protocol cannot carry; the text is its name, of which it has 80 bytes at most."""


class AnswerKind(enum.Enum):
    """What a milter says to a command. SKIP: it wants no more of the body."""

    CONTINUE = "continue"
    ACCEPT = "accept"
    DISCARD = "discard"
    REFUSE = "refuse"
    SKIP = "skip"


class MilterAnswer(NamedTuple):
    """An answer; `reply` is for the client if it refuses."""

    kind: AnswerKind
    reply: ServerReply | None = None


GO_ON = MilterAnswer(AnswerKind.CONTINUE)
_ANSWERS = {
    b"c": GO_ON,
    b"a": MilterAnswer(AnswerKind.ACCEPT),
    b"d": MilterAnswer(AnswerKind.DISCARD),
    b"s": MilterAnswer(AnswerKind.SKIP),
    b"r": MilterAnswer(AnswerKind.REFUSE, REJECTED),
    b"t": MilterAnswer(AnswerKind.REFUSE, UNAVAILABLE),
    b"4": MilterAnswer(AnswerKind.REFUSE, CLOSED),
    b"f": MilterAnswer(AnswerKind.REFUSE, CLOSED),
}


class HeaderEdit(NamedTuple):
    """A field to add at the end (`place` is None), or at a place.

    `replaces`: the place is a number, from 1, among the fields of this name; that one is replaced, or removed if the
    value is empty.
    """

    name: bytes
    value: bytes
    place: int | None = None
    replaces: bool = False


class SenderEdit(NamedTuple):
    """Another sender, as a path in brackets or without."""

    path: bytes


class RecipientEdit(NamedTuple):
    """A recipient to add or to remove, as a path in brackets or without."""

    path: bytes
    adds: bool


class QuarantineEdit(NamedTuple):
    """The message is to be put on hold."""

    reason: bytes


Edit = HeaderEdit | SenderEdit | RecipientEdit | QuarantineEdit
# Which action each edit is, and the first byte of its packet.
_EDITS = {
    b"h": ADD_HEADERS,
    b"i": ADD_HEADERS | CHANGE_HEADERS,
    b"m": CHANGE_HEADERS,
    b"b": CHANGE_BODY,
    b"e": CHANGE_SENDER,
    b"+": ADD_RECIPIENT,
    b"2": ADD_WITH_PARAMETERS,
    b"-": DELETE_RECIPIENT,
    b"q": QUARANTINE,
}


class MilterClient:
    """One connection. `waits`: its milter has to answer. `progress` counts how often it said that it needs time.

    `replaces_body`: it has sent a new body, which may be empty, for the message that has ended.
    """

    __slots__ = (
        *("_actions", "_body", "_body_bytes", "_buffer", "_command", "_edit_bytes", "_edit_count", "_edits", "_out"),
        *("_steps", "_version", "_wanted"),
        *("answer", "progress", "replaces_body", "waits"),
    )

    def __init__(self) -> None:
        self.answer = GO_ON
        self.progress = 0
        self.waits = False
        self._command = b""
        self._version = VERSION
        self._actions = self._steps = 0
        # The macros of a stage, if the milter has named them.
        self._wanted: dict[bytes, frozenset[bytes]] = {}
        self._buffer = bytearray()
        self._out: list[bytes] = []
        self._edits: list[Edit] = []
        self._body: list[bytes] = []
        self.replaces_body = False
        self._edit_bytes = self._edit_count = self._body_bytes = 0

    # Commands.

    def negotiate(self) -> None:
        """Begin: offer everything."""
        self._send(b"O", struct.pack(">III", VERSION, ACTIONS, STEPS))
        self._command, self.waits = b"O", True

    def connect(self, host: bytes, address: str, port: int, macros: Mapping[bytes, bytes]) -> None:
        """Tell who has connected; the address is empty for a Unix socket."""
        data = _strings(host)
        if address:
            data += (b"6" if ":" in address else b"4") + struct.pack(">H", port) + _strings(address.encode())
        else:
            data += b"U"
        self._ask(b"C", data, macros)

    def hello(self, name: bytes, macros: Mapping[bytes, bytes]) -> None:
        """Tell the name of EHLO or HELO."""
        self._ask(b"H", _strings(name), macros)

    def sender(self, path: bytes, parameters: Iterable[bytes], macros: Mapping[bytes, bytes]) -> None:
        """Begin a message. The path has brackets."""
        self._ask(b"M", _strings(path, *parameters), macros)

    def recipient(self, path: bytes, macros: Mapping[bytes, bytes]) -> None:
        """Tell a recipient. The path has brackets."""
        self._ask(b"R", _strings(path), macros)

    def begin_data(self, macros: Mapping[bytes, bytes]) -> None:
        """Tell that all recipients are known."""
        self._ask(b"T", b"", macros)

    def header(self, name: bytes, value: bytes) -> None:
        """Tell a field of the header: what is behind its colon, with LF where it is folded. Raises FieldTooLong."""
        if not self._steps & LEADING_SPACE:
            value = value.removeprefix(b" ")
        data = _strings(name, value)
        if len(data) > DATA_MAX:
            raise FieldTooLong(name[:80].decode("ascii", "replace"))
        self._ask(b"L", data)

    def end_headers(self, macros: Mapping[bytes, bytes]) -> None:
        """Tell that the header is complete."""
        self._ask(b"N", b"", macros)

    @property
    def wants_headers(self) -> bool:
        """Whether it wants the fields of the header."""
        return not self._steps & NO_HEADERS

    @property
    def wants_body(self) -> bool:
        """Whether it wants the body, or more of it."""
        return not self._steps & NO_BODY and self.answer.kind is not AnswerKind.SKIP

    def body(self, data: bytes) -> None:
        """Send the next piece of the body, with CRLF line ends, at most DATA_MAX bytes."""
        assert len(data) <= DATA_MAX
        self._ask(b"B", data)

    def end_message(self, macros: Mapping[bytes, bytes]) -> None:
        """Ask what becomes of the message."""
        self._edits, self._body = [], []
        self.replaces_body = False
        self._edit_bytes = self._edit_count = self._body_bytes = 0
        self._ask(b"E", b"", macros)

    def abort(self) -> None:
        """Tell that the message will not come. It is not answered."""
        self._send(b"A")

    def quit(self) -> None:
        """Tell that the session is over. It is not answered."""
        self._send(b"Q")

    def data_to_send(self) -> bytes:
        """Return the bytes to send since the last call."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _send(self, command: bytes, data: bytes = b"") -> None:
        self._out.append(struct.pack(">I", len(data) + 1) + command + data)

    def _ask(self, command: bytes, data: bytes, macros: Mapping[bytes, bytes] | None = None) -> None:
        """Send a command, if it is wanted; `macros` go before it."""
        assert not self.waits
        unwanted, silent, since = _COMMANDS[command]
        self.answer = GO_ON
        if self._steps & unwanted or self._version < since:
            return
        if macros is not None:
            wanted = self._wanted.get(command)
            named = [each for each in macros.items() if wanted is None or each[0] in wanted]
            self._send(b"D", command + b"".join(_strings(*each) for each in named))
        self._send(command, data)
        self._command = command
        self.waits = not self._steps & silent

    # Answers.

    def feed(self, data: bytes) -> None:
        """Take bytes of the milter. Raises FormatError."""
        self._buffer += data
        while len(self._buffer) >= 4:
            (size,) = struct.unpack_from(">I", self._buffer)
            if not 0 < size <= PACKET_MAX:
                raise FormatError(f"a packet of {size} bytes, limit {PACKET_MAX}")
            if len(self._buffer) < 4 + size:
                return
            packet = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            if not self.waits:
                raise FormatError(f"an answer to nothing: {quoted(packet[:1])}")
            self._take(packet[:1], packet[1:])

    def take_edits(self) -> list[Edit]:
        """Return the changes since the last call. Those of a message that is refused mean nothing."""
        edits, self._edits = self._edits, []
        return edits

    def take_body(self) -> list[bytes]:
        """Return the pieces of a new body since the last call."""
        pieces, self._body = self._body, []
        return pieces

    def _take(self, kind: bytes, data: bytes) -> None:
        if self._command == b"O":
            self._take_offer(kind, data)
        elif kind == b"p":
            self.progress += 1
        elif kind in _EDITS:
            self._take_edit(kind, data)
        elif kind == b"y":
            self._end(MilterAnswer(AnswerKind.REFUSE, unpack_reply(data)))
        elif kind in _ANSWERS and (kind != b"s" or self._command == b"B"):
            self._end(_ANSWERS[kind])
        else:
            raise FormatError(f"not an answer to {self._command.decode()}: {quoted(kind)}")

    def _end(self, answer: MilterAnswer) -> None:
        self.answer = answer
        self.waits = False

    def _take_offer(self, kind: bytes, data: bytes) -> None:
        if kind != b"O" or len(data) < 12:
            raise FormatError(f"not an answer to the negotiation: {quoted(kind)}")
        self._version, self._actions, self._steps = struct.unpack_from(">III", data)
        if not 2 <= self._version <= VERSION:
            raise FormatError(f"version {self._version}, not 2 to {VERSION}")
        if self._actions & ~ACTIONS or self._steps & ~STEPS:
            raise FormatError(f"wants what was not offered: actions {self._actions:#x}, protocol {self._steps:#x}")
        rest = data[12:]
        while len(rest) > 4:
            (stage,) = struct.unpack_from(">I", rest)
            names, nul, rest = rest[4:].partition(b"\0")
            if not nul or stage not in _STAGES:
                raise FormatError(f"not a list of macros: stage {stage}")
            self._wanted[_STAGES[stage]] = frozenset(names.replace(b",", b" ").split())
        self._end(GO_ON)

    def _take_edit(self, kind: bytes, data: bytes) -> None:
        if self._command != b"E":
            raise FormatError(f"a change before the end of the message: {quoted(kind)}")
        if not self._actions & _EDITS[kind]:
            raise FormatError(f"a change that was not negotiated: {quoted(kind)}")
        if kind == b"b":
            self._body_bytes += len(data) + 100
            if self._body_bytes > NEW_BODY_MAX:
                raise FormatError(f"a new body over {NEW_BODY_MAX} bytes")
            self._body.append(data)
            self.replaces_body = True
            return
        self._edit_bytes += len(data) + 100
        self._edit_count += 1
        if self._edit_bytes > EDIT_BYTES_MAX or self._edit_count > EDITS_MAX:
            raise FormatError(f"too many changes: over {EDITS_MAX}, or {EDIT_BYTES_MAX} bytes")
        if kind in (b"h", b"i", b"m"):
            self._edits.append(self._header_edit(kind, data))
            return
        text, nul, _ = data.partition(b"\0")
        if not nul or not text:
            raise FormatError(f"not a string: {quoted(data)}")
        if kind == b"q":
            self._edits.append(QuarantineEdit(text))
        elif kind == b"e":
            self._edits.append(SenderEdit(text))
        else:
            self._edits.append(RecipientEdit(text, kind != b"-"))

    def _header_edit(self, kind: bytes, data: bytes) -> HeaderEdit:
        place = None
        if kind != b"h":
            if len(data) < 4:
                raise FormatError("a header without a place")
            (place,) = struct.unpack_from(">I", data)
            data = data[4:]
        strings = data.split(b"\0")
        if len(strings) != 3 or strings[2] or not _NAME.fullmatch(strings[0]):
            raise FormatError(f"not a header: {quoted(data)}")
        value = strings[1]
        if not self._steps & LEADING_SPACE and value:
            value = b" " + value
        return HeaderEdit(strings[0], value, place, kind == b"m")


def _strings(*texts: bytes) -> bytes:
    """Return texts, each ended by a NUL; those within one are dropped."""
    return b"".join(text.replace(b"\0", b"") + b"\0" for text in texts)


def unpack_reply(data: bytes) -> ServerReply:
    """Return the reply of an answer that has one, such as `550 5.7.1 No` and a NUL. Raises FormatError.

    What is not printable ASCII is shown as `?`. `%%` is a percent sign, as libmilter has it.
    """
    code = status = b""
    texts = []
    for line in data.rstrip(b"\0").replace(b"\r", b"").split(b"\n")[:_REPLY_LINES_MAX]:
        match = _REPLY.fullmatch(line)
        if match is None or (code and match[1] != code):
            raise FormatError(f"not a reply: {quoted(data)}")
        code, status = match[1], status or match[2] or b""
        text = (match[3] or b"").replace(b"%%", b"%")[:_REPLY_LINE_MAX]
        texts.append(bytes(byte if 32 <= byte < 127 else 63 for byte in text))
    if status[:1] != code[:1]:
        status = code[:1] + b".7.1"
    return ServerReply(int(code), status, b"\n".join(texts))
